"""Detection and segmentation through the command line, on four images written as COCO and Pascal VOC have them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

FACTORIES = """
import torch
from torch import nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.segmentation.fcn import FCN, FCNHead


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())

    def forward(self, x):
        return {"out": self.layers(x)}


def segmenter():
    torch.manual_seed(0)
    return FCN(Narrow(), FCNHead(16, 5)).eval()


def detector():
    torch.manual_seed(0)
    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    return FCOS(backbone, 3, min_size=64, max_size=64, score_thresh=0.0, detections_per_img=5).eval()
"""
SETTINGS = ["--trust", "--thresholds", "quantile", "-T", "3", "--batch-size", "2", "--json"]


@pytest.fixture(scope="module")
def written(home: Path) -> Path:
    (home / "nets.py").write_text(FACTORIES)
    torch.manual_seed(0)
    pixels = [(torch.rand(40, 48, 3) * 255).byte().numpy() for _ in range(4)]
    voc, coco = home / "voc" / "VOC2012", home / "coco"
    for folder in (voc / "JPEGImages", voc / "SegmentationClass", voc / "ImageSets" / "Segmentation"):
        folder.mkdir(parents=True)
    (coco / "val2017").mkdir(parents=True)
    (coco / "annotations").mkdir()
    (voc / "ImageSets" / "Segmentation" / "val.txt").write_text("\n".join(f"p{i}" for i in range(4)))
    images, boxes = [], []
    for i, picture in enumerate(pixels):
        Image.fromarray(picture).save(voc / "JPEGImages" / f"p{i}.jpg")
        Image.fromarray(picture).save(coco / "val2017" / f"{i}.png")
        classes = Image.new("P", (48, 40))
        classes.putdata([(x // 10 + i) % 5 for x in range(40 * 48)])
        classes.save(voc / "SegmentationClass" / f"p{i}.png")
        images.append({"id": i, "file_name": f"{i}.png"})
        boxes.append({"image_id": i, "category_id": 1 + i % 2, "bbox": [4, 4, 20, 16], "iscrowd": 0})
    document = {"images": images, "annotations": boxes, "categories": [{"id": c, "name": str(c)} for c in (1, 2)]}
    (coco / "annotations" / "instances_val2017.json").write_text(json.dumps(document))
    return home


def test_segmentation(cli: Callable[..., Any], written: Path) -> None:
    done = cli("eval", "nets.py:segmenter", "--data", "voc:voc", "--size", "32", *SETTINGS)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["samples"] == 4
    assert [len(found["steps"][name]) for name in ("miou", "pixels")] == [3, 3]
    assert 0 < found["ann"]["pixels"] < 1
    assert found["agreement"][-1] > 0.5


@pytest.mark.slow
def test_detection(cli: Callable[..., Any], written: Path) -> None:
    done = cli("eval", "nets.py:detector", "--data", "coco:coco", *SETTINGS)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["samples"] == 4
    assert [len(found["steps"][name]) for name in ("map", "map50")] == [3, 3]


def test_an_annotation_of_an_image_that_is_not_there(cli: Callable[..., Any], written: Path) -> None:
    path = written / "coco" / "annotations" / "instances_val2017.json"
    document = json.loads(path.read_text())
    document["images"].append({"id": 9, "file_name": "nine.png"})
    other = written / "broken"
    (other / "annotations").mkdir(parents=True, exist_ok=True)
    (other / "val2017").mkdir(exist_ok=True)
    (other / "annotations" / path.name).write_text(json.dumps(document))
    done = cli("eval", "nets.py:detector", "--data", "coco:broken", *SETTINGS)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("spikecast: ")
    assert ".png" in done.err
    assert done.out == ""
