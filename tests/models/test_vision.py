"""Models of torchvision and timm, with random weights: they convert whole, and the answer comes closer with time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast import Config


class Case(NamedTuple):
    """A model, the size of its images, how many of them are in a batch, and the scale of its thresholds."""

    build: Callable[[], nn.Module]
    size: int
    samples: int = 8
    scale: float = 1.0

    @property
    def config(self) -> Config:
        return Config(num_steps=16, burst=1, thresholds="quantile", threshold_scale=self.scale)


def vision(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return partial(torchvision.models.get_model, name, weights=None, **settings)


def segmenter(name: str) -> Callable[[], nn.Module]:
    return vision(name, weights_backbone=None, num_classes=5)


def vit_b_16(image_size: int, depth: int) -> nn.Module:
    model = torchvision.models.VisionTransformer(image_size, 16, depth, num_heads=12, hidden_dim=768, mlp_dim=3072)
    nn.init.normal_(model.heads.head.weight, std=0.02)  # torchvision's head starts at 0, and so would every answer
    return model


def from_timm(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return partial(timm.create_model, name, pretrained=False, **settings)


# Where some fifty convolutions follow each other, the inputs of the last still move after many steps, and range counts
# for more than resolution: scale=2. Their images leave the last layers more than a few pixels, since random weights
# amplify errors, the more so the less there is to average over.
SMALL = {
    "resnet18": Case(vision("resnet18"), 64),
    "squeezenet1_1": Case(vision("squeezenet1_1"), 64),
    "mobilenet_v2": Case(vision("mobilenet_v2"), 96, scale=2),
    "vit_b_16": Case(partial(vit_b_16, 48, depth=2), 48),
    "vit_small": Case(from_timm("vit_small_patch16_224", img_size=64, depth=2), 64),
    "deit_tiny": Case(from_timm("deit_tiny_patch16_224", img_size=64, depth=3), 64),
    "eva02_tiny": Case(from_timm("eva02_tiny_patch14_224", img_size=56, depth=3), 56),
    "swin_tiny": Case(from_timm("swin_tiny_patch4_window7_224", img_size=56, depths=(2, 2), num_heads=(3, 6)), 56),
    "convnext_tiny": Case(from_timm("convnext_tiny", depths=(1, 1, 2, 1)), 64),
    "efficientnet_lite0": Case(from_timm("efficientnet_lite0"), 96, scale=2),
}

WHOLE = {
    "resnet18": Case(vision("resnet18"), 128),
    "resnet34": Case(vision("resnet34"), 128),
    "resnet50": Case(vision("resnet50"), 128, scale=2),
    "vgg16": Case(vision("vgg16"), 64),
    "vgg16_bn": Case(vision("vgg16_bn"), 64),
    "squeezenet1_1": Case(vision("squeezenet1_1"), 224),
    "mobilenet_v2": Case(vision("mobilenet_v2"), 128, scale=2),
    "densenet121": Case(vision("densenet121"), 96),
    "fcn_resnet50": Case(segmenter("fcn_resnet50"), 96, samples=4, scale=2),
    "deeplabv3_resnet50": Case(segmenter("deeplabv3_resnet50"), 96, samples=4, scale=2),
    "vit_b_16": Case(partial(vit_b_16, 224, depth=4), 224, samples=4),
    "vit_small": Case(from_timm("vit_small_patch16_224"), 224, samples=4),
    "vit_base": Case(from_timm("vit_base_patch16_224", depth=4), 224, samples=4),
    "deit_tiny": Case(from_timm("deit_tiny_patch16_224"), 224, samples=4),
    "eva02_tiny": Case(from_timm("eva02_tiny_patch14_224"), 224, samples=4),
    "swin_tiny": Case(from_timm("swin_tiny_patch4_window7_224"), 224, samples=4),
    "convnext_tiny": Case(from_timm("convnext_tiny"), 96, samples=4),
    "mobilenetv3": Case(from_timm("mobilenetv3_small_100"), 160),
    "efficientnet_lite0": Case(from_timm("efficientnet_lite0"), 128, scale=2),
}


def images(case: Case, count: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Two batches to calibrate on and another to ask, of images that differ in more than noise.

    Noise alone has the same mean everywhere, and a BatchNorm behind a global pool would blow its rounding up.
    """
    total = 2 * case.samples + count
    shapes = F.interpolate(torch.randn(total, 3, 4, 4), case.size, mode="bilinear")
    all_images = 1.5 * shapes + 0.5 * torch.randn(total, 3, case.size, case.size)
    first, second, held_out = all_images.split([case.samples, case.samples, count])
    return first, second, held_out


# Of some that test_coverage.py tries each time, or of each other.
KIN = ("squeezenet1_1", "mobilenet_v2", "vit_b_16", "convnext_tiny", "efficientnet_lite0")


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=[pytest.mark.slow] * (name in KIN)) for name, case in SMALL.items()]
)
def test_small(case: Case, examine, settled) -> None:
    first, second, held_out = images(case)
    examine(settled(case.build(), first, second), [first, second], held_out, config=case.config)


@pytest.mark.slow
@pytest.mark.parametrize("case", WHOLE.values(), ids=WHOLE)
def test_whole(case: Case, examine, settled) -> None:
    first, second, held_out = images(case)
    examine(settled(case.build(), first, second), [first, second], held_out, config=case.config, exact_steps=False)


@pytest.mark.parametrize("thresholds", ["auto", "search"])
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
def test_searched_thresholds(kind: str, thresholds: Any, examine, settled) -> None:
    build = {
        "cnn": lambda: torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10),
        "transformer": from_timm("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=10),
    }[kind]
    first, second, held_out = images(Case(build, 32))
    config = Config(num_steps=16, burst=1, num_levels=8, thresholds=thresholds)
    examine(settled(build(), first, second), [first, second], held_out, config=config)
