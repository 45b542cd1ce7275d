"""Classification: how often the right class has the highest score, or one of the five highest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.graph.structure import flatten


class Classification:
    """Top-1 and top-5 of scores [B, C] against class numbers [B]."""

    metrics = ("top1", "top5")

    def note(self, answer: Any, target: Any) -> list[int]:
        """Right at the first place, right among five, and all."""
        found = scores(answer)
        labels = torch.as_tensor(target, device=found.device)
        if labels.shape != found.shape[:1]:
            raise DataError(
                f"labels of shape {tuple(labels.shape)} do not fit scores {tuple(found.shape)}; give one each"
            )
        if labels.is_floating_point() or (
            labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < found.shape[1]
        ):
            raise DataError(
                f"labels from {labels.min()} to {labels.max()} do not fit {found.shape[1]} classes; "
                "give class numbers from 0, and a model with as many classes"
            )
        best = found.topk(min(5, found.shape[1]), 1).indices == labels.unsqueeze(1)
        return [int(best[:, 0].sum()), int(best.sum()), len(labels)]

    def same(self, answer: Any, reference: Any) -> tuple[float, float]:
        """Samples of the same class."""
        equal = scores(answer).argmax(1) == scores(reference).argmax(1)
        return float(equal.sum()), float(len(equal))

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        first, five, number = (sum(note[i] for note in notes) for i in range(3))
        return {"top1": first / max(number, 1), "top5": five / max(number, 1)}


def scores(answer: Any) -> Tensor:
    """The scores [B, C] in an answer: the only such tensor, or the one called logits."""
    if isinstance(answer, dict) and isinstance(answer.get("logits"), Tensor):
        answer = answer["logits"]
    found = [
        leaf for leaf in flatten(answer)[0] if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim() == 2
    ]
    if len(found) != 1:
        raise DataError(f"an answer holds {len(found)} tensors of scores [B, C]; classification needs just one")
    return found[0]
