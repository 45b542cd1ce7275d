"""Real networks by one command line each: the figures of Python, and of the folder's own scores."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import spikecast
from spikecast import Config, measure
from spikecast.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "real_networks.py"


@dataclass(frozen=True)
class Given:
    """A network of the example and how it is measured in Python; all samples are one batch."""

    data: str
    samples: int
    model: str
    read: str
    task: Callable[[ModuleType], Any]
    ann: Callable[[ModuleType, Tensor, Any], dict[str, float]]  # the folder's own scores, as shares
    target: Callable[[Any], Any] = lambda y: y
    own: str = ""  # the task, where it is one of the example's
    steps: int = 1
    time_axis: int | None = None


def targets(truth: list[dict[str, Any]]) -> list[dict[str, Tensor]]:
    """Boxes in pixels of the image as the network sees it."""
    found = []
    for entry in truth:
        x, y, w, h = torch.tensor([o["bbox"] for o in entry["objects"]]).reshape(-1, 4).T
        wide, high = 352 / entry["width"], 352 / entry["height"]
        corners = torch.stack([x * wide, y * high, (x + w) * wide, (y + h) * high], 1)
        labels, crowds = (torch.tensor([o[key] for o in entry["objects"]]).long() for key in ("category_id", "iscrowd"))
        found.append({"boxes": corners, "labels": labels, "iscrowd": crowds})
    return found


def decode(loaders: ModuleType, raw: Tensor) -> list[dict[str, Tensor]]:
    numbers = torch.tensor(sys.modules["real_detection"].COCO_IDS)
    return [{"boxes": b[:, :4], "scores": b[:, 4], "labels": numbers[b[:, 5].long()]} for b in loaders.detections(raw)]


def shares(found: dict[str, float], **names: str) -> dict[str, float]:
    return {ours: found[theirs] / 100 for ours, theirs in names.items()}


def top1(loaders: ModuleType, answer: Tensor, labels: Tensor) -> dict[str, float]:
    return {"top1": loaders.top1(answer, labels) / 100}


CASES = {
    "yolo": Given(
        "coco",
        10,
        "yolo_fastest_model",
        "coco_images",
        task=lambda loaders: measure.Detection(decode=lambda raw: decode(loaders, raw)),
        ann=lambda real, raw, truth: shares(
            real.detection_scores(real.detections(raw), truth), map="map", map50="map50"
        ),
        target=targets,
        own="boxes",
    ),
    "espnet": Given(
        "camvid",
        2,
        "espnet_model",
        "camvid_images",
        task=lambda _: measure.Segmentation(classes=11, ignored=11),
        ann=lambda real, y, labels: shares(real.segmentation_scores(y, labels), miou="miou", pixels="pixel_accuracy"),
        own="masks",
    ),
    "stories": Given(
        "tokens",
        8,
        "stories_model",
        "stories_tokens",
        task=lambda _: "language",
        ann=lambda real, y, following: {"perplexity": real.perplexity(y, following)},
    ),
    "kws": Given("keywords", 100, "kws_model", "kws_inputs", task=lambda _: "classification", ann=top1),
    "nmnist": Given(
        "events",
        50,
        "nmnist_model",
        "nmnist_frames",
        task=lambda _: "classification",
        ann=top1,
        steps=10,
        time_axis=1,
    ),
}


def in_python(loaders: ModuleType, given: Given) -> tuple[measure.Evaluation, dict[str, float]]:
    """By convert and evaluate, and the ANN by the folder's own scores."""
    options = {} if given.time_axis is None else {"mean": False}
    parts = (getattr(loaders, given.read)(split, limit=given.samples, **options) for split in ("calibration", "val"))
    (train, labels), (x, y) = parts
    model = getattr(loaders, given.model)()
    still = [part if given.time_axis is None else part.mean(given.time_axis) for part in (train, x)]
    snn = spikecast.convert(model, [(still[0], labels)], Config(num_steps=given.steps))
    data = [(x, given.target(y))]
    found = measure.evaluate(snn, data, given.task(loaders), model=model, time_axis=given.time_axis)
    with torch.no_grad():
        return found, given.ann(loaders, model(still[1]), y)


@pytest.mark.parametrize("name", CASES)
def test_the_command_line_gives_pythons_figures(
    real_loaders: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = CASES[name]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the folder is not ours
    task = f"{EXAMPLE}:{given.own}" if given.own else str(given.task(real_loaders))
    words = ["eval", f"{EXAMPLE}:{name}", "--data", f"{EXAMPLE}:{given.data}", "--task", task, "--trust", "--json"]
    words += ["--limit", str(given.samples), "-T", str(given.steps)]
    words += [] if given.time_axis is None else ["--time-axis", str(given.time_axis)]
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr()
    assert end.value.code == 0, said.err
    found = json.loads(said.out)
    python, ann = in_python(real_loaders, given)
    wanted = json.loads(json.dumps(python.to_json()))
    assert found["samples"] == given.samples
    for key in ("steps", "ann", "agreement", "intervals", "less_ann", "energy"):
        assert found[key] == wanted[key], key
    assert {figure: found["ann"][figure] for figure in ann} == pytest.approx(ann, rel=1e-5)
