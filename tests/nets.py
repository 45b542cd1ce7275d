"""Networks that several tests convert, and what they ask of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast.graph.structure import flatten

Model = TypeVar("Model", bound=nn.Module)
# How it is made, the size of a sample, and settings of Config that it wants.
Net = tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, Any]]
# Blocks in a row: a name, or a join and how far back the other value lies.
Recipe = list[str | tuple[str, int]]
WIDTH = 4  # of networks made of blocks


def relative(found: Any, expected: Any) -> float:
    """Relative L2 distance of two answers of the same form, all their floating-point leaves together."""
    ours, form = flatten(found)
    theirs, expected_form = flatten(expected)
    assert form == expected_form
    pairs = [(a.detach(), b.detach()) for a, b in zip(ours, theirs, strict=True) if isinstance(b, Tensor)]
    assert [a.shape for a, _ in pairs] == [b.shape for _, b in pairs]
    floats = [(a.double(), b.double()) for a, b in pairs if b.is_floating_point()]
    distance = sum(float((a - b).square().sum()) for a, b in floats)
    return (distance / sum(float(b.square().sum()) for _, b in floats)) ** 0.5


def never(site: str, steps: Tensor) -> NoReturn:
    """In place of the neurons of a program that has none yet."""
    raise AssertionError(f"there is no neuron yet, but {site} fired")


def stir_norms(model: Model) -> Model:
    """Gives BatchNorms statistics that do something, in place."""
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    return model


def undecided(model: Model) -> Model:
    """Draws convolutions anew, in place: as made, the last layers of a detector or segmenter say one thing to all."""
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return model


def encoder(width: int, heads: int, hidden: int, layers: int = 1, **settings: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, heads, hidden, **settings)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


class Branch(nn.Module):
    """One of each: analog, spiking and graded ops, and a sum that closes a branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem, self.block = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = F.gelu(x + self.block(x))
        return self.head(x.mean((2, 3)))


# -- networks whose operations are counted: by the meter, by brute force, by the event-driven simulator


class Residual(nn.Module):
    """Two convolutions of other geometry read one neuron, and a third one of the same."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.main = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.short, self.twin = nn.Conv2d(4, 4, 1, stride=2), nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x).relu()
        z = torch.cat([(self.main(y) + self.short(y)).relu(), self.twin(y).relu()], 1)
        return self.head(F.adaptive_avg_pool2d(z, 1).flatten(1))


class Attention(nn.Module):
    def __init__(self, how: str = "matmul") -> None:
        super().__init__()
        self.how = how
        self.norm, self.qkv, self.out = nn.LayerNorm(6), nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        if self.how == "einsum":
            a = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
            y = torch.einsum("bhij,bhjd->bhid", a, v)
        elif self.how == "bmm":
            a = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).softmax(-1)
            y = torch.bmm(a, v.flatten(0, 1)).unflatten(0, (b, 2))
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(b, n, d))


class Einsum(nn.Module):
    """Spikes and weights in an einsum, whose fan-out nobody knows by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bnd,dhk->bhnk", F.gelu(x), self.weight).mean((1, 2))


class Gram(nn.Module):
    """A value times itself, and shared weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(self.layer(x).relu()).relu()
        return y @ y.transpose(-1, -2) + torch.matmul(y.mean(1, keepdim=True), y.transpose(1, 2))


class Moved(nn.Module):
    """Spikes that are padded, shuffled, cut and enlarged on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(2, 4, 3), nn.Conv2d(6, 2, 3, dilation=2)
        self.d = nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x).relu()
        z = F.pad(F.pixel_shuffle(y, 2), (1, 0, 2, 1))
        left, right = y.chunk(2, 1)
        w = torch.cat([left.flip(-1), right[:, :2]], 1)
        u = F.interpolate(self.c(F.interpolate(w, scale_factor=2.0)).relu(), (6, 5))
        return self.b(z).mean((2, 3)).sum(1) + self.d(u).mean((1, 2, 3))


def sparse(*size: int) -> Tensor:
    """Two samples with some zeros in them, which are not sent."""
    x = torch.randn(2, *size, generator=torch.Generator().manual_seed(3))
    return x * (x.abs() > 0.2)


def after(*layers: nn.Module, dims: int = 2) -> nn.Module:
    """The layers behind a convolution and its neurons."""
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    return nn.Sequential(conv(2, 4, 3, padding=1), nn.ReLU(), *layers)


