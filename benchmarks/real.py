"""The real networks of SPIKECAST_REAL: how each is made, its data, and how its answers are scored, sample by sample."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

Note = list[float]  # what is known of one sample, enough to score any set of them
Task = Literal["classes", "masks", "boxes", "tokens", "values"]
CLASSES = 11  # of the masks


@dataclass(frozen=True)
class Real:
    """A network, and how many samples calibrate and measure it. Measured is on the second half of `val`."""

    model: str
    data: str
    prepare: str | None = None
    task: Task = "classes"
    calibration: int = 64
    samples: int = 400
    batch: int = 20

    def build(self) -> nn.Module:
        made: nn.Module = getattr(loaders(), self.model)()
        return made

    def read(self, split: Literal["calibration", "chosen on", "reported"]) -> tuple[Tensor, Any]:
        """Inputs and truths: for calibration, of the first half of `val`, or of the second."""
        options = {} if self.prepare is None else {"prepare": self.prepare}
        x, y = getattr(loaders(), self.data)("calibration" if split == "calibration" else "val", **options)
        if split == "calibration":
            return x[: self.calibration], y[: self.calibration]
        half = len(x) // 2
        part = slice(half, half + self.samples) if split == "reported" else slice(0, min(half, self.samples))
        return x[part], y[part]

    def notes(self, answers: Tensor, reference: Tensor, truth: Any) -> list[Note]:
        """What each sample of a batch says; the reference are the ANN's answers."""
        return NOTES[self.task](answers, reference, truth)

    def score(self, notes: Sequence[Note]) -> float:
        """More is better: the task's own score, in per cent; perplexity and squared error with a minus."""
        return SCORES[self.task](notes)

    def agreement(self, notes: Sequence[Note]) -> float | None:
        """The share of samples that get the ANN's class; None for other tasks."""
        return math.fsum(note[1] for note in notes) / len(notes) if self.task == "classes" else None


def _classes(answers: Tensor, reference: Tensor, truth: Tensor) -> list[Note]:
    said, own = answers.argmax(-1), reference.argmax(-1)
    p, q = answers.double().log_softmax(-1), reference.double().log_softmax(-1)
    nats = (q.exp() * (q - p)).sum(-1)
    return torch.stack([(said == truth).double(), (said == own).double(), nats], 1).tolist()


def _masks(answers: Tensor, _reference: Tensor, truth: Tensor) -> list[Note]:
    notes = []
    for said, labels in zip(answers.argmax(1), truth, strict=True):
        known = labels < CLASSES
        pairs = labels[known] * (CLASSES + 1) + said[known].clamp(max=CLASSES)
        notes.append(torch.bincount(pairs, minlength=CLASSES * (CLASSES + 1)).tolist())
    return notes


def _boxes(answers: Tensor, _reference: Tensor, truth: Sequence[Any]) -> list[Note]:
    """Pixels and scores to four digits, which is what records keep."""
    found = loaders().detections(answers)
    digits = [[float(f"{x:.4g}") for x in boxes.flatten().tolist()] for boxes in found]
    return [[entry["id"], *boxes] for entry, boxes in zip(truth, digits, strict=True)]


def _tokens(answers: Tensor, reference: Tensor, truth: Tensor) -> list[Note]:
    losses = nn.functional.cross_entropy(answers.flatten(0, 1), truth.flatten(), reduction="none").view_as(truth)
    p, q = answers.double().log_softmax(-1), reference.double().log_softmax(-1)
    return torch.stack([losses.double().mean(1), (q.exp() * (q - p)).sum(-1).mean(1)], 1).tolist()


def _values(answers: Tensor, _reference: Tensor, truth: Tensor) -> list[Note]:
    return (answers - truth).square().flatten(1).double().mean(1, keepdim=True).tolist()


def _mean(notes: Sequence[Note]) -> float:
    return math.fsum(note[0] for note in notes) / len(notes)


def _union(notes: Sequence[Note]) -> float:
    """Mean intersection over union."""
    table = torch.tensor(notes, dtype=torch.float64).sum(0).view(CLASSES, CLASSES + 1)
    hit, true, said = table[:, :CLASSES].diagonal(), table.sum(1), table[:, :CLASSES].sum(0)
    return 100 * (hit / (true + said - hit))[true > 0].mean().item()


