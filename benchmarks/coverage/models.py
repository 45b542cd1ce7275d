"""The networks that are tried: the smallest of every family of timm, and every one of torchvision."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

FAMILIES = Path(__file__).with_name("timm.csv")  # written by find.py
FIELDS = ("family", "name", "parameters", "size", "resized")

HEADED = ("backbone", "head")
TWO_STAGES = ("backbone", "rpn.head", "roi_heads.box_head", "roi_heads.box_predictor")
MASKS = ("roi_heads.mask_head", "roi_heads.mask_predictor")
POINTS = ("roi_heads.keypoint_head", "roi_heads.keypoint_predictor")
SIZE = 96  # of images where a network does not care
LARGER = 224
LARGE = ("vit_h_14", "regnet_y_128gf")  # over 600 M parameters: they come last


@dataclass(frozen=True)
class Case:
    """A network with random weights, the shape of one input, and the regions of one that cannot be captured whole."""

    library: str
    family: str
    name: str
    shape: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    regions: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.library}:{self.name}"

    @property
    def larger(self) -> Case | None:
        """The same with larger images, where they are small."""
        if len(self.shape) > 3 or self.regions or self.shape[-1] >= LARGER:
            return None
        settings = {key: LARGER if key in ("img_size", "image_size") else value for key, value in self.settings.items()}
        return replace(self, shape=(3, LARGER, LARGER), settings=settings)

    def build(self) -> nn.Module:
        if self.library == "timm":
            import timm

            made = timm.create_model(self.name, pretrained=False, **self.settings)
        else:
            import torchvision

            made = torchvision.models.get_model(self.name, weights=None, **self.settings)
        return fed(made)


def fed(model: nn.Module) -> nn.Module:
    """The model in eval mode, with some weights where a layer starts at 0: else it would answer 0 to everything."""
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd) and isinstance(weight, torch.Tensor):
            with torch.no_grad():
                if not weight.any():
                    nn.init.normal_(weight, std=0.02)
    return model.eval()


def cases() -> list[Case]:
    """All of them, the largest last."""
    found = [*of_timm(), *of_torchvision()]
    return sorted(found, key=lambda case: case.name in LARGE)


def of_timm() -> Iterator[Case]:
    with FAMILIES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            size = int(row["size"])
            settings = {"img_size": size} if row["resized"] == "yes" else {}
            yield Case("timm", row["family"], row["name"], (3, size, size), settings)


def of_torchvision() -> Iterator[Case]:
    from torchvision import models

    for kind, module in (("classification", models), ("segmentation", models.segmentation), ("video", models.video)):
        for name in models.list_models(module=module):
            yield Case("torchvision", kind, name, *_input(kind, name))
    for name in models.list_models(module=models.detection):
        shown = {"score_thresh": 0.0, "detections_per_img": 20}  # its best boxes, however unsure it is
        settings: dict[str, Any] = {"weights_backbone": None, "min_size": 128, "max_size": 256, **shown}
        if "rcnn" in name:
            settings = {"weights_backbone": None, "min_size": 128, "max_size": 256}
            settings |= {f"box_{key}": value for key, value in shown.items()}
            settings["rpn_post_nms_top_n_test"] = 50  # always so many: neurons need the same number at every step
        elif name.startswith("ssd"):
            settings = {"weights_backbone": None, **shown}
        yield Case("torchvision", "detection", name, (3, 128, 128), settings, _regions(name))


def _input(kind: str, name: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of a small input, and what the network must be told to take it."""
    if name.startswith("vit_"):
        return (3, 84, 84) if name == "vit_h_14" else (3, SIZE, SIZE), {
            "image_size": 84 if name == "vit_h_14" else SIZE
        }
    if kind == "video":
        return (3, 16, 224, 224) if name.startswith(("s3d", "mvit")) else (3, 8, 64, 64), {}
    if name in ("googlenet", "inception_v3"):
        return (3, SIZE, SIZE), {"init_weights": False}
    if name == "maxvit_t":
        return (3, 224, 224), {}
    return (3, SIZE, SIZE), {"weights_backbone": None} if kind == "segmentation" else {}


def _regions(name: str) -> tuple[str, ...]:
    if "rcnn" not in name:
        return HEADED
    return TWO_STAGES + (MASKS if name.startswith("mask") else POINTS if name.startswith("keypoint") else ())
