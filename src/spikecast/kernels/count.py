"""Counting spikes on the way: what a site's spikes cost its receivers, in whole numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.kernels.layout import broadcasts


class Count(NamedTuple):
    """What to count of the spikes at each step.

    fan_out  how many receivers each neuron has: integers that broadcast against one step; one each, unless given
    axis     an axis of one step; what lies along it is counted for each place on the other axes (matmul pairs)
    """

    fan_out: Tensor | None = None
    axis: int | None = None


class Counts(NamedTuple):
    """What was counted at each step.

    fired     spikes, int64 [T, burst]: first ones of a burst, second ones, ...
    weighted  all of them times their fan-out, int64 [T]
    along     spikes along the axis, int64 [T, ...] without the axis
    held      the same of estimates other than zero, after the step
    """

    fired: Tensor
    weighted: Tensor
    along: Tensor | None
    held: Tensor | None


class Encoded(NamedTuple):
    """What a neuron's receivers hold after each step; its signed levels and the counts, where they were asked for.

    `leaked` is the second state of neurons with a leak, as in `theory.neuron.Encoded`.
    """

    estimates: Tensor
    levels: Tensor | None
    counts: Counts | None
    leaked: Tensor | None = None


def count_levels(levels: Tensor, estimates: Tensor, count: Count) -> Counts:
    """The counts of levels [T, burst, ...] and estimates [T, ...]: the definition, and the way without a kernel."""
    fan_out, axis = resolve(count, estimates[0])
    fired = levels != 0
    number = fired.flatten(2).sum(2) if fired.dim() > 2 else fired.long()
    pulses = fired.sum(1)
    weighted = (pulses * fan_out).reshape(len(levels), -1).sum(1)
    if axis is None:
        return Counts(number, weighted, None, None)
    return Counts(number, weighted, pulses.sum(1 + axis), (estimates != 0).sum(1 + axis))


def resolve(count: Count, step: Tensor) -> tuple[Tensor, int | None]:
    """The fan-outs as int64, and the axis counted from the front."""
    fan_out = torch.ones((), dtype=torch.int64, device=step.device) if count.fan_out is None else count.fan_out
    inner = tuple(step.shape)
    if fan_out.is_floating_point() or fan_out.is_complex():
        raise DataError(f"fan-outs of type {fan_out.dtype}; give whole numbers")
    if not broadcasts(tuple(fan_out.shape), inner):
        raise DataError(f"fan-outs {tuple(fan_out.shape)} do not broadcast against a step {inner}")
    if count.axis is not None and not -len(inner) <= count.axis < len(inner):
        raise DataError(f"a step {inner} has no axis {count.axis} to count along")
    axis = None if count.axis is None else count.axis % len(inner)
    return fan_out.to(step.device, torch.int64), axis
