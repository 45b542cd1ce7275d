"""Inputs that change over time, such as the frames of an event camera: one step per frame.

The input's encoded value is the mean of the frames so far, which is what rate coding means by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spikecast.batches import Call
from spikecast.errors import DataError
from spikecast.graph.structure import unflatten
from spikecast.network.answers import stacked
from spikecast.network.states import NeuronStates

if TYPE_CHECKING:
    from spikecast.network.base import StatesOf
    from spikecast.network.spiking import SpikingNetwork


def mean_call(call: Call, time_axis: int) -> Call:
    """The call with the mean over all frames in place of each sequence: what the ANN is asked."""
    split(call, time_axis)  # refuses what holds no frames
    args, kwargs = call
    mean = {name: v.mean(time_axis) if _is_sequence(v) else v for name, v in kwargs.items()}
    return tuple(v.mean(time_axis) if _is_sequence(v) else v for v in args), mean


def run_frames(
    network: SpikingNetwork, call: Call, time_axis: int, num_steps: int | None, states_of: StatesOf | None = None
) -> Any:
    """The answer after each frame; floating-point arguments hold their frames on `time_axis`."""
    first, named, frames = split(call, time_axis)
    plan, tensors = network.prepare_call(first, named)
    network.check([f for frame in frames for f in frame])
    total = network.config.steps_or(len(frames) if num_steps is None else num_steps)
    if total > len(frames):
        raise DataError(f"num_steps={total} exceeds the {len(frames)} frames given; take at most one step a frame")
    execution = network.execution(plan.program, moving_inputs=True)
    states = NeuronStates(network) if states_of is None else states_of(network, execution)
    mean = [torch.zeros_like(f) for f in frames[0]]
    answers = []
    for t in range(1, total + 1):
        mean = [m + (f - m) / t for m, f in zip(mean, frames[t - 1], strict=True)]
        floating = iter(mean)
        execution.start([next(floating) if x.is_floating_point() else x for x in tensors])
        states.t = t
        answers.append(execution.advance(states))
    return unflatten(plan.program.output_structure, [stacked(leaf) for leaf in zip(*answers, strict=True)])


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def split(call: Call, axis: int) -> tuple[tuple[Any, ...], dict[str, Any], list[list[Tensor]]]:
    """A call with the first frame in place of each sequence, and all frames by step."""
    args, kwargs = call
    sequences = [v for v in (*args, *kwargs.values()) if _is_sequence(v)]
    fits = type(axis) is int and all(-v.dim() <= axis < v.dim() for v in sequences)
    if not fits or len({v.shape[axis] for v in sequences}) != 1:
        raise DataError(f"time_axis={axis!r}: every floating-point input needs that axis, of one length")
    length = sequences[0].shape[axis]
    if length == 0:
        raise DataError(f"time_axis={axis} has length 0; give at least one frame")
    first = tuple(v.select(axis, 0) if _is_sequence(v) else v for v in args)
    named = {k: v.select(axis, 0) if _is_sequence(v) else v for k, v in kwargs.items()}
    frames = [[v.select(axis, t) for v in sequences] for t in range(length)]
    return first, named, frames
