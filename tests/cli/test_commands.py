"""Commands on a small set of images and a small model, as a user would type them."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import spikecast
from spikecast import presets
from spikecast.cli.job import open_job
from spikecast.cli.options import JobOptions, MachineOptions
from spikecast.config import Config

COMMON = ["--trust", "--size", "16", "--batch-size", "4"]
COMMON_KEYS = {"out", "ann", "headline"}  # of a report, besides its networks
IMAGES = ["net.py:net", "--data", "imagefolder:images"]


def test_convert_writes_a_network(home: Path, cli) -> None:
    done = cli("convert", *IMAGES, "--out", "net.spikecast", "-T", "4", *COMMON)
    assert done.code == 0, done.err
    assert "1 neuron site; ops" in done.out
    assert len(done.out.splitlines()) <= 10
    assert "written to net.spikecast" in done.err
    full = cli("convert", *IMAGES, "--out", "net.spikecast", "-T", "4", "--verbose", *COMMON)
    assert "why" in full.out.splitlines()[0].split()
    assert spikecast.load(home / "net.spikecast").config.num_steps == 4


def test_eval_alone_and_on_two_processes(cli, start_cli) -> None:
    words = ["eval", *IMAGES, "-T", "3", "--json", *COMMON]
    alone = cli(*words)
    assert alone.code == 0, alone.err
    found = json.loads(alone.out)
    assert found["samples"] == 12
    assert len(found["steps"]["top1"]) == 3
    together = start_cli(*words, launch=["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"])
    out, err = together.communicate(timeout=300)
    assert together.returncode == 0, err
    assert json.loads(out) == found


def test_eval_prints_a_table_and_writes_json(home: Path, cli) -> None:
    words = ["eval", *IMAGES, "-T", "2", "--limit", "5", *COMMON]
    done = cli(*words, "--out", "found/result.json", "--resume", "records")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split()[:4] == ["t", "slots", "top1", "top5"]
    assert json.loads((home / "found" / "result.json").read_text())["samples"] == 5
    again = cli(*words, "--resume", "records")
    assert again.out == done.out
    other = cli(*words, "--resume", "records", "--levels", "3")
    assert other.code == 1
    assert "records of another job" in other.err


def test_compare_and_sweep(home: Path, cli) -> None:
    data = [*IMAGES, "-T", "4", *COMMON]
    done = cli("compare", *data, "--presets", "dcgs,ts,hmt,ours", "--levels", "3")
    assert done.code == 0, done.err
    lines = [line.split()[:3] for line in done.out.splitlines()[1:5]]
    assert [name for name, _, _ in lines] == ["dcgs", "ts", "hmt", "ours"]
    assert [slots for _, _, slots in lines] == ["1/2/4", "1/2/4", "3/6/12", "3/6/12"]
    pairs = [line.partition(":")[0] for line in done.out.splitlines() if " beside " in line]
    assert len(pairs) == 6
    assert "ours beside dcgs" in pairs
    words = ("--levels", "1,4", "--bursts", "1,3", "--thresholds", "quantile", "--budget", "steps=2,slots=3")
    done = cli("sweep", *data, *words, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert len(found["points"]) == 2 * 2 * 4
    bursts = {p["name"].split()[1] for p in found["points"]}
    assert bursts == {"burst=1", "burst=3"}
    assert all(p["slots"] == p["num_steps"] * int(p["name"].split()[1][6:]) for p in found["points"])
    within = found["within the budget"]
    assert within["point"]["num_steps"] <= 2
    assert within["point"]["slots"] <= 3
    assert len(within["rivals"]) <= within["others"]


def test_presets_of_other_commands(home: Path, cli) -> None:
    """A preset is where the settings start; what else is given changes it."""
    done = cli("eval", *IMAGES, *COMMON, "--preset", "ecmt", "--levels", "3", "-T", "2", "--json")
    assert done.code == 0, done.err
    compared = cli("compare", *IMAGES, *COMMON, "--presets", "ecmt@2,ours@1", "--levels", "3", "--json")
    assert compared.code == 0, compared.err
    entries = json.loads(compared.out)["entries"]
    found, wanted = json.loads(done.out), entries["ecmt@2 n=3"]
    assert [found[name] for name in ("steps", "energy")] == [wanted[name] for name in ("steps", "energy")]
    assert len(entries["ours@1 n=3"]["steps"]["top1"]) == 1
    done = cli("convert", *IMAGES, *COMMON, "--preset", "dcgs", "--burst", "2", "--out", "dcgs.spikecast")
    assert done.code == 0, done.err
    config = spikecast.load(home / "dcgs.spikecast").config
    assert config == dataclasses.replace(presets.preset("dcgs"), burst=2)
    complaint = cli("eval", "dcgs.spikecast", *IMAGES[1:], "--preset", "ours").complaint
    assert "dcgs.spikecast has its own settings (--preset); leave them out" in complaint
    assert "no preset is called 'best'" in cli("bench", "nowhere.py:net", "--preset", "best").complaint


def test_presets_without_rectifiers(cli, home: Path) -> None:
    """The thresholds of such a network cannot be iterated; the preset has others for it."""
    layers = "nn.Flatten(), nn.Linear(768, 8), nn.GELU(), nn.Linear(8, 3)"
    (home / "smooth.py").write_text(f"from torch import nn\ndef net():\n    return nn.Sequential({layers})\n")
    words = ("convert", "smooth.py:net", *IMAGES[1:], *COMMON, "--preset", "dcgs", "--out", "smooth.spikecast")
    done = cli(*words)
    assert done.code == 0, done.err
    assert spikecast.load(home / "smooth.spikecast").config == presets.preset("dcgs", rectifiers=False)


def test_where_thresholds_come_from_is_said(home: Path, cli) -> None:
    words = ("eval", "net.py:net", *COMMON, "--data")
    assert "; thresholds from 12 of these\n" in cli(*words, "imagefolder:images").err
    few = cli(*words, "imagefolder:images", "--limit", "6", "--calibrate", "5").err
    assert "; thresholds from 5, 3 of which are measured too\n" in few
    for split, numbers in (("train", range(4)), ("val", range(2))):
        for name in ("ant", "bee", "cat"):
            (home / "split" / split / name).mkdir(parents=True)
            for i in numbers:
                shutil.copy(home / "images" / name / f"{i}.png", home / "split" / split / name)
    assert "; thresholds from 12 others\n" in cli(*words, "imagefolder:split").err
    digits = cli("eval", "demo:cnn", "--data", "demo:digits", "--limit", "8", "--calibrate", "8").err
    assert "; thresholds from 8 others\n" in digits


def test_a_report_of_one_step_has_one_coding(cli) -> None:
    words = ("report", *IMAGES, *COMMON, "--limit", "4", "--out", "r.html", "--json")
    assert json.loads(cli(*words).out).keys() - COMMON_KEYS == {"differential"}
    assert json.loads(cli(*words, "-T", "2").out).keys() - COMMON_KEYS == {"differential", "rate"}
    assert json.loads(cli(*words, "-T", "2", "--preset", "ecmt").out).keys() - COMMON_KEYS == {"rate"}


def test_sweep_of_goals(cli) -> None:
    words = ("-T", "1", "--levels", "4", "--bursts", "1", "--thresholds", "quantile", "--energy-budget", "0.4")
    done = cli("sweep", *IMAGES, *words, "--fidelity", "0.1", "--budget", "slots=14", *COMMON)
    assert done.code == 0, done.err
    assert "of 3 points (a setting after a step)" in done.out
    assert "within the budget" in done.out


def test_figures_and_values_for_papers(home: Path, cli) -> None:
    data = [*IMAGES, *COMMON, "-T", "2"]
    done = cli("eval", *data, "--plot", "a.svg", "--csv", "a.csv", "--json")
    assert done.code == 0, done.err
    found, rows = json.loads(done.out), list(csv.DictReader((home / "a.csv").read_text().splitlines()))
    assert [float(row["top1"]) for row in rows] == found["steps"]["top1"]
    assert [[float(row["top1_low"]), float(row["top1_high"])] for row in rows] == found["intervals"]["top1"]
    within = [[float(row[f"top1_less_ann_{end}"]) for end in ("low", "high")] for row in rows]
    assert within == found["less_ann"]["top1"]
    assert [float(row["energy_ratio"]) for row in rows] == found["energy"]["ratio"]
    assert "top1 (%)" in (home / "a.svg").read_text()
    done = cli("compare", *data, "--presets", "dcgs,ours", "--levels", "3", "--plot", "b.svg", "--csv", "b.csv")
    assert done.code == 0, done.err
    assert "ours n=3, 3 slots a step" in (home / "b.svg").read_text()
    names = [row["setting"] for row in csv.DictReader((home / "b.csv").read_text().splitlines())]
    assert names == ["dcgs n=3", "dcgs n=3", "ours n=3", "ours n=3"]
    done = cli("sweep", *data, "--levels", "3,4", "--bursts", "1", "--csv", "d.csv", "--json")
    assert done.code == 0, done.err
    wanted = json.loads(done.out)["points"]
    points = list(csv.DictReader((home / "d.csv").read_text().splitlines()))
    assert [float(p["reported_low"]) for p in points] == [p["reported_low"] for p in wanted]
    done = cli("explain", *data, "--plot", "c.svg", "--csv", "c.csv")
    assert done.code == 0, done.err
    assert "neurons that fire (%)" in (home / "c.svg").read_text()
    sites = list(csv.DictReader((home / "c.csv").read_text().splitlines()))
    assert [(row["site"], row["t"]) for row in sites] == [("1", "1"), ("1", "2")]
    for first in (rows[0], points[0], sites[0]):
        assert all(name.isidentifier() for name in first), first  # easy to write in other programs
    for command in ("eval", "compare", "sweep", "explain"):  # before anything is read
        complaint = cli(command, "nowhere.py:net", "--data", "imagefolder:nowhere", "--plot", "x.gif").complaint
        assert "x.gif ends in none of .svg, .pdf, .png" in complaint


def test_folders_of_some_of_the_classes(home: Path, cli) -> None:
    """Three folders and a model of ten classes: refused, until a file says which is which."""
    words = ("eval", "net.py:net", "--classes", "10", *IMAGES[1:], *COMMON, "--limit", "6", "--json")
    complaint = cli(*words).complaint
    assert "3 folders of classes for a model with 10 outputs; say which is which with --class-map" in complaint
    (home / "map.json").write_text('{"ant": 9, "bee": 5, "cat": 0}')
    done = cli(*words, "--class-map", "map.json")
    assert done.code == 0, done.err
    (home / "other.json").write_text('{"ant": 0, "bee": 5, "cat": 9}')
    assert json.loads(done.out)["ann"] != json.loads(cli(*words, "--class-map", "other.json").out)["ann"]


def test_calibration_keeps_labels_of_classes_only(home: Path, monkeypatch) -> None:
    """By whole numbers as labels a conversion knows that the answers are scores of classes."""
    monkeypatch.chdir(home)
    options: dict[str, Any] = {"model": "net.py:net", "data": "imagefolder:images", "trust": True, "size": 16}
    job = open_job(JobOptions(**options, **vars(MachineOptions())))
    (batch,) = job.calibration()
    assert batch[1].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    other = dataclasses.replace(job, task="segmentation")
    (batch,) = other.calibration()
    assert len(batch) == 1  # a model could take anything else for an argument
    seen: list[str] = []
    monkeypatch.setattr("spikecast.conversion.pipeline.allocate", lambda *given: seen.append(given[4]))
    for each in (job, other):
        each.network(Config(num_steps=1, energy_budget=0.5))
    assert seen == ["logits", "values"]
