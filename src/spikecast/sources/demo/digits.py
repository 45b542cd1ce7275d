"""Handwritten digits of 8 x 8 pixels with a fixed split, a CNN and a vision Transformer that read them.

They are the 1797 digits that scikit-learn carries (UCI, no download).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast.errors import MissingExtraError

DIGITS = tuple("0123456789")
SIZE = 8
EVERY = 4  # each fourth image is held out, so that every stretch of the set, and every writer in it, is in both parts


def digits(split: str) -> tuple[Tensor, Tensor]:
    """Bytes [N, 1, 8, 8] and class numbers [N]: the 449 images that are held out, or the 1348 others for "train"."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError('the digits are those of scikit-learn; pip install "spikecast[demo]"') from error
    data: Any = load_digits()
    pixels = (torch.from_numpy(data.images).unsqueeze(1) * (255 / 16)).round().to(torch.uint8)
    chosen = (torch.arange(len(pixels)) % EVERY == EVERY - 1) != (split == "train")
    return pixels[chosen], torch.from_numpy(data.target).long()[chosen]


class ResidualBlock(nn.Module):
    """Two convolutions with a way around them, as in a ResNet; the way is a convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        same = inputs == outputs and stride == 1
        self.around = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.relu1(self.norm1(self.conv1(x)))
        out: Tensor = self.relu2(self.norm2(self.conv2(inner)) + self.around(x))
        return out


class DigitCNN(nn.Module):
    """A stem, three residual blocks, the mean over the pixels, one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(ResidualBlock(16, 16), ResidualBlock(16, 32, 2), ResidualBlock(32, 32))
        self.head = nn.Linear(32 * 4, len(DIGITS))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(F.avg_pool2d(self.blocks(self.stem(x)), 2).flatten(1))
        return out


class DigitTransformer(nn.Module):
    """Sixteen patches of 2 x 2 pixels, three encoder layers with GELU, the mean over the tokens."""

    def __init__(self, width: int = 40, depth: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, width, 2, stride=2)
        self.position = nn.Parameter(0.02 * torch.randn(1, (SIZE // 2) ** 2, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, len(DIGITS))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        out: Tensor = self.head(self.encoder(tokens).mean(1))
        return out
