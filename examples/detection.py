"""A detector: its forward sorts and filters boxes, which no graph can hold, so its regions are converted.

    python examples/detection.py [--pretrained] [--data coco:/data/coco] [--limit 100]

Without data it runs a small FCOS with random weights on random pictures.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torchvision
from torchvision.models.detection import FCOS
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

import spikecast
from spikecast import Config, measure
from spikecast.sources import Preparation, open_data


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pretrained", action="store_true")
    parser.add_argument("--data")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--steps", type=int, default=Config.num_steps)
    given = parser.parse_args(words)
    torch.manual_seed(0)
    data: Any
    if given.data:
        weights = "DEFAULT" if given.pretrained else None
        model = torchvision.models.detection.fcos_resnet50_fpn(weights=weights, weights_backbone=None).eval()
        plain = Preparation(size=None, mean=(0, 0, 0), std=(1, 1, 1))  # the model normalises and scales by itself
        data = open_data(given.data, preparation=plain, batch_size=2, limit=given.limit)
    else:
        backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None)
        model = FCOS(backbone, 3, min_size=64, max_size=64, score_thresh=0.0, detections_per_img=5).eval()
        boxes = {"boxes": torch.tensor([[4.0, 4, 40, 40]]), "labels": torch.tensor([1])}
        data = [([torch.rand(3, 64, 64)], [boxes])]

    snn = spikecast.convert(model, ((x,) for x, _ in data), Config(num_steps=given.steps), regions="auto")
    print(snn.report)
    print(measure.evaluate(snn, data, task="detection", model=model).table())


if __name__ == "__main__":
    main()
