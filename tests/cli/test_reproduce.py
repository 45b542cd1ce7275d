"""spikecast reproduce: published beside measured, as a figure, as the authors' code has it, and after kills."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from spikecast.cli.job import open_job
from spikecast.cli.options import JobOptions, MachineOptions
from spikecast.errors import ConfigError
from spikecast.measure import intervals
from spikecast.paper.published import PREPARED

SMALL = ["--models", "resnet18", "--max-steps", "4", "--classes", "3", "--size", "32", "--random-weights"]
WORDS = ["reproduce", "cnn", "--data", "imagefolder:images", *SMALL, "--levels", "4"]


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_published_beside_measured(home: Path, cli) -> None:
    refused = cli(*[word for word in WORDS if word != "--random-weights"])
    assert "a table needs trained weights: say --pretrained, or --weights FILE" in refused.complaint
    done = cli(*WORDS, "--limit", "3", "--csv", "cnn.csv", "--out", "cnn.json", "--plot", "cnn.svg")
    assert done.code == 0, done.err
    assert "61.45" in done.out
    assert "70.07" in done.out
    assert "71.31" not in done.out  # T = 8
    assert [line.split()[-2:] for line in done.out.splitlines()[1:3]] == [["random", "weights"]] * 2
    assert "rows of table 'cnn': 1, with 4 steps of each image in all" in done.err
    assert "resnet18, rows: 1; 3 images, about" in done.err
    assert "as published" not in done.err
    rows = rows_of(home / "cnn.csv")
    assert [(row["weights"], row["settings"]) for row in rows] == [("random", "paper")] * 2
    assert (rows[0]["model"], rows[0]["n"], rows[0]["T"], rows[0]["published"]) == ("resnet18", "4", "2", "61.45")
    assert all(name.isidentifier() for name in rows[0])
    cells = json.loads((home / "cnn.json").read_text())["cells"]
    assert [float(row["energy_measured"]) for row in rows] == [cell["energy_measured"] for cell in cells]
    assert len(rows[0]["energy_measured"]) > 8  # not rounded for people
    for row in rows:
        right = round(3 * float(row["measured"]) / 100)
        within = [float(row[f"measured_{end}"]) / 100 for end in ("low", "high")]
        assert within == pytest.approx(intervals.share(right, 3))
        assert f"{float(row['measured']):.2f} ({100 * within[0]:.2f} to {100 * within[1]:.2f})" in done.out
    assert 3 * float(rows[0]["measured"]) == pytest.approx(100 * round(3 * float(rows[0]["measured"]) / 100))
    drawn = (home / "cnn.svg").read_text()
    assert [drawn.count(f">{words}</text>") for words in ("resnet18 n=4", "published", "ANN")] == [1, 1, 1]
    assert "slots a step" not in drawn
    dotted = re.findall(r"stroke-dasharray: [^;]*; stroke-dashoffset: 0; stroke: #1f5fbf", drawn)
    assert len(dotted) == 2  # against steps and against energy
    assert drawn.count("fill: #1f5fbf; fill-opacity: 0.12") == 2  # the bands


def test_published_figures_need_no_data(cli) -> None:
    done = cli("reproduce", "comparison")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split()[:3] == ["method", "type", "architecture"]
    assert "as published in the paper" in done.out
    assert "table 'cnn' is measured on imagenet; give its folder" in cli("reproduce", "cnn").complaint
    for words in (["--plot", "x.svg"], ["--csv", "x.csv"], ["--as-published"]):
        complaint = cli("reproduce", "comparison", *words).complaint
        assert "table 'comparison' has only published figures; leave --plot" in complaint


def test_mistakes_are_told_before_the_work(cli) -> None:
    words = ["--random-weights", "--data", "voc:nowhere"]
    assert "x.gif ends in none of .svg, .pdf, .png" in cli("reproduce", "cnn", *words, "--plot", "x.gif").complaint
    complaint = cli("reproduce", "segmentation", *words, "--as-published").complaint
    assert "the authors' code has no segmentation" in complaint
    complaint = cli("reproduce", "cnn", *words, "--as-published", "--calibrate", "5").complaint
    assert "--calibrate 5: with --as-published thresholds come from all images that are measured; leave it" in complaint


def test_as_published(home: Path, cli) -> None:
    """Every deviation in a line before the work, and another network than the paper's settings give."""
    words = ["reproduce", "cnn", *WORDS[2:-2], "--levels", "1", "--limit", "6"]
    paper = cli(*words, "--csv", "paper.csv")
    done = cli(*words, "--csv", "code.csv", "--as-published")
    assert (paper.code, done.code) == (0, 0), done.err
    said = [line for line in done.err.splitlines() if line.startswith("as published: ")]
    assert said == [
        "as published: thresholds come from the images that are measured, all of them",
        "as published: N is 2T for n = 1, not T",
    ]
    assert done.err.index(said[-1]) < done.err.index("6 images;")
    assert "converted as the authors' code does it, not as the paper says" in done.out
    theirs, ours = rows_of(home / "code.csv"), rows_of(home / "paper.csv")
    assert {row["settings"] for row in theirs} == {"authors' code"}
    assert [row["energy_measured"] for row in theirs] != [row["energy_measured"] for row in ours]


