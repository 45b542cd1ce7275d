"""Reconstruction: how far an answer is from a target of the same shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.graph.structure import flatten
from spikecast.measure.tasks import Metric


class Reconstruction:
    """A tensor [B, ...] against one of the same shape: the root of squared error over the target's power."""

    metrics: ClassVar = {"error": Metric("", more=False)}
    draws = 400

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """Of each sample: the squared error, and the power of the target."""
        return [list(pair) for pair in _squares(answer, torch.as_tensor(target))]

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        """How much of the ANN's answer is there: its power less the squared error, if any is left."""
        sides = ([x for x in flatten(side)[0] if isinstance(x, Tensor)] for side in (answer, reference))
        found = [_squares(*pair) for pair in zip(*sides, strict=False)] or [_squares(answer, reference)]
        sums = [[math.fsum(part) for part in zip(*parts, strict=True)] for parts in zip(*found, strict=True)]
        return [(max(power - error, 0.0), power) for error, power in sums]

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        error, power = (math.fsum(note[i] for note in notes) for i in range(2))
        return {"error": math.sqrt(error / max(power, 1e-300))}


def _squares(answer: Any, target: Any) -> list[tuple[float, float]]:
    if not isinstance(answer, Tensor) or not isinstance(target, Tensor) or answer.shape != target.shape:
        shapes = " and ".join(
            str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__ for x in (answer, target)
        )
        raise DataError(f"an answer and its target are {shapes}; give two tensors of one shape")
    wanted = target.to(answer.device).double()
    error, power = ((x.square().flatten(1).sum(1)).tolist() for x in (answer.double() - wanted, wanted))
    return list(zip(error, power, strict=True))
