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
from spikecast.graph.calls import batch_size
from spikecast.graph.program import Program
from spikecast.graph.structure import unflatten
from spikecast.network.answers import Place, batch_place, with_sizes
from spikecast.network.spiking import checked_steps
from spikecast.network.states import NeuronStates

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork

Stop = Callable[[Any, Any], object]


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
        places = [batch_place(execution, out) for out in program.outputs]
        answer = [_placed(*leaf, left, samples) for leaf in zip(answer or now, now, places, strict=True)]
        if t == 1 and stop is None:
            _check_scores(now, places, samples)
        if t > 1:
            sure = _sure(program, previous, now, confidence, stop, len(left))
            used[left[sure]] = t
            stay = (~sure).nonzero().squeeze(1)
            if len(stay) == 0:
                break
            if len(stay) < len(left):
                now = [_taken(value, place, stay, len(left)) for value, place in zip(now, places, strict=True)]
                left = left[stay]
                states.keep_samples(execution, stay)
                execution.keep(stay)
        previous = now
    return unflatten(program.output_structure, with_sizes(program, tensors, answer)), used


def _by_sample(value: Tensor, place: Place, count: int) -> Tensor:
    """The batch as an axis of its own, the one behind the batch axis."""
    axis, outer = place
    assert axis is not None
    return torch.unflatten(value, axis, (outer, count, -1))


def _placed(old: Any, now: Any, place: Place, left: Tensor, samples: int) -> Any:
    """The answer so far with the present one for the samples that are left."""
    axis = place[0]
    if axis is None or len(left) == samples:
        return now.clone() if isinstance(now, Tensor) else now
    split = _by_sample(old, place, samples)
    parts = split.index_copy(axis + 1, left, _by_sample(now, place, len(left)))
    return parts.flatten(axis, axis + 2)


def _taken(value: Any, place: Place, index: Tensor, count: int) -> Any:
    axis = place[0]
    if axis is None:
        return value
    return _by_sample(value, place, count).index_select(axis + 1, index).flatten(axis, axis + 2)


def _check_scores(now: list[Any], places: Sequence[Place], samples: int) -> None:
    scores = now[0] if len(now) == 1 and isinstance(now[0], Tensor) else None
    if scores is None or scores.dim() != 2 or places[0][0] != 0 or len(scores) != samples:
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
    if not isinstance(sure, Tensor) or sure.dtype != torch.bool or sure.shape != (count,):
        raise DataError(f"stop(previous, now) must return a bool tensor of shape ({count},), one per sample")
    return sure