@cache
def _detection() -> Any:
    from spikecast.measure import Detection  # not above: benchmarks.peers reads this module where spikecast is not

    return Detection()


@cache
def _entries() -> dict[int, Any]:
    return {entry["id"]: entry for entry in loaders().coco_images("val")[1]}


@cache
def _matched(note: tuple[float, ...]) -> Any:
    """Which boxes of an image fit, once for all the sets in which it is drawn."""
    entry, side = _entries()[int(note[0])], sys.modules["real_detection"].SIDE
    true = torch.tensor([o["bbox"] for o in entry["objects"]], dtype=torch.float64).view(-1, 4)
    kinds = [sys.modules["real_detection"].COCO_IDS.index(o["category_id"]) for o in entry["objects"]]
    boxes = torch.tensor(note[1:]).view(-1, 6)
    scale = torch.tensor([entry["width"], entry["height"]] * 2) / side
    found = {"boxes": boxes[:, :4] * scale, "scores": boxes[:, 4], "labels": boxes[:, 5].long()}
    crowds = torch.tensor([o["iscrowd"] for o in entry["objects"]])
    corners = torch.cat([true[:, :2], true[:, :2] + true[:, 2:]], 1)
    wanted = {"boxes": corners, "labels": torch.tensor(kinds), "iscrowd": crowds}
    return _detection().notes([found], [wanted])[0]


def _precision(notes: Sequence[Note]) -> float:
    """Mean average precision at IoU 0.5; a sample that was drawn twice is two images."""
    return 100 * float(_detection().result([_matched(tuple(note)) for note in notes])["map50"])


NOTES: Mapping[Task, Callable[[Any, Any, Any], list[Note]]] = {
    "classes": _classes,
    "masks": _masks,
    "boxes": _boxes,
    "tokens": _tokens,
    "values": _values,
}
SCORES: Mapping[Task, Callable[[Sequence[Note]], float]] = {
    "classes": lambda notes: 100 * _mean(notes),
    "masks": _union,
    "boxes": _precision,
    "tokens": lambda notes: -math.exp(_mean(notes)),
    "values": lambda notes: -_mean(notes),
}
CIFAR: dict[str, Any] = {"data": "cifar10_images", "calibration": 200, "samples": 4000, "batch": 100}
NETWORKS = {
    "ResNet-20": Real("cifar_resnet20_model", prepare="torch", **CIFAR),
    "VGG-16": Real("cifar_vgg16_model", prepare="unit", **CIFAR),
    "ResNet-8": Real("resnet8_model", prepare="raw", **CIFAR),
    "SqueezeNet": Real("squeezenet_model", "imagenet_images", "torch"),
    "ViT-Tiny": Real("vit_tiny_model", "imagenet_images", "half"),
    "ResNet-50": Real("resnet50_model", "imagenet_images", "caffe"),
    "KWS": Real("kws_model", "kws_inputs", calibration=200, samples=400, batch=100),
    "VWW": Real("vww_model", "vww_images", calibration=32),
    "N-MNIST": Real("nmnist_model", "nmnist_frames", calibration=200),
    "ToyCar": Real("toycar_model", "toycar_inputs", task="values"),
    "Stories": Real("stories_model", "stories_tokens", task="tokens", calibration=16, batch=8),
    "YOLO": Real("yolo_fastest_model", "coco_images", task="boxes", calibration=32, batch=10),
    "ESPNet": Real("espnet_model", "camvid_images", task="masks", calibration=16, batch=4),
}


@cache
def loaders() -> Any:
    """The module that builds the networks and reads their data."""
    home = os.environ.get("SPIKECAST_REAL")
    if not home or not (Path(home) / "loaders.py").is_file():
        raise SystemExit("set SPIKECAST_REAL to the folder of the real models (it has a loaders.py)")
    spec = importlib.util.spec_from_file_location("real_loaders", Path(home) / "loaders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if home not in sys.path:
        sys.path.append(home)  # it imports its neighbours by name
    spec.loader.exec_module(module)
    return module
