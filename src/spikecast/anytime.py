"""Each sample leaves as soon as its answer is sure; the batch really shrinks.

On class scores [B, C] a sample is sure once its largest softmax reaches the confidence and its class is the one of the
step before. Any other answer needs `stop(previous, now) -> bool[B]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError
from spikecast.graph.inputs import batch_size
from spikecast.graph.program import Meta, Program, Ref
from spikecast.graph.structure import unflatten
from spikecast.network import NeuronStates, checked_steps

if TYPE_CHECKING:
    from spikecast.network import SpikingNetwork

Stop = Callable[[Any, Any], Tensor]


@torch.no_grad()
def anytime(
    network: SpikingNetwork,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    confidence: float = 0.95,
    stop: Stop | None = None,
    num_steps: int | None = None,
) -> tuple[Any, Tensor]:
    """The answer of every sample at the step it was sure, or at the last, and the number of steps it took."""
    if not 0 < confidence <= 1:
        raise ConfigError(f"confidence={confidence!r} must be a number above 0 up to 1")
    planned, tensors = network.prepare_call(args, kwargs)
    program = planned.program
    samples = batch_size(program, tensors)
    if samples is None or not network.foldable:
        raise DataError("anytime needs samples that do not depend on each other, and this network's do; use steps()")
    axes = _output_axes(program)
    total = checked_steps(network.config.num_steps if num_steps is None else num_steps)
    device = tensors[0].device
    left = torch.arange(samples, device=device)
    used = torch.full((samples,), total, device=device)
    answer: list[Any] = []
    previous: list[Any] = []
    execution, states = network.execution(program), NeuronStates(network)
    execution.start(tensors)
    for t in range(1, total + 1):
        states.t = t
        now = execution.advance(states)
        answer = _placed(answer, now, left, samples, axes)
        if t == 1 and stop is None:
            _check_scores(now, axes)
        if t > 1:
            sure = _sure(program, previous, now, confidence, stop, len(left))
            used[left[sure]] = t
            stay = (~sure).nonzero().squeeze(1)
            if len(stay) == 0:
                break
            if len(stay) < len(left):
                left = left[stay]
                states.keep_samples(execution, stay)
                execution.keep(stay)
                now = [_taken(v, a, stay) for v, a in zip(now, axes, strict=True)]
        previous = now
    return unflatten(program.output_structure, answer), used


def _output_axes(program: Program) -> list[int | None]:
    metas = [program.metas[o.name] if isinstance(o, Ref) else None for o in program.outputs]
    return [m.batch_axis if isinstance(m, Meta) else None for m in metas]


def _placed(answer: list[Any], now: list[Any], left: Tensor, samples: int, axes: Sequence[int | None]) -> list[Any]:
    """The answer so far with the present one for the samples that are left."""
    if not answer or len(left) == samples:
        return [v.clone() if isinstance(v, Tensor) else v for v in now]
    return [
        old.index_copy(axis, left, new) if axis is not None else new
        for old, new, axis in zip(answer, now, axes, strict=True)
    ]


def _taken(value: Any, axis: int | None, index: Tensor) -> Any:
    return value if axis is None else value.index_select(axis, index)


def _check_scores(now: list[Any], axes: Sequence[int | None]) -> None:
    if len(now) != 1 or not isinstance(now[0], Tensor) or now[0].dim() != 2 or axes[0] != 0:
        raise DataError(
            "anytime knows when class scores [B, C] are sure; for another answer give stop=function(previous, now)"
        )


def _sure(
    program: Program, previous: list[Any], now: list[Any], confidence: float, stop: Stop | None, count: int
) -> Tensor:
    if stop is None:
        top, winner = now[0].softmax(1).max(1)
        sure = (top >= confidence) & (winner == previous[0].argmax(1))
        return cast(Tensor, sure)
    form = program.output_structure
    sure = stop(unflatten(form, previous), unflatten(form, now))
    if sure.dtype != torch.bool or sure.shape != (count,):
        raise DataError(f"stop(previous, now) must return a bool tensor of shape ({count},), one per sample")
    return sure
