"""What commands say besides their tables: where the energy goes, what to try next, what was understood of the data."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from spikecast.cli.common import neurons
from spikecast.cli.own_data import own_origin, own_size
from spikecast.cli.report import _head
from spikecast.page.data import ReportData
from spikecast.sources.limit import Again, Limited
from spikecast.theory.neuron import Neuron

COMMON = ["--trust", "--size", "16", "--batch-size", "4", "--thresholds", "quantile"]
IMAGES = ["net.py:net", "--data", "imagefolder:images", *COMMON]
SWEPT = ["--levels", "2,4", "--bursts", "1,3", "-T", "2"]


def test_eval_says_where_the_energy_goes(cli) -> None:
    plain, more = cli("eval", *IMAGES, "--costs", "full"), cli("eval", *IMAGES, "--costs", "full", "--ops")
    assert plain.code == more.code == 0, more.err
    assert more.out.startswith(plain.out)
    rows = [line.split()[:2] for line in more.out.split("\n\n")[-1].splitlines()]
    assert rows[0] == ["where", "op"]
    assert sorted(rows[1:]) == [["0", "conv2d"], ["1", "neurons"], ["4", "linear"]]
    assert "where  " not in plain.out


def test_a_report_says_what_its_page_begins_with(cli, home) -> None:
    words = ("report", *IMAGES, "-T", "2", "--out", "page.html")
    done, data = cli(*words), json.loads(cli(*words, "--json").out)
    first, *lines = done.out.splitlines()
    assert first == data["headline"]
    assert first.endswith("of the ANN's energy (costs: paper)")
    for line, name in zip(lines, ("differential", "rate"), strict=False):
        low, high = data[name]["intervals"]["agreement"][-1]
        said = f"{data[name]['agreement'][-1]:.2%} ({100 * low:.2f} to {100 * high:.2f})"
        assert line.startswith(f"{name}: top1 ")
        assert f", agreement {said} at T = 2, 6 slots" in line
    assert lines[-1].startswith("ANN: top1 ")


def page(less: list[tuple[float, float]], ratio: list[float] | None = None) -> ReportData:
    """As much of a report as its headline needs."""
    from spikecast.measure.intervals import Interval

    energy = {"paper": {"snn": [2e-9 * (t + 1) for t in range(len(less))], "ratio": ratio}}
    steps = {"top1": [0.5 + 0.1 * t for t in range(len(less))]}
    network = SimpleNamespace(
        name="ours", less_ann=[Interval(*x) for x in less], energy=energy, steps=steps, agreement=[1.0] * len(less)
    )
    return cast(ReportData, SimpleNamespace(networks=[network], ann={"top1": 0.9}, metric="top1"))


def test_the_headline_in_words() -> None:
    as_good, whole, worse = (-0.1, 0.1), (-1.0, 1.0), (-0.3, -0.1)
    within = "as good as the ANN within the 95 % interval"
    assert (
        _head(page([as_good], [0.2])) == f"ours: after one step {within}, for 20.0% of the ANN's energy (costs: paper)"
    )
    assert _head(page([worse, as_good, as_good])).startswith(f"ours: from step 2 on {within}, for 4 nJ a sample")
    assert _head(page([as_good, worse])).startswith(f"at no step {within}; nearest comes ours after step 2, for 4 nJ")
    assert _head(page([whole])).startswith(
        "too few samples to say from which step on it is as good as the ANN; nearest"
    )


def test_explain_says_how_to_save_energy(cli) -> None:
    done = cli("explain", *IMAGES)
    assert done.code == 0, done.err
    *_, energy, ops = done.out.splitlines()
    assert energy == "for less energy: convert with --energy-budget SHARE (of the ANN's energy)"
    assert ops == "where the energy goes: spikecast eval --ops, with the same MODEL and --data"
    budget = cli("explain", *IMAGES[:-2], "--energy-budget", "0.4").out.splitlines()[-2]
    assert budget == energy.replace("energy)", "energy, now 0.4)")


def test_sweep_says_how_to_ask_for_a_budget(home: Path, cli) -> None:
    done = cli("sweep", *IMAGES, *SWEPT, "--budget", "energy=0.95")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "--energy-budget 0.95 also tries a conversion for that budget"
    assert "; the ANN's top1 on the rest " in done.out
    assert "; costs: paper\n" in done.out
    done = cli("sweep", *IMAGES, *SWEPT, "--budget", "energy=0.0001", "--csv", "all.csv", "--json")
    assert done.code == 1
    nothing = done.err.splitlines()[-1]
    assert "no setting stays within the budget" in nothing
    assert nothing.endswith("; --energy-budget 0.0001 also tries a conversion for that budget")
    found = json.loads(done.out)  # what was measured is there nevertheless
    assert found["costs"] == "paper"
    assert 0 <= found["ann"] <= 1
    assert len((home / "all.csv").read_text().splitlines()) == 1 + len(found["points"])
    for words in (["steps=2"], ["energy=0.95", "--energy-budget", "0.5"]):
        assert "also tries" not in cli("sweep", *IMAGES, *SWEPT, "--budget", *words).out


def test_sweep_names_the_cheapest_that_may_be_as_good(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With twelve images all settings may be as good; the dearest is chosen here."""
    from spikecast.experiments.sweep import Sweep

    def dearest(self: Sweep, **limits: Any) -> Any:
        found = within(self, **limits)
        everything = sorted([found.point, *found.rivals], key=lambda p: p.energy)
        return dataclasses.replace(found, point=everything[-1], rivals=everything[:-1])

    within = Sweep.within
    monkeypatch.setattr(Sweep, "within", dearest)
    chosen, cheapest = cli("sweep", *IMAGES, *SWEPT, "--budget", "steps=2").out.splitlines()[-2:]
    assert chosen.endswith("may be as good")
    assert cheapest.startswith("the cheapest of these: num_levels=")
    assert " T = 1, 1 slot: " in cheapest
    share = [float(line.partition(" at ")[2].partition("%")[0]) for line in (chosen, cheapest)]
    assert share[1] < share[0]


