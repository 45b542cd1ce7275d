"""Semantic segmentation: the mean over classes of intersection over union, and the share of right pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from spikecast.errors import DataError
from spikecast.measure.tasks import Metric

IGNORED = 255  # pixels without a class, as Pascal VOC marks borders


class Segmentation:
    """Scores [B, C, H, W] (or a dict with them under "out") against class numbers [B, H, W]."""

    metrics: ClassVar = {"miou": Metric(), "pixels": Metric()}
    draws = 400

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """Of each image and class: pixels that are right, that are of the class, and that were given it."""
        labels = torch.stack(list(target)) if isinstance(target, list | tuple) else target
        classes, number = self._classes(answer, labels.shape[-2:])
        kept = labels != IGNORED
        if labels.is_floating_point() or (
            bool(kept.any()) and not 0 <= int(labels[kept].min()) <= int(labels[kept].max()) < number
        ):
            raise DataError(
                f"labels up to {labels[kept].max()} do not fit {number} classes; 255 marks pixels without one"
            )
        return [
            [_counts(c[k][c[k] == y[k]], number), _counts(y[k], number), _counts(c[k], number)]
            for c, y, k in zip(classes.cpu(), labels.long().cpu(), kept.cpu(), strict=True)
        ]

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        """Pixels of the same class."""
        found, wanted = (self._classes(a, None)[0] for a in (answer, reference))
        return [(float(x), float(wanted[0].numel())) for x in (found == wanted).flatten(1).sum(1)]

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        right, true, given = torch.tensor(notes).sum(0)
        union = true + given - right
        present = union > 0
        return {
            "miou": float((right[present] / union[present]).double().mean()) if bool(present.any()) else 0.0,
            "pixels": float(right.sum() / true.sum().clamp_min(1)),
        }

    def _classes(self, answer: Any, size: Sequence[int] | None) -> tuple[Tensor, int]:
        found = answer.get("out") if isinstance(answer, dict) else answer
        if not isinstance(found, Tensor) or found.dim() != 4:
            raise DataError('segmentation needs scores [B, C, H, W], as a tensor or under "out" of a dict')
        if size is not None and found.shape[-2:] != tuple(size):
            found = functional.interpolate(found, tuple(size), mode="bilinear", align_corners=False)
        return found.argmax(1), found.shape[1]


def _counts(classes: Tensor, number: int) -> list[int]:
    counts: list[int] = torch.bincount(classes.flatten(), minlength=number).tolist()
    return counts
