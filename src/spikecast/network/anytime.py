"""Each sample leaves as soon as its answer is sure; the batch really shrinks.

On class scores [B, C], also those that an answer holds as "logits", a sample is sure once its largest softmax reaches
the confidence and its class is the one of the step before. Any other answer needs `stop(previous, now) -> bool[B]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spikecast.batches import Call, samples_in
from spikecast.errors import ConfigError, DataError
from spikecast.graph.calls import batch_size
from spikecast.graph.structure import flatten, unflatten
from spikecast.network.answers import Place, batch_place, class_scores, with_sizes
from spikecast.network.states import NeuronStates

if TYPE_CHECKING:
    from spikecast.network.base import Network
    from spikecast.network.spiking import SpikingNetwork

Stop = Callable[[Any, Any], Tensor]
_NO_SCORES = "anytime knows when class scores [B, C] are sure; for another answer give stop=function(previous, now)"


@torch.no_grad()
def anytime(
    network: SpikingNetwork, call: Call, confidence: float, stop: Stop | None, total: int
) -> tuple[Any, Tensor]:
    """The answer of every sample at the step it was sure, or at the last, and the number of steps it took."""
    _check_confidence(confidence)
    planned, tensors = network.prepare_call(*call)
    program = planned.program
    samples = batch_size(program, tensors)
    if samples is None or not network.foldable:
        raise DataError("anytime needs samples that do not depend on each other, and this network's do; use steps()")
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
            scores = _scores(unflatten(program.output_structure, now), samples)
            if next(place for leaf, place in zip(now, places, strict=True) if leaf is scores)[0] != 0:
                raise DataError(_NO_SCORES)
        if t > 1:
            before, after = (unflatten(program.output_structure, leaves) for leaves in (previous, now))
            sure = _sure(before, after, confidence, stop, len(left))
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


@torch.no_grad()
def anytime_together(
    network: Network, call: Call, confidence: float, stop: Stop | None, total: int
) -> tuple[Any, Tensor]:
    """The same for a network whose samples cannot leave the batch: it runs on until the last one is sure."""
    _check_confidence(confidence)
    samples = samples_in(call, network.batch_axis)
    answer: list[Tensor | None] = []
    previous: Any = None
    form: Any = None
    for t, now in network.steps(*call[0], num_steps=total, **call[1]):
        leaves, form = flatten(now)
        if t == 1 and stop is None:
            _scores(now, samples)
        if not all(leaf is None or _has_samples(leaf, samples) for leaf in leaves):
            raise DataError("anytime keeps an answer for each sample, so it needs tensors [B, ...]; use steps()")
        if t == 1:
            answer = [None if leaf is None else leaf.clone() for leaf in leaves]
            used = torch.full((samples,), total, device=next(leaf.device for leaf in leaves if leaf is not None))
            unsure = torch.ones_like(used, dtype=torch.bool)
        else:
            for kept, leaf in zip(answer, leaves, strict=True):
                if kept is not None:
                    kept[unsure] = leaf[unsure]
            sure = _sure(previous, now, confidence, stop, samples) & unsure
            used[sure], unsure = t, unsure & ~sure
            if not bool(unsure.any()):
                break
        previous = now
    return unflatten(form, answer), used


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


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence <= 1:
        raise ConfigError(f"confidence={confidence!r} must be a number above 0 up to 1")


def _has_samples(leaf: Any, samples: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == samples


def _scores(answer: Any, samples: int) -> Tensor:
    """The class scores [B, C] of an answer."""
    found = class_scores(answer)
    if len(found) != 1 or len(found[0]) != samples:
        raise DataError(_NO_SCORES)
    return found[0]


def _sure(previous: Any, now: Any, confidence: float, stop: Stop | None, count: int) -> Tensor:
    """Which samples are sure, bool [count]."""
    if stop is None:
        top, winner = _scores(now, count).softmax(1).max(1)
        return (top >= confidence) & (winner == _scores(previous, count).argmax(1))
    sure: object = stop(previous, now)
    if not isinstance(sure, Tensor) or sure.dtype != torch.bool or sure.shape != (count,):
        raise DataError(f"stop(previous, now) must return a bool tensor of shape ({count},), one per sample")
    return sure
