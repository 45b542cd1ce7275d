"""Commands on a small set of images and a small model, as a user would type them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import spikecast

MODEL = """
import torch
from torch import nn

def net(num_classes=3):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, num_classes)
    )
"""
COMMON = ["--trust", "--size", "16", "--batch-size", "4"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("a home")
    (home / "net.py").write_text(MODEL)
    for label, name in enumerate(("ant", "bee", "cat")):
        (home / "images" / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (20, 20), (80 * label, 60 * i, 99)).save(home / "images" / name / f"{i}.png")
    return home


def spikecast_command(home: Path, *words: str, processes: int = 1) -> subprocess.CompletedProcess[str]:
    launch = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"] if processes > 1 else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", *launch, "spikecast", *words]
    return subprocess.run(command, cwd=home, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_convert_writes_a_network(home: Path) -> None:
    done = spikecast_command(
        home, "convert", "net.py:net", "--data", "imagefolder:images", "--out", "net.spikecast", "-T", "4", *COMMON
    )
    assert done.returncode == 0, done.stderr
    assert "neuron sites" in done.stdout
    assert "written to net.spikecast" in done.stderr
    assert spikecast.load(home / "net.spikecast").config.num_steps == 4


def test_eval_alone_and_on_two_processes(home: Path) -> None:
    words = ["eval", "net.py:net", "--data", "imagefolder:images", "-T", "3", "--json", *COMMON]
    alone = spikecast_command(home, *words)
    assert alone.returncode == 0, alone.stderr
    found = json.loads(alone.stdout)
    assert found["samples"] == 12
    assert len(found["steps"]["top1"]) == 3
    together = spikecast_command(home, *words, processes=2)
    assert together.returncode == 0, together.stderr
    assert json.loads(together.stdout) == found


def test_eval_prints_a_table_and_writes_json(home: Path) -> None:
    words = ["eval", "net.py:net", "--data", "imagefolder:images", "-T", "2", "--limit", "5", *COMMON]
    done = spikecast_command(home, *words, "--out", "found/result.json", "--resume", "records")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split()[:3] == ["t", "top1", "top5"]
    assert json.loads((home / "found" / "result.json").read_text())["samples"] == 5
    again = spikecast_command(home, *words, "--resume", "records")
    assert again.stdout == done.stdout
    other = spikecast_command(home, *words, "--resume", "records", "--levels", "3")
    assert other.returncode == 1
    assert "records of another job" in other.stderr


def test_compare_and_sweep(home: Path) -> None:
    data = ["net.py:net", "--data", "imagefolder:images", "-T", "4", *COMMON]
    done = spikecast_command(home, "compare", *data, "--presets", "dcgs,ts,ours", "--levels", "3")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["dcgs", "ts", "ours"]
    words = ("--levels", "1,4", "--thresholds", "quantile", "--budget", "steps=2")
    done = spikecast_command(home, "sweep", *data, *words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["points"]) == 8
    assert found["best"]["num_steps"] <= 2


def test_reproduce_prints_published_beside_measured(home: Path) -> None:
    words = ["--models", "resnet18", "--levels", "4", "--max-steps", "4", "--classes", "3", "--size", "32"]
    done = spikecast_command(
        home, "reproduce", "cnn", "--data", "imagefolder:images", *words, "--limit", "4", "--csv", "cnn.csv"
    )
    assert done.returncode == 0, done.stderr
    assert "61.45" in done.stdout
    assert "70.07" in done.stdout
    assert "71.31" not in done.stdout  # T = 8
    rows = (home / "cnn.csv").read_text().splitlines()
    assert len(rows) == 3
    assert rows[1].startswith("resnet18,4,differential,iteration_paper,1,2,61.45,")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eval", "net.py:net", "--data", "imagefolder:images"], "--trust"),
        (["eval", "timm:no_such", "--data", "imagefolder:images"], "timm has no model"),
        (["eval", "net.py:net", "--data", "imagefolder:nowhere", "--trust"], "there is no folder nowhere"),
        (["eval", "net.py:net", "--data", "photos:images", "--trust"], "give KIND:DIR"),
        (["eval", "net.py:net", "--data", "imagefolder:images", "-T", "0", "--trust"], "num_steps=0"),
        (["eval", "net.py:net", "--data", "imagefolder:images", "--classes", "2", *COMMON], "do not fit 2 classes"),
        (["eval", "net.py:net", "--data", "imagefolder:images", "--device", "tpu", *COMMON], "is not a device"),
        (["eval", "net.py:net", "--data", "imagefolder:images", "--weights", "no.pt", *COMMON], "no weights file"),
        (["compare", "net.py:net", "--data", "imagefolder:images", "--presets", "best", *COMMON], "no preset"),
        (["reproduce", "table9", "--data", "images"], "is not one of"),
        (["reproduce", "cnn", "--data", "images", "--models", "alexnet"], "has no model 'alexnet'"),
        (["sweep", "net.py:net", "--data", "imagefolder:images", "--budget", "money=3", *COMMON], "give energy=SHARE"),
    ],
)
def test_mistakes_are_one_line(home: Path, words: list[str], message: str) -> None:
    done = spikecast_command(home, *words)
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("spikecast: ")
    assert message in last
    assert "Traceback" not in done.stderr


def test_wrong_usage_is_another_exit_code(home: Path) -> None:
    assert spikecast_command(home, "eval").returncode == 2
    assert spikecast_command(home, "evaluate").returncode == 2
    helped = spikecast_command(home, "eval", "--help")
    assert helped.returncode == 0
    assert "--data" in helped.stdout


def test_nothing_half_written(home: Path) -> None:
    (home / "locked").mkdir(exist_ok=True)
    target = home / "locked" / "file"
    target.mkdir(exist_ok=True)  # a folder where the file should go
    words = ["eval", "net.py:net", "--data", "imagefolder:images", "-T", "1", *COMMON, "--out", "locked/file"]
    done = spikecast_command(home, *words)
    assert done.returncode == 1
    assert "cannot write locked/file" in done.stderr
    assert [p.name for p in (home / "locked").iterdir()] == ["file"]
