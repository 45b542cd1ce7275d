"""What hypothesis draws for several tests, and values that a file should not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from spikecast import Config
from spikecast.kernels import count as kernels
from spikecast.theory.neuron import Encoded, Neuron
from tests.nets import Recipe

INF = math.inf
SEEDS = st.integers(0, 2**31 - 1)


# -- networks made of nets.Blocks


def recipes(
    bends: Sequence[str | None], between: Sequence[str | None], weights: Sequence[str], joins: Sequence[str], most: int
) -> st.SearchStrategy[Recipe]:
    """A bend, something between, and something weighted or a join: what decides where neurons go is their order."""
    last = st.one_of(st.sampled_from(weights), st.tuples(st.sampled_from(joins), st.integers(0, 7)))
    step = st.tuples(st.sampled_from(bends), st.sampled_from(between), last)
    return st.lists(step, min_size=1, max_size=most).map(lambda steps: [b for step in steps for b in step if b])


RECIPES = recipes(
    bends=("relu", "relu", "relu6", "clamp", "gelu", "silu", "leaky", None),
    between=("group norm", "max pool", "average", "gate", None, None),
    weights=("conv", "grouped", "norm", "up", "attend", "last"),
    joins=("add", "concat", "product"),
    most=3,
)
LINEAR_RECIPES = recipes(  # neurons are joined by linear ops alone
    bends=("relu", "relu6", "clamp", None),
    between=("average", None, None),
    weights=("conv", "grouped", "norm", "up"),
    joins=("add", "concat"),
    most=4,
)


def configs(
    num_steps: int, num_levels: Sequence[int], starts: Sequence[float] = (0.0,), bursts: Sequence[int] = (1,)
) -> st.SearchStrategy[Config]:
    """Of what a burst starts with, only as much as it may."""
    return st.builds(
        lambda num_levels, burst, initial_potential, **settings: Config(
            num_levels=num_levels,
            burst=burst,
            initial_potential=initial_potential if burst == 1 else initial_potential * 2.0**-num_levels,
            **settings,
        ),
        num_steps=st.just(num_steps),
        num_levels=st.sampled_from(num_levels),
        burst=st.sampled_from(bursts),
        coding=st.sampled_from(["differential", "differential", "rate"]),
        thresholds=st.sampled_from(["auto", "quantile"]),
        granularity=st.sampled_from(["channel", "layer", "neuron"]),
        initial_potential=st.sampled_from(starts),
        encode_input=st.booleans(),
    )


# -- neurons, and tensors as they may lie in memory

SPECIAL = torch.tensor([0.0, -0.0, 0.75, -0.375, 1e-40, -1e-45, 3e38, -3e38, INF, -INF])


def neurons(
    intervals: Sequence[tuple[float, float]],
    levels: Sequence[int] = range(1, 15),
    starts: Sequence[float] = (0.0, 0.0, 0.3, -0.5),
    boundaries: Sequence[float] = (0.75, 0.75, 0.72, 1.0),
    signed: bool = False,
    bursts: Sequence[int] = (1, 1, 2, 3, 14),
    leaks: Sequence[float] = (0.0,),
) -> st.SearchStrategy[Neuron]:
    """Neurons of both codings; differential ones are signed, others in part, or all of them."""
    return st.builds(
        lambda coding, num_levels, burst, negative, interval, start, boundary, leak: Neuron(
            coding=coding,
            num_levels=num_levels,
            burst=burst,
            signed=signed or negative or coding == "differential",
            lower=interval[0],
            upper=interval[1],
            initial_potential=start if burst == 1 else start * 2.0**-num_levels,
            firing_boundary=boundary,
            leak=leak,
        ),
        st.sampled_from(["differential", "rate"]),
        st.sampled_from(levels),
        st.sampled_from(bursts),
        st.booleans(),
        st.sampled_from(intervals),
        st.sampled_from(starts),
        st.sampled_from(boundaries),
        st.sampled_from(leaks),
    )


def lay_out(x: Tensor, how: str, seed: int = 0) -> Tensor:
    """The same numbers (but for "still" and "expanded") in another order in memory."""
    order = torch.randperm(x.dim(), generator=torch.Generator().manual_seed(seed)).tolist()
    match how:
        case "still":
            return x[0].expand(x.shape)
        case "channels_last" if x.dim() == 5:
            return x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, x.shape[:2])
        case "any_order":
            return x.permute(order).contiguous().permute([order.index(d) for d in range(x.dim())])
        case "time_inside" if x.dim() > 2:
            return x.movedim(0, 1).contiguous().movedim(1, 0)
        case "gaps":
            wide = x.new_full([size + 1 + d % 2 for d, size in enumerate(x.shape)], math.nan)
            return wide[tuple(slice(1, 1 + size) for size in x.shape)].copy_(x)
        case "strided":
            return x.new_full((*x.shape, 2), math.nan)[..., 0].copy_(x)
        case "expanded" if x.dim() > 1:
            return x[:, :1].expand(x.shape)
    return x


def assert_same_bits(found: Encoded | kernels.Encoded, wanted: Encoded | kernels.Encoded) -> None:
    """What two forms of the neuron answer is equal to the bit."""
    assert found.estimates.dtype == wanted.estimates.dtype
    integer = torch.int32 if found.estimates.dtype == torch.float32 else torch.int16
    assert torch.equal(found.estimates.contiguous().view(integer), wanted.estimates.contiguous().view(integer))
    assert (found.levels is None) == (wanted.levels is None)
    assert found.levels is None or wanted.levels is None or torch.equal(found.levels, wanted.levels)
