"""Semantic segmentation: the mean over classes of intersection over union, and the share of right pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spikecast.errors import DataError

IGNORED = 255  # pixels without a class, as Pascal VOC marks borders


class Segmentation:
    """Scores [B, C, H, W] (or a dict with them under "out") against class numbers [B, H, W]."""

    metrics = ("miou", "pixels")

    def note(self, answer: Any, target: Any) -> list[list[int]]:
        """How many pixels of each class [row] were given each class [column]."""
        labels = torch.stack(list(target)) if isinstance(target, list | tuple) else target
        classes, number = self._classes(answer, labels.shape[-2:])
        kept = labels != IGNORED
        if labels.is_floating_point() or (
            bool(kept.any()) and not 0 <= int(labels[kept].min()) <= int(labels[kept].max()) < number
        ):
            raise DataError(
                f"labels up to {labels[kept].max()} do not fit {number} classes; 255 marks pixels without one"
            )
        pairs = labels[kept].long().to(classes.device) * number + classes[kept.to(classes.device)]
        counts: list[list[int]] = torch.bincount(pairs, minlength=number * number).reshape(number, number).tolist()
        return counts

    def same(self, answer: Any, reference: Any) -> tuple[float, float]:
        """Pixels of the same class."""
        found, wanted = (self._classes(a, None)[0] for a in (answer, reference))
        return float((found == wanted).sum()), float(wanted.numel())

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        counts = torch.tensor(notes[0]) * 0
        for note in notes:
            counts = counts + torch.tensor(note)
        right, union = counts.diagonal(), counts.sum(0) + counts.sum(1) - counts.diagonal()
        present = union > 0
        return {
            "miou": float((right[present] / union[present]).double().mean()) if bool(present.any()) else 0.0,
            "pixels": float(right.sum() / counts.sum().clamp_min(1)),
        }

    def _classes(self, answer: Any, size: Sequence[int] | None) -> tuple[Tensor, int]:
        found = answer.get("out") if isinstance(answer, dict) else answer
        if not isinstance(found, Tensor) or found.dim() != 4:
            raise DataError('segmentation needs scores [B, C, H, W], as a tensor or under "out" of a dict')
        if size is not None and found.shape[-2:] != tuple(size):
            found = functional.interpolate(found, tuple(size), mode="bilinear", align_corners=False)
        return found.argmax(1), found.shape[1]
