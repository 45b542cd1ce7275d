"""The paper's figures as data: fits held to exact fractions and to theory.neuron; ways that differ in one thing."""

from __future__ import annotations

import dataclasses
import itertools
import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from spikecast.config import Coding
from spikecast.errors import ConfigError
from spikecast.page.neuron_plots import write_fits
from spikecast.paper.figures import CODINGS, figure_configs, fit, fits_table, sayable
from spikecast.theory import neuron as readable

DOCS = Path(__file__).parents[2] / "docs"


def values_of_trains(coding: Coding, num_levels: int, num_steps: int) -> list[Fraction]:
    """Of every spike train, by the sums of Definition 4.1 and Eq. 7."""
    levels = [Fraction(sign, 2**i) for i in range(num_levels) for sign in (1, -1)]
    weights = [Fraction(1, num_steps if coding == "rate" else t) for t in range(1, num_steps + 1)]
    trains = itertools.product([Fraction(0), *levels], repeat=num_steps)
    return sorted({sum((w * s for w, s in zip(weights, train, strict=True)), Fraction(0)) for train in trains})


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(("num_levels", "num_steps"), [(1, 3), (3, 2), (2, 4)])
def test_values_that_spikes_can_say(coding: Coding, num_levels: int, num_steps: int) -> None:
    found = sayable(coding, num_levels, num_steps)
    assert found is not None
    wanted = values_of_trains(coding, num_levels, num_steps)
    assert found.tolist() == pytest.approx([float(value) for value in wanted], abs=1e-12)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_fit_is_the_readable_neuron_and_the_nearest_train(coding: Coding) -> None:
    found = fit(coding, num_levels=2, num_steps=4)
    x = torch.tensor(found.x, dtype=torch.float64)
    settings = readable.Neuron(coding=coding, num_levels=2)
    wanted = readable.encode(x.expand(4, -1), torch.ones(()), settings).estimates[-1]
    assert found.neuron == wanted.tolist()
    values = torch.tensor([float(value) for value in values_of_trains(coding, 2, 4)], dtype=torch.float64)
    nearest = (x[:, None] - values).abs().amin(1)
    assert found.ideal is not None
    assert (torch.tensor(found.ideal, dtype=torch.float64) - x).abs().tolist() == pytest.approx(nearest.tolist())
    row = found.rows()[700]
    assert row == {
        "coding": coding, "n": 2, "T": 4, "x": found.x[700], "neuron": found.neuron[700], "ideal": found.ideal[700]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("coding", "ideal", "neuron", "reach"), [("rate", 0.083, 0.104, 1), ("differential", 0.042, 0.105, 11 / 6)]
)
def test_figures_in_the_text(coding: Coding, ideal: float, neuron: float, reach: float) -> None:
    found = fit(coding)
    assert (found.error(found.ideal), found.error(found.neuron)) == pytest.approx((ideal, neuron), abs=6e-4)
    assert max(found.neuron) == pytest.approx(reach)
    cells = fits_table([found]).splitlines()[1].split()
    assert cells[:3] == [coding, "1", "3"]
    assert [float(x) for x in cells[3:]] == pytest.approx([neuron, ideal, reach], abs=6e-4)
    for value in (f"{ideal}", f"{neuron}"):
        assert value in (DOCS / "reproduce.md").read_text(encoding="utf-8")


def test_trains_that_are_too_many_are_left_out() -> None:
    found = fit("differential", num_levels=4, num_steps=30)
    assert found.ideal is None
    assert found.rows()[0]["ideal"] is None
    assert found.error(found.neuron) == pytest.approx(0, abs=0.02)
    with pytest.raises(ConfigError, match="num_levels=15 must be a whole number"):
        fit("rate", num_levels=15)


def test_the_picture_in_docs_is_what_is_drawn(tmp_path: Path) -> None:
    """The same words and, to a point of paper, the same lines; other versions of matplotlib write other bytes."""
    drawn = write_fits([fit(coding) for coding in CODINGS], tmp_path / "fit.svg").read_text(encoding="utf-8")
    kept = (DOCS / "figure2.svg").read_text(encoding="utf-8")
    words = [re.findall(r">([^<>]*)</text>", text) for text in (drawn, kept)]
    assert words[0] == words[1]
    assert "rate coding, n = 1" in words[0]
    lines = [[re.findall(r"-?\d+\.?\d*", d) for d in re.findall(r' d="([^"]*)"', text)] for text in (drawn, kept)]
    assert [len(line) for line in lines[0]] == [len(line) for line in lines[1]]
    numbers = [[float(x) for line in own for x in line] for own in lines]
    assert numbers[0] == pytest.approx(numbers[1], abs=1)


@pytest.mark.parametrize(
    ("name", "ways", "field", "values", "scale"),
    [
        ("coding", ("DC", "RC"), "coding", ("differential", "rate"), 1.0),
        ("thresholds", ("TI", "LA"), "thresholds", ("iteration_paper", "quantile"), 2.0),
    ],
)
def test_ways_differ_in_one_thing(name, ways, field, values, scale) -> None:
    found = figure_configs(name, rectifiers=True, levels=[4, 8], num_steps=6)
    assert list(found) == [f"{way} n={n}" for way in ways for n in (4, 8)]
    first, second = found[f"{ways[0]} n=8"], found[f"{ways[1]} n=8"]
    assert (getattr(first, field), getattr(second, field)) == values
    assert dataclasses.replace(second, **{field: values[0]}) == first
    assert (first.burst, first.num_levels, first.num_steps, first.threshold_scale) == (1, 8, 6, scale)
    scaled = figure_configs(name, rectifiers=True, levels=[4], num_steps=6, scale=3.0)
    assert {config.threshold_scale for config in scaled.values()} == {3.0}


def test_networks_without_rectifiers() -> None:
    found = figure_configs("coding", rectifiers=False, levels=[8], num_steps=4)
    assert {(c.thresholds, c.threshold_scale, c.encode_input) for c in found.values()} == {("quantile", 4.0, True)}
    with pytest.raises(ConfigError, match="iterated for ReLUs, and this network has none"):
        figure_configs("thresholds", rectifiers=False, levels=[8], num_steps=4)
