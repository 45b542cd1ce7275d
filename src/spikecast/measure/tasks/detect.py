"""Detection: COCO's mean average precision. pycocotools matches the boxes of each image, once."""

from __future__ import annotations

import contextlib
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from spikecast.errors import DataError, MissingExtraError
from spikecast.measure.tasks import Decode, Metric, decoded

OVERLAPS = np.linspace(0.5, 0.95, 10)  # intersection over union, as all of these: COCO's
RECALLS = np.linspace(0, 1, 101)
MOST = 100  # boxes of a class in an image


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
    draws: ClassVar = 400

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """Of each image, how many boxes there are of each class, and which of the found ones fit one of them."""
        found, wanted = self._found(answer), _images(target, ("boxes", "labels"), "give such targets")
        if len(found) != len(wanted):
            raise DataError(f"{len(found)} answers for {len(wanted)} images; give one target for each")
        return _matched(found, wanted)

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
        """Classes count alike; those that no image has do not count. 0 where no image has any box."""
        found = np.array([box for note in notes for box in note["found"]]).reshape(-1, 4)
        true: Counter[int] = Counter()
        for note in notes:
            true.update(dict(note["true"]))
        classes = sorted(label for label, boxes in true.items() if boxes)
        if not classes:
            return {"map": 0.0, "map50": 0.0}
        found = found[np.lexsort((-found[:, 1], found[:, 0]))]  # by class, then the surest first, then as given
        places = np.searchsorted(found[:, 0], [(label, label + 1) for label in classes])
        precisions = np.stack([_precision(found[a:b], true[c]) for c, (a, b) in zip(classes, places, strict=True)])
        return {"map": float(precisions.mean()), "map50": float(precisions[:, 0].mean())}


def _precision(found: Any, true: int) -> Any:
    """The average precision of one class for each overlap, as COCO has it: the mean over 101 recalls.

    At each recall stands the highest precision that any recall from there on has, and 0 where none is reached.
    """
    hit, ignored = (found[:, column, None].astype(int) >> np.arange(len(OVERLAPS)) & 1 for column in (2, 3))
    right, wrong = (np.cumsum(kind & (1 - ignored), 0) for kind in (hit, 1 - hit))
    precision = right / (right + wrong + np.spacing(1))
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    reached = np.concatenate([highest, np.zeros((1, len(OVERLAPS)))])
    first = [np.searchsorted(recall, RECALLS) for recall in (right / true).T]
    return np.array([reached[rows, i].mean() for i, rows in enumerate(first)])


def _matched(found: Sequence[dict[str, Tensor]], wanted: Sequence[dict[str, Tensor]]) -> list[dict[str, Any]]:
    """Notes of images: [class, boxes] of what is there; [class, score, fits, ignored] of what was found.

    The last two are numbers whose bit i is about the overlap OVERLAPS[i]. A box on a crowd is ignored.
    """
    try:
        from pycocotools.coco import COCO  # type: ignore[import-untyped, unused-ignore]
        from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise MissingExtraError('mean average precision needs pycocotools; pip install "spikecast[vision]"') from error
    truth, boxes = _coco(found, wanted)
    notes: list[dict[str, Any]] = [{"true": [], "found": []} for _ in found]
    with contextlib.redirect_stdout(io.StringIO()):  # it talks
        data = COCO()
        data.dataset = truth
        data.createIndex()
        matching = COCOeval(data, data.loadRes(boxes) if boxes else COCO(), "bbox")
        matching.params.imgIds = [image["id"] for image in truth["images"]]
        matching.params.catIds = [category["id"] for category in truth["categories"]]
        matching.params.iouThrs = OVERLAPS
        matching.params.areaRng, matching.params.areaRngLbl = [[0, math.inf]], ["all"]
        matching.params.maxDets = [MOST]
        matching.evaluate()
    for seen in filter(None, matching.evalImgs):  # one for each class in each image
        note, label = notes[seen["image_id"]], int(seen["category_id"])
        note["true"].append([label, int(np.sum(np.array(seen["gtIgnore"]) == 0))])
        bits = 1 << np.arange(len(OVERLAPS))[:, None]
        fits, ignored = ((kind * bits).sum(0).tolist() for kind in (seen["dtMatches"] > 0, seen["dtIgnore"]))
        rows = zip(seen["dtScores"], fits, ignored, strict=True)
        note["found"] += [[label, score, fit, out] for score, fit, out in rows]
    return notes


def _images(given: Any, keys: Sequence[str], remedy: str) -> list[dict[str, Tensor]]:
    if not isinstance(given, list | tuple) or not all(isinstance(a, dict) and set(keys) <= set(a) for a in given):
        raise DataError(f"detection needs a list of dicts with {', '.join(keys)}, one per image; {remedy}")
    return [{k: torch.as_tensor(v).cpu() for k, v in a.items() if k in (*keys, "iscrowd")} for a in given]


def _coco(
    found: Sequence[dict[str, Tensor]], wanted: Sequence[dict[str, Tensor]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The boxes as COCO writes them: x, y, width, height."""
    annotations, boxes = ([one for i, at in enumerate(images) for one in _entries(i, at)] for images in (wanted, found))
    for number, entry in enumerate(annotations, 1):
        entry["id"] = number
    truth = {
        "info": {},
        "images": [{"id": i} for i in range(len(wanted))],
        "annotations": annotations,
        "categories": [{"id": label} for label in sorted({entry["category_id"] for entry in annotations + boxes})],
    }
    return truth, boxes


def _entries(number: int, image: dict[str, Tensor]) -> Iterator[dict[str, Any]]:
    columns = {"boxes": "bbox", "labels": "category_id", "scores": "score", "iscrowd": "iscrowd"}
    values = {columns[name]: image[name].tolist() for name in columns if name in image}
    for row in zip(*values.values(), strict=True):
        entry = {"image_id": number, "iscrowd": 0, **dict(zip(values, row, strict=True))}
        x, y, right, bottom = entry["bbox"]
        width, height = right - x, bottom - y
        yield {**entry, "bbox": [x, y, width, height], "area": width * height}


def _overlap(box: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of one box with others."""
    low, high = torch.maximum(box[:2], others[:, :2]), torch.minimum(box[2:], others[:, 2:])
    inside = (high - low).clamp_min(0).prod(1)
    return inside / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - inside).clamp_min(1e-9)
