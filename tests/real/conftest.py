"""Real networks on real images, measured once per setting and shown in one table at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config

# model: (loader, images, preparation), see README.md of the folder
MODELS = {
    "ResNet-20": ("cifar_resnet20_model", "cifar10_images", "torch"),
    "VGG-16": ("cifar_vgg16_model", "cifar10_images", "unit"),
    "SqueezeNet": ("squeezenet_model", "imagenet_images", "torch"),
    "ResNet-50": ("resnet50_model", "imagenet_images", "caffe"),
    "ViT-Tiny": ("vit_tiny_model", "imagenet_images", "half"),
}
BATCH = 32
_table: list[str] = []


@dataclass(frozen=True)
class Measured:
    """What a converted network did on the validation images, step by step (index 0 is t = 1)."""

    ann: float
    accuracy: list[float]
    agreement: list[float]
    spikes: list[float]  # per neuron, all steps so far, on the first images
    error: list[float]  # relative L2 error of the scores against the ANN's, in the median image
    right: Tensor  # bool [T, images]
    same: Tensor  # bool [T, images]: the ANN's answer


@dataclass(frozen=True)
class Case:
    model: nn.Module
    calibration: Tensor
    images: Tensor
    labels: Tensor
    answers: Tensor


@pytest.fixture(scope="session")
def case(real_loaders: ModuleType) -> Callable[[str, int, int], Case]:
    """A real model, its calibration images and some validation images with the ANN's answers."""
    known: dict[Any, Case] = {}

    def get(name: str, calibration: int, images: int) -> Case:
        key = (name, calibration, images)
        if key not in known:
            loader, source, prepare = MODELS[name]
            model, read = getattr(real_loaders, loader)(), getattr(real_loaders, source)
            train, _ = read("calibration", prepare, calibration)
            x, y = read("val", prepare, images)
            with torch.no_grad():
                answers = torch.cat([model(part) for part in x.split(BATCH)])
            known[key] = Case(model, train, x, y, answers)
        return known[key]

    return get


@pytest.fixture(scope="session")
def measured(case: Callable[[str, int, int], Case]) -> Callable[..., Measured]:
    """Convert, run over the validation images, and note a row of the table."""
    known: dict[Any, Measured] = {}

    def get(name: str, config: Config, *, images: int, calibration: int = 100) -> Measured:
        key = (name, str(config), images, calibration)
        if key not in known:
            known[key] = _measure(case(name, calibration, images), config)
            _table.append(_row(name, config, images, known[key]))
        return known[key]

    return get


@pytest.fixture(scope="session")
def noted() -> Callable[[str], None]:
    """Show a line at the end of the run."""
    return _table.append


def _measure(given: Case, config: Config) -> Measured:
    snn = spikecast.convert(given.model, given.calibration.split(BATCH), config)
    right: list[Tensor] = []
    same: list[Tensor] = []
    errors: list[Tensor] = []
    for i in range(0, len(given.images), BATCH):
        scores, expected = snn.run(given.images[i : i + BATCH]), given.answers[i : i + BATCH]
        answers = scores.argmax(-1)
        right.append(answers == given.labels[i : i + BATCH])
        same.append(answers == expected.argmax(-1))
        errors.append((scores - expected).norm(dim=-1) / expected.norm(dim=-1))
    fired = [r.levels != 0 for r in snn.record(given.images[:8]).values()]
    spikes = torch.stack([f.flatten(1).sum(1) for f in fired]).sum(0).cumsum(0) / sum(f[0, 0].numel() for f in fired)
    ann = float((given.answers.argmax(-1) == given.labels).float().mean())
    error = torch.cat(errors, 1).median(1).values
    all_right, all_same = torch.cat(right, 1), torch.cat(same, 1)
    accuracy, agreement = (each.float().mean(1).tolist() for each in (all_right, all_same))
    return Measured(ann, accuracy, agreement, spikes.tolist(), error.tolist(), all_right, all_same)


def _row(name: str, config: Config, images: int, found: Measured) -> str:
    scale = f" x{config.threshold_scale:g}" if config.threshold_scale != 1 else ""
    method = f"{config.thresholds}{scale} by {config.granularity}"
    head = f"{name:<10} n={config.num_levels} {config.coding:<12} {method:<23} {images:>5} images"
    ann = f"ANN {100 * found.ann:.1f}"
    accuracy = " ".join(f"{100 * a:5.1f}" for a in found.accuracy)
    agreement = " ".join(f"{100 * a:5.1f}" for a in found.agreement)
    return f"{head} {ann}  accuracy {accuracy}  agreement {agreement}  spikes/neuron {found.spikes[-1]:.2f}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _table:
        terminalreporter.section("real networks: per cent after t = 1, 2, ...")
        for row in _table:
            terminalreporter.write_line(row)
