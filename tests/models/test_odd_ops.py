"""Ops that networks hold besides the common ones, in nets of our own."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Functional(nn.Module):
    """ReLUs that are calls, and modules that are used more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.shared = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.rectify = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for _ in range(3):
            x = x + torch.relu(self.norm(self.shared(x)))
        x = self.rectify(self.shared(x)) + self.rectify(self.shared(x.neg()))
        return self.head(x.mean((2, 3)).clamp(min=0))


class Activations(nn.Module):
    """One layer for each way to be nonlinear."""

    def __init__(self) -> None:
        super().__init__()
        kinds = [
            nn.ReLU6(),
            nn.LeakyReLU(0.1),
            nn.PReLU(8),
            nn.Hardswish(),
            nn.Hardtanh(-0.5, 1.5),
            nn.ELU(),
            nn.SiLU(inplace=True),
            nn.Sequential(nn.GroupNorm(2, 8), nn.ReLU6(inplace=True)),
        ]
        self.layers = nn.ModuleList([nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), kind) for kind in kinds])
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x.mean((2, 3)))


class Resizing(nn.Module):
    """Down by strides, up by every means; BatchNorm stands before its convolution, where it cannot be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU())
        self.pre = nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, 2, 1), nn.LeakyReLU(0.2))
        self.deconvolve = nn.Sequential(nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.grouped = nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1, groups=2)
        self.shuffle = nn.Sequential(nn.Conv2d(16, 32, 1), nn.PixelShuffle(2), nn.ReLU())
        self.nearest = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, 8, 3, padding=1))
        self.bilinear = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.squeeze = nn.Conv2d(16, 8, 1)
        self.last = nn.Conv2d(40, 2, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.pre(self.stem(x))
        ways = [self.deconvolve(x), self.grouped(x), self.shuffle(x), self.nearest(x), self.squeeze(self.bilinear(x))]
        up = self.last(torch.cat(ways, 1))
        return {"out": F.interpolate(up, scale_factor=2, mode="nearest"), "small": x}


class Pooled(nn.Module):
    """A max-pool behind a ReLU, one behind a leaky one, and one whose ReLU somebody else reads too."""

    def __init__(self, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel, stride, padding, dilation, ceil_mode=ceil)
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.third, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.LazyLinear(10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.first(x)))
        x = self.pool(F.leaky_relu(self.second(x), 0.1))
        y = F.relu(self.third(x))
        return self.head(torch.cat([self.pool(y).flatten(2), y.flatten(2)], 2).mean(2))


def images(size: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    first, second = torch.randn(2, 8, 3, size, size)
    return first, second, torch.randn(5, 3, size, size)


@pytest.mark.parametrize("kind", [Functional, Activations, Resizing])
def test_odd_ops(kind: type[nn.Module], examine, settled) -> None:
    first, second, held_out = images()
    examine(settled(kind(), first, second), [first, second], held_out)


POOLS = [
    (kernel, stride, *rest)
    for kernel, stride, rest in product((2, 3), (1, 2, 3), ((0, 1, False), (1, 1, True), (1, 2, False)))
]


@pytest.mark.parametrize("settings", POOLS, ids=lambda s: "k{}s{}p{}d{}{}".format(*s[:4], "ceil" if s[4] else ""))
def test_max_pool(settings: tuple[int, int, int, int, bool], examine, settled) -> None:
    first, second, held_out = images(27)
    model = Pooled(*settings)
    model(first)  # the lazy head takes its size
    snn = examine(settled(model, first), [first, second], held_out)
    behind = [row for row in snn.report.rows if row.why == "rectifying neuron, behind the pool"]
    assert len(behind) == 1, "only the first ReLU has no other reader than its pool"
