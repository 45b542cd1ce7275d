"""Figure 2 of the paper, as examples/figure2.py draws it."""

from __future__ import annotations

import itertools
import runpy
from fractions import Fraction
from pathlib import Path

import pytest
import torch

HOME = Path(__file__).parents[2]
drawn = runpy.run_path(str(HOME / "examples" / "figure2.py"))


@pytest.mark.parametrize("coding", ["rate", "differential"])
def test_values_that_three_spikes_can_say(coding: str) -> None:
    weights = [Fraction(1, 3)] * 3 if coding == "rate" else [Fraction(1), Fraction(1, 2), Fraction(1, 3)]
    trains = itertools.product((-1, 0, 1), repeat=3)
    wanted = sorted({sum(w * s for w, s in zip(weights, train, strict=True)) for train in trains})
    assert drawn["sayable"](coding).tolist() == pytest.approx([float(value) for value in wanted])


@pytest.mark.parametrize(
    ("coding", "ideal", "neuron", "reach"), [("rate", 0.083, 0.103, 1), ("differential", 0.042, 0.105, 11 / 6)]
)
def test_figures_in_the_text(coding: str, ideal: float, neuron: float, reach: float) -> None:
    x = torch.linspace(-2.5, 2.5, 1001)
    found = drawn["curves"](x, coding)
    near = x.abs() <= 1
    errors = [float((found[name] - x).abs()[near].mean()) for name in ("ideal", "neuron")]
    assert errors == pytest.approx([ideal, neuron], abs=6e-4)
    assert float(found["neuron"].max()) == pytest.approx(reach)


def test_the_picture_in_docs_is_what_is_drawn() -> None:
    assert (HOME / "docs" / "figure2.svg").read_text(encoding="utf-8") == drawn["figure"]()