@pytest.mark.parametrize(("words", "prepared"), [([], {}), (["--as-published"], PREPARED["vgg16"])])
def test_the_job_of_a_row(words, prepared, cli, monkeypatch) -> None:
    asked = {}

    def no_job(_: JobOptions, **given: Any) -> None:
        asked.update(given)
        raise ConfigError("asked enough")

    monkeypatch.setattr("spikecast.cli.reproduce.open_job", no_job)
    assert "asked enough" in cli("reproduce", "main", "--models", "vgg16", *WORDS[2:4], "--random-weights", *words).err
    assert asked == {"prepared": prepared, "calibrate_on_measured": bool(words)}


def test_images_and_thresholds_of_the_authors(home: Path, monkeypatch) -> None:
    monkeypatch.chdir(home)
    given: dict[str, Any] = {"model": "net.py:net", "data": "imagefolder:images", "trust": True, "size": 16}
    options = JobOptions(**given, **vars(MachineOptions()), batch_size=5, calibrate=2)
    job = open_job(options, prepared={"crop": 0.5, "interpolation": "bicubic"}, calibrate_on_measured=True)
    assert [len(images) for images, _ in job.calibration()] == [5, 5, 2]  # as those that are measured
    used = job.source.preparation
    assert (used.size, used.crop, used.interpolation) == (16, 0.5, "bicubic")
    assert job.said["preparation"] == used.to_json()
    other = open_job(options)
    assert [len(images) for images, _ in other.calibration()] == [2]
    assert other.source.preparation == dataclasses.replace(used, crop=1.0, interpolation="bilinear")  # small: whole


def killed_after(process, folder: Path, records: int) -> int:
    """End a command as soon as it has so many records of finished batches; how many it left."""
    deadline = time.monotonic() + 300
    while (found := sum(len(path.read_text().splitlines()) for path in folder.rglob("*.jsonl"))) < records:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return found


def test_killed_twice_and_resumed_it_writes_the_same_bytes(home: Path, start_cli, cli) -> None:
    words = [*WORDS, "--batch-size", "1"]
    whole = cli(*words, "--csv", "whole.csv", "--out", "whole.json")
    assert whole.code == 0, whole.err
    folder = home / "records"
    first = killed_after(start_cli(*words, "--resume", "records", covered=False), folder, 3)
    second = killed_after(start_cli(*words, "--resume", "records", covered=False), folder, first + 2)
    assert first < second < 13  # twelve images, and a line about the job
    done = cli(*words, "--resume", "records", "--csv", "resumed.csv", "--out", "resumed.json")
    assert done.code == 0, done.err
    for kind in ("csv", "json"):
        assert (home / f"resumed.{kind}").read_bytes() == (home / f"whole.{kind}").read_bytes()
