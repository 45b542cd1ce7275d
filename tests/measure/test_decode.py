"""Networks with raw outputs: decode= makes boxes or classes out of them, and the task scores those."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError, DataError
from spikecast.measure import Detection, Segmentation, evaluate
from spikecast.measure.tasks import Task, task_named


def boxes(raw: Tensor) -> list[dict[str, Any]]:
    """Rows of x, y, width, height, score: one box per image."""
    return [
        {"boxes": torch.cat([row[:2], row[:2] + row[2:4].abs()])[None], "scores": row[4:5].sigmoid(), "labels": [1]}
        for row in raw
    ]


def test_boxes_out_of_a_tensor() -> None:
    task = Detection(decode=boxes)
    assert isinstance(task, Task)
    raw = torch.tensor([[0.0, 0, 50, 50, 3], [10.0, 10, 20, 20, 3]])
    truth = [{"boxes": torch.tensor([[0.0, 0, 50, 50]]), "labels": [1]}] * 2
    notes = task.notes(raw, truth)
    assert notes == task_named("detection").notes(boxes(raw), truth)
    assert task.result(notes[:1])["map"] == pytest.approx(1.0)
    assert task.result(notes)["map50"] == pytest.approx(51 / 101)  # precision 1 up to half of the recall, then 0
    assert task.same(raw, raw[[0, 0]]) == [(1.0, 1.0), (0.0, 1.0)]


def test_a_whole_network_with_raw_boxes() -> None:
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 5)).eval()
    x = torch.rand(6, 5) * 20
    with torch.no_grad():
        truth = [{"boxes": b["boxes"], "labels": [1]} for b in boxes(model(x))]
    data = [(x[:3], truth[:3]), (x[3:], truth[3:])]
    snn = spikecast.convert(model, [x], Config(num_steps=2, burst=1, thresholds="quantile"))
    found = evaluate(snn, data, Detection(decode=boxes), model=model)
    plain = task_named("detection")
    wanted = [plain.result(plain.notes(boxes(y), truth)) for y in snn.run(x)]
    assert found.steps["map"] == pytest.approx([w["map"] for w in wanted])
    assert found.ann["map"] == pytest.approx(1.0)
    assert found.intervals["map"][-1].holds(found.steps["map"][-1])


def test_classes_of_pixels() -> None:
    """Two classes count; pixels that the answer gives to the third are wrong, and those of the target are left out."""
    answer = torch.tensor([[[0, 0, 1], [1, 2, 2]]])
    target = torch.tensor([[[0, 1, 1], [1, 1, 2]]])
    task = Segmentation(decode=lambda raw: raw["best"], classes=2, ignored=2)
    (note,) = task.notes({"best": answer}, target)
    assert note == [[1, 2], [1, 4], [2, 2]]  # right, true, given
    result = task.result([note])
    assert result["pixels"] == pytest.approx(3 / 5)
    assert result["miou"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert task.same({"best": answer}, {"best": target}) == [(4.0, 6.0)]
    scores = nn.functional.one_hot(answer, 3).permute(0, 3, 1, 2).float()
    assert Segmentation(classes=2, ignored=2).notes(scores, target) == [note]


@pytest.mark.parametrize(
    ("task", "answer", "message"),
    [
        (Segmentation(), torch.zeros(1, 2, 2).long(), r"how many classes there are; give Segmentation\(classes="),
        (Segmentation(classes=3), torch.zeros(1, 4, 4).long(), r"\(4, 4\) pixels for a target of \(2, 2\); decode"),
        (Segmentation(), torch.zeros(1, 2, 2), r"whole numbers \[B, H, W\]; Segmentation\(decode=\.\.\.\)"),
        (Segmentation(decode=lambda raw: raw["best"]), torch.zeros(1), r"decode fails .* line \d+ of .*test_decode"),
        (Detection(decode=lambda raw: raw.no_such()), torch.zeros(1), r"decode fails on an answer \(AttributeError"),
        (Detection(), torch.zeros(1), r"dicts with boxes, labels, scores, one per image; Detection\(decode="),
        (Detection(decode=lambda raw: [{"boxes": raw}]), torch.zeros(1, 4), "dicts with boxes, labels, scores"),
        (Detection(decode=lambda raw: [dict.fromkeys(("boxes", "labels", "scores"), raw)]), torch.zeros(0), "targets"),
    ],
)  # fmt: skip
def test_answers_that_do_not_fit(task: Any, answer: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        task.notes(answer, torch.zeros(1, 2, 2).long())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", [[{"boxes": 1}], None, [torch.zeros(2, 2), torch.zeros(3, 2)]])
def test_targets_that_are_no_classes_of_pixels(target: Any) -> None:
    with pytest.raises(DataError, match=r"needs targets of class numbers \[B, H, W\]"):
        Segmentation().notes(torch.zeros(2, 3, 2, 2), target)


PIXELS = torch.zeros(2, 2, 2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (PIXELS.float(), r"these are torch\.float32 of shape \(2, 2, 2\)"),
        (torch.full((2, 2, 2), 255.0), r"these are torch\.float32"),
        (PIXELS[0], r"these are torch\.int64 of shape \(2, 2\)"),
        ([], "needs targets of class numbers"),
        (PIXELS[:1], "2 answers for 1 targets; give one target for each image"),
        (PIXELS - 1, "labels from -1 to -1 do not fit 3 classes; 255 marks pixels without one"),
    ],
)
def test_targets_that_do_not_fit(target: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Segmentation().notes(torch.zeros(2, 3, 2, 2), target)


def test_answers_of_another_size_than_the_anns() -> None:
    with pytest.raises(DataError, match=r"pixels \(2, 2, 2\) against \(2, 4, 4\) of the ANN; let both"):
        Segmentation().same(torch.zeros(2, 3, 2, 2), torch.zeros(2, 3, 4, 4))


@pytest.mark.parametrize("classes", [0, -1, 2.0, True])
def test_a_number_of_classes_that_is_none(classes: Any) -> None:
    with pytest.raises(ConfigError, match=rf"classes={classes} must be a whole number from 1; leave it out"):
        Segmentation(classes=classes)
