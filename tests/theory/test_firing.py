"""The multi-threshold quantiser: the edges, the codes and the errors that a reader can check by hand."""

from __future__ import annotations

import math

import pytest
import torch

from spikecast.errors import DataError
from spikecast.theory import firing
from spikecast.theory.firing import (
    fire_argmin,
    fire_exponent,
    fire_one_hot,
    fire_thermometer,
    floor_exponent,
    inverse_threshold,
    level_index,
    level_value,
    nearest_exponent,
    signed_power,
    thermometer_weights,
)

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FORMS = [fire_argmin, fire_exponent, fire_thermometer, fire_one_hot]


@pytest.mark.parametrize("form", [fire_argmin, fire_exponent])
def test_levels_by_hand(form) -> None:
    u = torch.tensor(
        [-math.inf, -1.5, -0.75, -0.74, -0.1875, -0.18, -0.0, 0.0, 0.1875, 0.37, 0.375, 0.75, 1.6, math.inf]
    )
    assert form(u, 3).tolist() == [-1, -1, -1, -2, -3, 0, 0, 0, 3, 3, 2, 1, 1, 1]
    assert form(u, 1).tolist() == [-1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert form(u, 3).dtype == torch.int8


def test_comparators_by_hand() -> None:
    u = torch.tensor([0.5, -2.0, 0.1])
    assert fire_thermometer(u, 2).int().tolist() == [[0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert fire_one_hot(u, 2).int().tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert thermometer_weights(3).tolist() == [0.5, 0.25, 0.25, -0.5, -0.25, -0.25]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_nan_is_an_error(form, dtype) -> None:
    with pytest.raises(DataError, match="NaN"):
        form(torch.tensor([[0.0, 1.0], [math.nan, -math.inf]], dtype=dtype), 4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_odd_shapes(form, shape) -> None:
    fired = form(torch.ones(shape), 2)
    assert fired.shape == (shape if fired.dtype == torch.int8 else (*shape, 4))


@pytest.mark.parametrize("dtype", DTYPES)
def test_level_values_are_exact(dtype) -> None:
    levels = torch.arange(-14, 15, dtype=torch.int8)
    expected = [0.0 if i == 0 else math.copysign(2.0 ** (1 - abs(i)), i) for i in range(-14, 15)]
    values = level_value(levels, dtype)
    assert values.dtype == dtype
    assert values.tolist() == expected
    assert level_index(values).tolist() == levels.tolist()


def test_inverse_threshold_is_rounded_once() -> None:
    threshold = torch.rand(1000) + 0.1
    exact = (0.75 / 0.72) / threshold.double()
    inverse = inverse_threshold(threshold, 0.72)
    assert inverse.dtype == torch.float32
    assert torch.equal(inverse, exact.float())
    # dividing and multiplying in float32 rounds twice, and is not the same number
    assert not torch.equal(inverse, (0.75 / 0.72) * (1 / threshold))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e-45])
def test_unusable_threshold(bad) -> None:
    with pytest.raises(DataError, match="threshold"):
        inverse_threshold(torch.tensor([1.0, bad]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trace_compares_and_finds_the_same_levels(dtype, monkeypatch) -> None:
    """What torch.export is shown has no bits of floats in it; at every edge, and next to it, it says the same."""
    edges = torch.tensor([e * 2.0**-k for e in (0.75, 1.0) for k in range(15)], dtype=dtype)
    near = [torch.nextafter(edges, torch.full_like(edges, to)) for to in (0.0, 2.0)]
    u = torch.cat([edges, *near, torch.tensor([0.0, 3.0, 1e30, math.inf], dtype=dtype)])
    u = torch.cat([u, -u])
    bits = [f(u).clamp(-14, 0) for f in (nearest_exponent, floor_exponent)]
    powers = signed_power(bits[0].clone(), u)
    monkeypatch.setattr(firing, "is_exporting", lambda: True)
    assert [f(u).tolist() for f in (nearest_exponent, floor_exponent)] == [b.tolist() for b in bits]
    assert torch.equal(signed_power(bits[0], u)[u != 0], powers[u != 0])  # what has no sign does not fire
