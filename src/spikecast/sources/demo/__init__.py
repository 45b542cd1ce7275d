"""Two small networks that come with the package: handwritten digits of 8 x 8 pixels, a CNN and a vision Transformer.

`examples/train_demo.py` trained them, on three of every four images of scikit-learn's digits (`data/digits.py`).
"""

from __future__ import annotations

from importlib.resources import as_file, files

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast.errors import ConfigError

CLASSES = 10
SIZE = 8


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
        self.head = nn.Linear(32 * 4, CLASSES)

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
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        out: Tensor = self.head(self.encoder(tokens).mean(1))
        return out


NETWORKS: dict[str, type[nn.Module]] = {"cnn": DigitCNN, "vit": DigitTransformer}


def demo_network(name: str) -> nn.Module:
    """One of the networks with its weights, ready to be converted."""
    if name not in NETWORKS:
        raise ConfigError(f"there is no demo network {name!r}; take one of {', '.join(NETWORKS)}")
    from safetensors.torch import load_file

    model = NETWORKS[name]()
    with as_file(files(__name__) / f"{name}.safetensors") as path:
        model.load_state_dict(load_file(path))
    return model.eval()