IMAGE = (2, 7, 6)
COUNTED: dict[str, Net] = {
    "plain": (lambda: after(nn.Conv2d(4, 3, 3)), IMAGE, {}),
    "borders": (lambda: after(nn.Conv2d(4, 3, 3, padding=1)), IMAGE, {}),
    "stride": (lambda: after(nn.Conv2d(4, 3, 3, stride=2, padding=1)), IMAGE, {}),
    "dilation": (lambda: after(nn.Conv2d(4, 3, 3, dilation=2, padding=1)), IMAGE, {}),
    "groups": (lambda: after(nn.Conv2d(4, 6, 3, groups=2, padding=1)), IMAGE, {}),
    "depthwise": (lambda: after(nn.Conv2d(4, 4, 3, groups=4, padding="same")), IMAGE, {}),
    "oblong": (lambda: after(nn.Conv2d(4, 2, (1, 3), stride=(2, 1), padding=(0, 2))), IMAGE, {}),
    "one by one": (lambda: after(nn.Conv2d(4, 5, 1), nn.ReLU6(), nn.Conv2d(5, 1, 1, bias=False)), IMAGE, {}),
    "conv1d": (lambda: after(nn.Conv1d(4, 3, 3, stride=2), dims=1), (2, 9), {}),
    "conv3d": (lambda: after(nn.Conv3d(4, 2, 2, padding=1), dims=3), (2, 3, 4, 3), {}),
    "transposed": (
        lambda: after(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)), IMAGE, {},
    ),
    "transposed dilated": (lambda: after(nn.ConvTranspose1d(4, 2, 3, dilation=2, padding=2), dims=1), (2, 6), {}),
    "average": (lambda: after(nn.AvgPool2d(2), nn.Conv2d(4, 3, 2)), IMAGE, {}),
    "average, borders": (
        lambda: after(nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.Flatten(), nn.Linear(64, 3)),
        IMAGE,
        {},
    ),
    "average 1d": (lambda: after(nn.AvgPool1d(3, 2, 1), nn.Conv1d(4, 2, 2), dims=1), (2, 9), {}),
    "adaptive": (lambda: after(nn.AdaptiveAvgPool2d((3, 4)), nn.Flatten(), nn.Linear(48, 3)), IMAGE, {}),
    "bilinear": (lambda: after(nn.Upsample(size=(9, 9), mode="bilinear"), nn.Conv2d(4, 2, 3)), IMAGE, {}),
    "pooled": (lambda: after(nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 3, 3, padding=1)), IMAGE, {}),
    "residual": (Residual, IMAGE, {}),
    "residual, rate": (Residual, IMAGE, {"coding": "rate"}),
    "unsigned": (Residual, IMAGE, {"coding": "rate", "signed": False, "num_levels": 1, "initial_potential": 0.5}),
    "moved": (Moved, IMAGE, {}),
    "encoded input": (lambda: after(nn.Conv2d(4, 3, 3)), IMAGE, {"encode_input": True}),
    "analog": (lambda: after(nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)), IMAGE, {"overrides": {"1": None}}),
    "analog inside": (
        lambda: after(nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)), IMAGE, {"overrides": {"3": None}},
    ),
    "analog inside, rate": (
        lambda: after(nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)),
        IMAGE,
        {"overrides": {"3": None}, "coding": "rate"},
    ),
    "attention": (Attention, (5, 6), {}),
    "attention, rate": (Attention, (5, 6), {"coding": "rate"}),
    "einsum": (Einsum, (5, 6), {}),
    "attention, bmm": (lambda: Attention("bmm"), (5, 6), {}),
    "attention, einsum": (lambda: Attention("einsum"), (5, 6), {}),
    "attention, analog factor": (Attention, (5, 6), {"overrides": {"*.right": None}}),
    "gram": (Gram, (4, 5), {}),
}  # fmt: skip


# -- networks made of blocks, in an order that a test draws


class Attend(nn.Module):
    """Pixels attend to pixels, in two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).unflatten(2, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.out(y).transpose(1, 2).reshape(x.shape)


class Gate(nn.Module):
    """Channels weighted by what the whole image says."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.line(x.mean((2, 3))).sigmoid()[:, :, None, None]


class Last(nn.Module):
    """A linear layer and a LayerNorm over the channels, as in ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.line = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(self.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
    "grouped": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=2, bias=False),
    "norm": lambda: nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 1), nn.BatchNorm2d(WIDTH)),
    "up": lambda: nn.ConvTranspose2d(WIDTH, WIDTH, 3, padding=1),
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "clamp": lambda: nn.Hardtanh(-1, 2),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky": nn.LeakyReLU,
    "group norm": lambda: nn.GroupNorm(2, WIDTH),
    "max pool": lambda: nn.MaxPool2d(3, 1, 1),
    "average": lambda: nn.AvgPool2d(3, 1, 1),
    "attend": Attend,
    "gate": Gate,
    "last": Last,
}


class Blocks(nn.Module):
    """Blocks in a row; a join takes an earlier value along."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.recipe = recipe
        made = [BLOCKS[r]() if isinstance(r, str) else nn.Conv2d(2 * WIDTH, WIDTH, 1) for r in recipe]
        self.blocks = nn.ModuleList(made)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        values = [self.stem(x)]
        for step, block in zip(self.recipe, self.blocks, strict=True):
            now = values[-1]
            if isinstance(step, str):
                values.append(block(now))
                continue
            join, back = step
            other = values[back % len(values)]
            if join == "add":
                values.append(now + other)
            elif join == "product":
                values.append(now * torch.tanh(other))
            else:
                values.append(block(torch.cat([other, now], 1)))
        return self.head(values[-1].mean((2, 3)))
