"""Classification: how often the right class has the highest score, or one of the five highest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.measure.tasks import Metric
from spikecast.network.answers import class_scores


class Classification:
    """Top-1 and top-5 of scores [B, C] against class numbers [B]."""

    metrics: ClassVar = {"top1": Metric(), "top5": Metric()}
    draws = 0

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """Whether each is right at the first place, and among five."""
        found = scores(answer)
        labels = torch.as_tensor(target, device=found.device)
        if labels.shape != found.shape[:1]:
            raise DataError(
                f"labels of shape {tuple(labels.shape)} do not fit scores {tuple(found.shape)}; give one class "
                "number for each sample (labels.argmax(1), if they are one-hot)"
            )
        if labels.is_floating_point() or (
            labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < found.shape[1]
        ):
            raise DataError(
                f"labels from {labels.min()} to {labels.max()} do not fit {found.shape[1]} classes; "
                "give class numbers from 0, and a model with as many classes"
            )
        best = found.topk(min(5, found.shape[1]), 1).indices == labels.unsqueeze(1)
        found_at: list[list[int]] = torch.stack([best[:, 0], best.any(1)], 1).int().tolist()
        return found_at

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        """Samples of the same class."""
        return [(float(x), 1.0) for x in scores(answer).argmax(1) == scores(reference).argmax(1)]

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        return {name: sum(note[i] for note in notes) / max(len(notes), 1) for i, name in enumerate(self.metrics)}


def scores(answer: Any) -> Tensor:
    """The scores [B, C] in an answer: the only such tensor, or the one called logits."""
    found = class_scores(answer)
    if len(found) != 1:
        raise DataError(
            f"an answer holds {len(found)} tensors of scores [B, C]; classification needs one, or give another task"
        )
    return found[0]
