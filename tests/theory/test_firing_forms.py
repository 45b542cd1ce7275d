"""The forms of the multi-threshold quantiser are one function, on every half and around every edge of float32."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spikecast.theory.firing import (
    fire_argmin,
    fire_exponent,
    fire_one_hot,
    fire_thermometer,
    level_value,
    thermometer_weights,
)

LEVELS = [1, 2, 4, 8, 14]


def assert_forms_agree(u: torch.Tensor, num_levels: int) -> None:
    expected = fire_argmin(u, num_levels)
    assert torch.equal(fire_exponent(u, num_levels), expected)
    value = level_value(expected)
    comparators = fire_thermometer(u, num_levels)
    assert torch.equal(comparators.float() @ thermometer_weights(num_levels), value)
    one_hot = fire_one_hot(u, num_levels)
    assert one_hot.sum(-1).max() <= 1
    index = torch.arange(1, num_levels + 1)
    assert torch.equal((one_hot * torch.cat([index, -index])).sum(-1), expected.long())


@pytest.mark.parametrize("num_levels", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half(dtype, num_levels) -> None:
    u = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    u = u[~u.isnan()]  # what remains holds ±0, the denormals, ±inf and all ties
    assert_forms_agree(u, num_levels)


@pytest.mark.parametrize("num_levels", LEVELS)
@pytest.mark.parametrize(("dtype", "integer"), [(torch.float32, torch.int32), (torch.float64, torch.int64)])
def test_around_every_edge(dtype, integer, num_levels) -> None:
    centres = [c * 2.0**-k for k in range(num_levels + 2) for c in (0.5, 0.75, 1.0, 1.5)]
    bits = torch.tensor(centres, dtype=dtype).view(integer)
    near = (bits[:, None] + torch.arange(-3, 4)).to(integer).flatten().view(dtype)
    tiny = torch.finfo(dtype).tiny
    special = torch.tensor([0.0, tiny, tiny / 4, torch.finfo(dtype).max, math.inf], dtype=dtype)
    u = torch.cat([near, special])
    assert_forms_agree(torch.cat([u, -u]), num_levels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@settings(max_examples=60)
@given(
    values=st.lists(st.floats(allow_nan=False, width=16), min_size=1, max_size=20),
    num_levels=st.integers(1, 14),
    scale=st.sampled_from([1.0, 2.0**-5, 2.0**-13, 2.0**-20]),
)
def test_any_float(dtype, values, num_levels, scale) -> None:
    assert_forms_agree(torch.tensor(values, dtype=dtype) * scale, num_levels)


@settings(max_examples=60)
@given(value=st.floats(-4, 4), num_levels=st.integers(1, 14))
def test_no_level_is_nearer(value, num_levels) -> None:
    u = torch.tensor([value], dtype=torch.float64)
    fired = fire_exponent(u, num_levels).item()
    levels = [2.0 ** (1 - i) for i in range(1, num_levels + 1)]
    if fired == 0:
        assert abs(value) < 0.75 * levels[-1]
    else:
        chosen = math.copysign(2.0 ** (1 - abs(fired)), fired)
        assert abs(value - chosen) == min(abs(value - s * level) for level in levels for s in (1, -1))