@pytest.mark.parametrize("command", ["inspect", "bench"])
def test_images_that_were_guessed(cli, home, command: str) -> None:
    net = "nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))"
    (home / "grey.py").write_text(f"from torch import nn\ndef build():\n    return {net}\n")
    complaint = cli(command, "grey.py:build", "--trust").complaint
    assert "to have 1 channels, but got 3 channels instead; it was given colour images of 224 pixels: " in complaint
    assert "say --size, --mean and --std (one number each for grey images), or --shape" in complaint
    assert cli(command, "grey.py:build", "--trust", "--size", "8", "--mean", "0", "--std", "1").code == 0
    shaped = cli(command, "grey.py:build", "--trust", "--shape", "1,9,9").complaint
    assert shaped.endswith("; give what it takes")


BATCHES = [(torch.rand(4, 2), torch.zeros(4)) for _ in range(3)]
OTHERS = [(torch.rand(4, 2), torch.zeros(4)) for _ in range(3)]


def yielded(split: str = "val") -> Iterator[Any]:
    raise AssertionError(f"{split} is not gone through")


@pytest.mark.parametrize(
    ("batches", "calibrating", "size", "origin"),
    [
        (BATCHES, Limited(BATCHES, 100), "3 batches of its own, 12 samples", "12 of these"),
        (BATCHES, Limited(OTHERS, 5), "3 batches of its own, 12 samples", "5 that it gives when it is called again"),
        (BATCHES[:1], Limited(OTHERS, 5), "1 batch of its own, 4 samples", "5 that it gives when it is called again"),
        (
            Limited(BATCHES, 5),
            Limited(BATCHES, 100),
            "2 batches of its own, 5 samples",
            "12, 5 of which are measured too",
        ),
        (Limited(BATCHES, 5), Limited(BATCHES, 3), "2 batches of its own, 5 samples", "3 of these"),
        (Again(yielded), Limited(Again(yielded), 9), "batches of its own", "the first 9 of these"),
        (
            Limited(Again(yielded), 1),
            Limited(Again(yielded), 9),
            "batches of its own, 1 sample at most",
            "the first 9, 1",
        ),
    ],
)
def test_what_is_known_of_own_batches(batches: Any, calibrating: Any, size: str, origin: str) -> None:
    assert own_size(batches) == size
    assert own_origin(calibrating, batches).startswith(origin)


def test_a_loader_says_its_batches_and_a_split_is_told() -> None:
    from functools import partial

    loader = DataLoader(TensorDataset(torch.rand(10, 2)), 4)
    assert own_size(loader) == "3 batches of its own"
    training = Limited(Again(partial(yielded, split="train")), 9)
    measured = Again(partial(yielded, split="val"))
    assert own_origin(training, measured) == "the first 9 that it gives for training"


def test_what_cannot_be_told_is_not_said_of_own_batches() -> None:
    made = [DataLoader(TensorDataset(torch.rand(10, 2)), 4) for _ in range(2)]
    assert own_origin(Limited(made[0], 9), made[1]) == "the first 9 that it gives when it is called again"
    other = [[np.zeros((4, 2))], [np.ones((4, 2))]]
    assert own_origin(other[0], other[1]).endswith("that it gives when it is called again")


def test_the_first_line_says_it(cli) -> None:
    words = ("eval", "net.py:net", "--trust", "--data", "net.py:batches")
    said = "net.py:net, net.py:batches: 3 batches of its own, 12 samples; thresholds from 12 that it gives"
    assert f"{said} when it is called again\n" in cli(*words).err


def test_one_is_one() -> None:
    network: Any = SimpleNamespace(neurons={str(i): Neuron(num_levels=n) for i, n in enumerate((4, 4, 8))})
    burst = Neuron(num_levels=4).burst
    assert neurons(network) == f"n=4 burst={burst} at 2 sites, n=8 burst={burst} at 1 site"
    network.neurons = {str(n): Neuron(num_levels=n) for n in range(1, 8)}
    assert neurons(network).endswith("others at 1 site")


@pytest.mark.parametrize("name", ["x.nir", "x.npz", "x.onnx", "x.spikecast"])
def test_folders_that_lack_are_made_and_go_if_nothing_is_written(cli, home, name: str, monkeypatch) -> None:
    command = ["convert"] if name == "x.spikecast" else ["export"]
    more = ["--profile", "extended"] if name == "x.nir" else []
    words = [*command, *IMAGES, *more, "--out", f"new/{name}/{name}"]
    monkeypatch.setattr("spikecast.storage.files.os.replace", forbidden)
    assert cli(*words).code == 1
    assert not (home / "new").exists()
    monkeypatch.undo()
    monkeypatch.chdir(home)
    assert cli(*words).code == 0
    assert (home / "new" / name / name).is_file()
    shutil.rmtree(home / "new")


def forbidden(*args: Any) -> None:
    raise PermissionError("no")
