"""Detection: COCO's mean average precision, by pycocotools."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from spikecast.errors import DataError, MissingExtraError
from spikecast.measure.tasks import Decode, Metric, decoded


@dataclass(frozen=True)
class Detection:
    """Boxes: a list of {"boxes", "scores", "labels"} per image against a list of {"boxes", "labels"}.

    Boxes are x, y, x, y. The figures are COCO's mean average precision ("map", "map50"), by pycocotools.

    Args:
        decode: decode(answer) makes that list out of what the model returns, where that is something else.

    Example:
        >>> def decode(answer):  # one box for each image, of the likeliest class
        ...     box = torch.tensor([[0.0, 0.0, 8.0, 8.0]])
        ...     return [{"boxes": box, "scores": row.max()[None], "labels": row.argmax()[None]} for row in answer]
        >>> list(measure.Detection(decode=decode).metrics)
        ['map', 'map50']
    """

    decode: Decode | None = None
    metrics: ClassVar = {"map": Metric(), "map50": Metric()}
    draws: ClassVar = 40  # each is a mean average precision of all images

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """Boxes of each image, found and true."""
        found, wanted = self._found(answer), _images(target, ("boxes", "labels"), "give such targets")
        if len(found) != len(wanted):
            raise DataError(f"{len(found)} answers for {len(wanted)} images; give one target for each")
        return [
            {
                "found": [f["boxes"].tolist(), f["labels"].tolist(), f["scores"].tolist()],
                "true": [w["boxes"].tolist(), w["labels"].tolist(), _crowds(w)],
            }
            for f, w in zip(found, wanted, strict=True)
        ]

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        """Boxes the ANN is more sure of than not that are found again: same class, half overlapping."""
        found = []
        for ours, theirs in zip(self._found(answer), self._found(reference), strict=True):
            again, sure = 0, theirs["scores"] > 0.5
            for box, label in zip(theirs["boxes"][sure], theirs["labels"][sure], strict=True):
                alike = ours["boxes"][ours["labels"] == label]
                again += bool(len(alike)) and float(_overlap(box, alike).max()) > 0.5
            found.append((float(again), float(sure.sum())))
        return found

    def _found(self, answer: Any) -> list[dict[str, Tensor]]:
        made = decoded(self.decode, answer)
        return _images(made, ("boxes", "labels", "scores"), "Detection(decode=...) makes it out of other answers")

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        try:
            from pycocotools.coco import COCO  # type: ignore[import-untyped, unused-ignore]
            from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped, unused-ignore]
        except ImportError as error:
            raise MissingExtraError(
                'mean average precision needs pycocotools; pip install "spikecast[vision]"'
            ) from error
        truth, found = _coco(notes)
        if not truth["annotations"] or not found:
            return {"map": 0.0, "map50": 0.0}
        with contextlib.redirect_stdout(io.StringIO()):  # it talks
            data = COCO()
            data.dataset = truth
            data.createIndex()
            scored = COCOeval(data, data.loadRes(found), "bbox")
            scored.evaluate()
            scored.accumulate()
            scored.summarize()
        return {"map": max(float(scored.stats[0]), 0.0), "map50": max(float(scored.stats[1]), 0.0)}


def _images(given: Any, keys: Sequence[str], remedy: str) -> list[dict[str, Tensor]]:
    if not isinstance(given, list | tuple) or not all(isinstance(a, dict) and set(keys) <= set(a) for a in given):
        raise DataError(f"detection needs a list of dicts with {', '.join(keys)}, one per image; {remedy}")
    return [{k: torch.as_tensor(v).cpu() for k, v in a.items() if k in (*keys, "iscrowd")} for a in given]


def _crowds(target: dict[str, Tensor]) -> list[int]:
    return [int(c) for c in target["iscrowd"]] if "iscrowd" in target else [0] * len(target["boxes"])


def _coco(images: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The boxes as COCO writes them: x, y, width, height."""
    annotations: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    classes: set[int] = set()
    for number, image in enumerate(images):
        for box, label, crowd in zip(*image["true"], strict=True):
            x, y, right, bottom = box
            size = [x, y, right - x, bottom - y]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": label,
                    "bbox": size,
                    "area": size[2] * size[3],
                    "iscrowd": crowd,
                }
            )
            classes.add(label)
        for box, label, score in zip(*image["found"], strict=True):
            x, y, right, bottom = box
            found.append(
                {"image_id": number, "category_id": label, "bbox": [x, y, right - x, bottom - y], "score": score}
            )
            classes.add(label)
    categories = [{"id": c, "name": str(c)} for c in sorted(classes)]
    truth = {
        "info": {},
        "images": [{"id": i} for i in range(len(images))],
        "annotations": annotations,
        "categories": categories,
    }
    return truth, found


def _overlap(box: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of one box with others."""
    low, high = torch.maximum(box[:2], others[:, :2]), torch.minimum(box[2:], others[:, 2:])
    inside = (high - low).clamp_min(0).prod(1)
    return inside / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - inside).clamp_min(1e-9)
