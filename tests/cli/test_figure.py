"""spikecast figure, and the raster of spikecast explain: files, numbers, and mistakes that are told before the work."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import pytest
import torch

from spikecast import measure
from spikecast.conversion.pipeline import convert
from spikecast.paper.figures import figure_configs
from spikecast.sources.plugin import function_in
from spikecast.theory.neuron import Neuron, encode

OWN = ["net.py:net", "--data", "net.py:batches", "--trust"]
NOWHERE = ["nowhere.py:net", "--data", "imagefolder:nowhere"]  # is not read before the options are


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_fit(home: Path, cli) -> None:
    """What a neuron fits, by the definition to read."""
    done = cli("figure", "fit", "--levels", "1,3", "-T", "4", "--plot", "fit.svg", "--csv", "fit.csv", "--json")
    assert done.code == 0, done.err
    rows = rows_of(home / "fit.csv")
    for found in json.loads(done.out):
        coding, n = found["coding"], found["num_levels"]
        own = [row for row in rows if (row["coding"], row["n"], row["T"]) == (coding, str(n), "4")]
        assert [float(row["x"]) for row in own] == found["x"]
        x = torch.tensor(found["x"], dtype=torch.float64).expand(4, -1)
        wanted = encode(x, torch.ones(()), Neuron(coding=coding, num_levels=n)).estimates[-1]
        assert [float(row["neuron"]) for row in own] == wanted.tolist()
    assert len(rows) == 4 * 1001
    assert "value after step 4" in (home / "fit.svg").read_text()


@pytest.mark.parametrize(("name", "ways"), [("coding", ("DC", "RC")), ("thresholds", ("TI", "LA"))])
def test_two_ways_side_by_side(name: str, ways: tuple[str, str], home: Path, cli) -> None:
    words = ["figure", name, *OWN, "--levels", "3", "-T", "2", "--plot", "ways.svg", "--csv", "ways.csv"]
    done = cli(*words)
    assert done.code == 0, done.err
    assert f"{ways[1]} beside {ways[0]}: " in done.out
    drawn = (home / "ways.svg").read_text()
    assert all(f">{way} n=3</text>" in drawn for way in (*ways,))
    assert "energy, % of the ANN's (paper costs)" in drawn
    rows = rows_of(home / "ways.csv")
    assert [(row["setting"], row["t"]) for row in rows] == [(f"{way} n=3", t) for way in ways for t in "12"]
    make, batches = (function_in(f"net.py:{word}", "test", trust=True) for word in ("net", "batches"))
    model = make().eval()
    for setting, config in figure_configs(name, rectifiers=True, levels=[3], num_steps=2).items():
        network = convert(model, batches("train"), config)
        wanted = measure.evaluate(network, batches("val"), model=model)
        own = [row for row in rows if row["setting"] == setting]
        assert [float(row["top1"]) for row in own] == wanted.steps["top1"]
        assert [(float(r["top1_low"]), float(r["top1_high"])) for r in own] == wanted.intervals["top1"]
        assert wanted.energy is not None
        assert [float(row["energy_ratio"]) for row in own] == wanted.energy.ratio


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fig", *NOWHERE], "figure 'fig' is not one of fit, coding, thresholds"),
        (["coding", *NOWHERE, "--plot", "x.gif"], "x.gif ends in none of .svg, .pdf, .png"),
        (["coding", *NOWHERE, "--levels", "99"], "num_levels=99 must be a whole number"),
        (["thresholds", *NOWHERE, "--steps", "0"], "num_steps=0 must be a whole number"),
        (["thresholds", *NOWHERE, "--scale", "-1"], "threshold_scale=-1.0 must be a number above 0"),
        (["coding"], "figure 'coding' is measured: give a MODEL and its --data"),
        (["coding", "demo:cnn"], "figure 'coding' is measured: give a MODEL and its --data"),
        (["fit", "demo:cnn"], "figure 'fit' is of one neuron; leave MODEL, --data and --scale out"),
        (["fit", "--scale", "2"], "figure 'fit' is of one neuron; leave MODEL, --data and --scale out"),
        (["fit", "--levels", "one"], "--levels 'one': give whole numbers"),
    ],
)
def test_mistakes_are_told_before_the_work(words: list[str], says: str, cli) -> None:
    assert says in cli("figure", *words).complaint


@pytest.mark.parametrize(
    "words",
    [
        ["figure", "fit", "--plot", "x.svg"],
        ["figure", "coding", *NOWHERE, "--plot", "x.svg"],
        ["explain", *NOWHERE, "--raster", "x.svg"],
        ["report", *NOWHERE, "--out", "x.html", "--plot", "x.svg"],
    ],
)
def test_without_matplotlib(words: list[str], cli, monkeypatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    assert "plots need matplotlib; install it with: pip install 'spikecast[report]'" in cli(*words).complaint


def test_raster(home: Path, cli) -> None:
    words = ["explain", *OWN, "-T", "2", "--thresholds", "quantile"]
    done = cli(*words, "--raster", "a.svg", "--sample", "5")
    assert done.code == 0, done.err
    assert "written to a.svg" in done.err
    assert "1: 32 of 294 neurons" in (home / "a.svg").read_text()  # the only layer is the one that loses most
    assert cli(*words, "--raster", "b.svg", "--site", "1", "--sample", "5").code == 0
    assert cli(*words, "--raster", "c.svg", "--sample", "6").code == 0
    first, same, other = ((home / f"{name}.svg").read_bytes() for name in "abc")
    assert first == same != other
    assert (
        "--site 'conv' is no layer of neurons; there are 1"
        in cli(*words, "--raster", "d.svg", "--site", "conv").complaint
    )
    assert "there is no sample 12: the data has 12" in cli(*words, "--raster", "d.svg", "--sample", "12").complaint
    assert "say --raster FILE, or leave them out" in cli("explain", *NOWHERE, "--site", "1").complaint
    assert "d.gif ends in none of" in cli("explain", *NOWHERE, "--raster", "d.gif").complaint
