"""Real networks for the command line: models, data and tasks out of the folder that SPIKECAST_REAL names.

    spikecast eval examples/real_networks.py:yolo --data examples/real_networks.py:coco \
        --task examples/real_networks.py:boxes --trust

A file like this is all that a network of your own needs: a function that makes the model, one that yields batches of
(input, target), and, where the model's answer is not what a task scores, one that makes the task. docs/measure.md has a
command for each network, with the figures it prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.measure import Detection, Segmentation

home = os.environ.get("SPIKECAST_REAL")
if not home:
    raise SystemExit("set SPIKECAST_REAL to the folder of the real networks: it has a loaders.py")
if home not in sys.path:
    sys.path.append(home)
import loaders  # noqa: E402
from real_detection import COCO_IDS, SIDE  # noqa: E402

Batches = Iterator[tuple[Tensor, Any]]


def batches(read: Any, split: str, size: int, **options: Any) -> Batches:
    """Thresholds are found from the folder's calibration samples, which no figure is measured on."""
    x, y = read("calibration" if split == "train" else split, **options)
    for i in range(0, len(x), size):
        yield x[i : i + size], y[i : i + size]


# -- detection: Yolo-FastestV2 answers with one tensor [B, 95, 605]


def yolo() -> nn.Module:
    return loaders.yolo_fastest_model()


def coco(split: str = "val") -> Batches:
    """Boxes as x, y, x, y in pixels of the 352 x 352 images, which are stretched."""
    for images, truth in batches(loaders.coco_images, split, 10):
        yield images, [target(entry) for entry in truth]


def target(entry: dict[str, Any]) -> dict[str, Tensor]:
    corners = torch.tensor([[x, y, x + w, y + h] for x, y, w, h in (o["bbox"] for o in entry["objects"])])
    return {
        "boxes": corners.reshape(-1, 4) * SIDE / torch.tensor([entry["width"], entry["height"]] * 2),
        "labels": torch.tensor([o["category_id"] for o in entry["objects"]], dtype=torch.int64),
        "iscrowd": torch.tensor([o["iscrowd"] for o in entry["objects"]], dtype=torch.int64),
    }


def boxes() -> Detection:
    """Reads the 605 places as boxes, drops those that overlap a better one, and names classes by COCO's numbers."""

    def decode(raw: Tensor) -> list[dict[str, Tensor]]:
        return [
            {"boxes": found[:, :4], "scores": found[:, 4], "labels": torch.tensor(COCO_IDS)[found[:, 5].long()]}
            for found in loaders.detections(raw)
        ]

    return Detection(decode=decode)


# -- segmentation: ESPNet has twelve scores for each pixel, the last one for "none of the eleven"


def espnet() -> nn.Module:
    return loaders.espnet_model()


def camvid(split: str = "val") -> Batches:
    return batches(loaders.camvid_images, split, 4)


def masks() -> Segmentation:
    """Eleven classes count. Pixels of the twelfth are left out in the target, and wrong in an answer."""
    return Segmentation(decode=lambda scores: scores.argmax(1), classes=11, ignored=11)


# -- a language model, keywords, and digits of an event camera: their answers are scores already


def stories() -> nn.Module:
    return loaders.stories_model()


def tokens(split: str = "val") -> Batches:
    return batches(loaders.stories_tokens, split, 8)


def kws() -> nn.Module:
    return loaders.kws_model()


def keywords(split: str = "val") -> Batches:
    return batches(loaders.kws_inputs, split, 100)


def nmnist() -> nn.Module:
    return loaders.nmnist_model()


def events(split: str = "val") -> Batches:
    """Ten frames of 30 ms each: [B, 10, 2, 34, 34]."""
    return batches(loaders.nmnist_frames, split, 50, mean=False)
