"""Semantic segmentation: the mean over classes of intersection over union, and the share of right pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from spikecast.errors import ConfigError, DataError
from spikecast.measure.tasks import Decode, Metric, decoded
from spikecast.network.answers import named_part


@dataclass(frozen=True)
class Segmentation:
    """Classes of pixels: scores [B, C, H, W], or class numbers [B, H, W], against class numbers.

    Scores may be the answer itself, or what it calls "out" or "logits". The figures are the mean over classes of
    intersection over union ("miou") and the share of right pixels ("pixels").

    Args:
        decode: decode(answer) makes one of them out of what the model returns, where that is something else.
        classes: How many classes count, from 0 on; all that have scores, unless given. A pixel that is given another
            number is wrong.
        ignored: The number of pixels without a class in the target; Pascal VOC's unless given.

    Example:
        >>> list(measure.Segmentation(classes=21).metrics)
        ['miou', 'pixels']
    """

    decode: Decode | None = None
    classes: int | None = None
    ignored: int = 255
    metrics: ClassVar = {"miou": Metric(), "pixels": Metric()}
    draws: ClassVar = 400

    def __post_init__(self) -> None:
        if self.classes is not None and (type(self.classes) is not int or self.classes < 1):
            raise ConfigError(f"classes={self.classes!r} must be a whole number from 1; leave it out where all count")

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """Of each image and class: pixels that are right, that are of the class, and that were given it."""
        labels = _stacked(target)
        classes, number = self._classes(answer, labels.shape[-2:])
        if len(classes) != len(labels):
            raise DataError(f"{len(classes)} answers for {len(labels)} targets; give one target for each image")
        kept = labels != self.ignored
        if bool(kept.any()) and not 0 <= int(labels[kept].min()) <= int(labels[kept].max()) < number:
            least, most = int(labels[kept].min()), int(labels[kept].max())
            raise DataError(
                f"labels from {least} to {most} do not fit {number} classes; {self.ignored} marks pixels without one"
            )
        return [
            [_counts(c[k][c[k] == y[k]], number), _counts(y[k], number), _counts(c[k], number)]
            for c, y, k in zip(classes.cpu(), labels.long().cpu(), kept.cpu(), strict=True)
        ]

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        """Pixels of the same class."""
        found, wanted = (self._classes(a, None)[0] for a in (answer, reference))
        if found.shape != wanted.shape:
            raise DataError(
                f"pixels {tuple(found.shape)} against {tuple(wanted.shape)} of the ANN; let both answer in one size"
            )
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
        """The class of each pixel, and how many classes count."""
        made = decoded(self.decode, answer)
        found = named_part(made, "out", "logits")
        if isinstance(found, Tensor) and found.dim() == 3 and not found.is_floating_point():
            return self._given(found, size)
        if not isinstance(found, Tensor) or found.dim() != 4:
            raise DataError(
                'segmentation needs scores [B, C, H, W], as a tensor or called "out" or "logits", or whole numbers '
                "[B, H, W]; Segmentation(decode=...) makes them"
            )
        if size is not None and found.shape[-2:] != tuple(size):
            found = functional.interpolate(found, tuple(size), mode="bilinear", align_corners=False)
        return found.argmax(1), self.classes or found.shape[1]

    def _given(self, found: Tensor, size: Sequence[int] | None) -> tuple[Tensor, int]:
        if self.classes is None:
            raise DataError("class numbers do not say how many classes there are; give Segmentation(classes=...)")
        if size is not None and found.shape[-2:] != tuple(size):
            raise DataError(
                f"class numbers of {tuple(found.shape[-2:])} pixels for a target of {tuple(size)}; decode to that size"
            )
        return found.long(), self.classes


def _stacked(target: Any) -> Tensor:
    """The class numbers [B, H, W]."""
    parts = list(target) if isinstance(target, list | tuple) else [target]
    needed = "segmentation needs targets of class numbers [B, H, W], as one tensor or a list of equal ones"
    if not parts or not all(isinstance(part, Tensor) and part.shape == parts[0].shape for part in parts):
        raise DataError(f"{needed}; images of unequal sizes go one at a time")
    labels = torch.stack(parts) if isinstance(target, list | tuple) else target
    if labels.dim() != 3 or labels.is_floating_point() or labels.is_complex():
        raise DataError(f"{needed}; these are {labels.dtype} of shape {tuple(labels.shape)}")
    return labels


def _counts(classes: Tensor, number: int) -> list[int]:
    """How many pixels of each class that counts; those of another number count nowhere."""
    counts: list[int] = torch.bincount(classes[(classes >= 0) & (classes < number)], minlength=number).tolist()
    return counts
