"""Mean average precision from notes of each image, held against pycocotools over all images."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from spikecast.measure import Detection

Image = dict[str, Tensor]


def image(seed: int, boxes: int, *, found: bool) -> Image:
    """Boxes on a small grid, so that they overlap by halves; scores that tie; some crowds among the true ones."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, 6, (boxes, 2), generator=g).float()
    size = torch.randint(1, 6, (boxes, 2), generator=g).float()
    made = {"boxes": torch.cat([corner, corner + size], 1), "labels": torch.randint(1, 4, (boxes,), generator=g)}
    if found:
        return {**made, "scores": torch.randint(1, 6, (boxes,), generator=g) / 8}
    return {**made, "iscrowd": (torch.rand(boxes, generator=g) < 0.2).long()}


def by_pycocotools(found: list[Image], wanted: list[Image]) -> dict[str, float]:
    coco, evaluation = pytest.importorskip("pycocotools.coco"), pytest.importorskip("pycocotools.cocoeval")

    def entries(images: list[Image], more: str) -> list[dict[str, Any]]:
        rows = [
            (i, box, label, value)
            for i, at in enumerate(images)
            for box, label, value in zip(at["boxes"].tolist(), at["labels"].tolist(), at[more].tolist(), strict=True)
        ]
        return [
            {
                "id": n,
                "image_id": i,
                "category_id": label,
                "bbox": [x, y, right - x, bottom - y],
                "area": (right - x) * (bottom - y),
                "iscrowd": 0,
                {"scores": "score"}.get(more, more): value,
            }
            for n, (i, (x, y, right, bottom), label, value) in enumerate(rows, 1)
        ]

    with contextlib.redirect_stdout(io.StringIO()):
        data = coco.COCO()
        data.dataset = {
            "info": {},
            "images": [{"id": i} for i in range(len(wanted))],
            "annotations": entries(wanted, "iscrowd"),
            "categories": [{"id": label} for label in (1, 2, 3)],
        }
        data.createIndex()
        scored = evaluation.COCOeval(data, data.loadRes(entries(found, "scores")), "bbox")
        scored.evaluate()
        scored.accumulate()
        scored.summarize()
    return {"map": max(float(scored.stats[0]), 0.0), "map50": max(float(scored.stats[1]), 0.0)}


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=6).filter(
        lambda images: any(image[1] for image in images)
    ),
    st.data(),
)
def test_it_is_that_of_pycocotools(images: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Also of images that are drawn twice or never, from the notes that were made once."""
    found = [image(seed, number, found=True) for seed, number, _ in images]
    wanted = [image(seed + 1, number, found=False) for seed, _, number in images]
    task = Detection()
    notes = json.loads(json.dumps(task.notes(found, wanted)))  # as records of interrupted evaluations keep them
    assert task.result(notes) == pytest.approx(by_pycocotools(found, wanted), abs=1e-12)
    drawn = data.draw(st.lists(st.integers(0, len(images) - 1), min_size=1, max_size=8))
    if any(len(found[i]["labels"]) for i in drawn):
        again = by_pycocotools([found[i] for i in drawn], [wanted[i] for i in drawn])
        assert task.result([notes[i] for i in drawn]) == pytest.approx(again, abs=1e-12)


def test_more_boxes_than_count() -> None:
    """COCO takes the hundred surest of a class in an image: the right one is the last of 101, or the first."""
    right = torch.tensor([[0.0, 0, 8, 8]])
    boxes = torch.cat([torch.tensor([[20.0, 20, 30, 30]]).repeat(100, 1), right])
    labels, wanted = torch.ones(101).long(), [{"boxes": right, "labels": torch.ones(1).long()}]
    task = Detection()
    for scores, score in ((torch.linspace(1, 0.5, 101), 0.0), (torch.linspace(0.5, 1, 101), 1.0)):
        notes = task.notes([{"boxes": boxes, "labels": labels, "scores": scores}], wanted)
        assert task.result(notes) == pytest.approx({"map": score, "map50": score})


@pytest.mark.parametrize("boxes", [0, 3])
def test_images_without_boxes(boxes: int) -> None:
    """Nothing found scores 0, also where nothing is there."""
    task = Detection()
    assert task.result(task.notes([image(0, 0, found=True)], [image(1, boxes, found=False)])) == {"map": 0, "map50": 0}
    assert task.result(task.notes([image(0, boxes, found=True)], [image(1, 0, found=False)])) == {"map": 0, "map50": 0}
