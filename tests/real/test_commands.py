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
from spikecast.sources import Preparation
from spikecast.sources.images import read_pixels

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


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """What `spikecast eval` prints as JSON."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the folder is not ours

    def run(*words: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as end:
            main(["eval", *words, "--json"])
        said = capsys.readouterr()
        assert end.value.code == 0, said.err
        found: dict[str, Any] = json.loads(said.out)
        return found

    return run


@pytest.mark.parametrize("name", CASES)
def test_the_command_line_gives_pythons_figures(real_loaders: ModuleType, evaluated, name: str) -> None:
    given = CASES[name]
    task = f"{EXAMPLE}:{given.own}" if given.own else str(given.task(real_loaders))
    words = [f"{EXAMPLE}:{name}", "--data", f"{EXAMPLE}:{given.data}", "--task", task, "--trust"]
    words += ["--limit", str(given.samples), "--calibrate", str(given.samples), "-T", str(given.steps)]
    words += [] if given.time_axis is None else ["--time-axis", str(given.time_axis)]
    found = evaluated(*words)
    python, ann = in_python(real_loaders, given)
    wanted = json.loads(json.dumps(python.to_json()))
    assert found["samples"] == given.samples
    for key in ("steps", "ann", "agreement", "intervals", "less_ann", "energy"):
        assert found[key] == wanted[key], key
    assert {figure: found["ann"][figure] for figure in ann} == pytest.approx(ann, rel=1e-5)


@pytest.mark.parametrize("form", ["WordNet", "number"])
def test_a_part_of_imagenet_by_its_folders(real: Path, real_loaders: ModuleType, evaluated, tmp_path, form) -> None:
    """Images of some classes in folders of either name; the labels are those of the list they come with."""
    from timm.data.imagenet_info import ImageNetInfo

    numbers = list(ImageNetInfo("imagenet-1k").label_names())  # type: ignore[no-untyped-call, unused-ignore]
    rows = [line.split() for line in (real / "imagenet" / "val.txt").read_text().splitlines()[:24]]
    for image, label in rows:
        folder = tmp_path / (numbers[int(label)] if form == "WordNet" else label)
        folder.mkdir(exist_ok=True)
        (folder / image).symlink_to(real / "imagenet" / "images" / image)
    weights = str(real / "weights" / "vit_tiny.safetensors")
    words = ("timm:vit_tiny_patch16_224", "--weights", weights, "--data", f"imagefolder:{tmp_path}")
    found = evaluated(*words, "--thresholds", "quantile", "--calibrate", "8")
    prepare = Preparation(224, 224 / 248, (0.5,) * 3, (0.5,) * 3, "bicubic")  # as timm rounds 224 / 0.9
    x = torch.stack([prepare(read_pixels(real / "imagenet" / "images" / image)) for image, _ in rows])
    with torch.no_grad():
        right = real_loaders.vit_tiny_model()(x).argmax(1) == torch.tensor([int(label) for _, label in rows])
    assert found["ann"]["top1"] == float(right.double().mean())
    assert found["ann"]["top1"] > 0.5
