"""From an image file to the tensor a network takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from spikecast.errors import ConfigError, DataError, MissingExtraError, first_line

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # others may start programs, as EPS does
MAX_PIXELS = 100_000_000
MAX_SIZE = 8192  # pixels of a side
SMALL = 128  # pixels: images below it are shown whole, as those of CIFAR and MNIST are
LUMA = (0.299, 0.587, 0.114)  # how bright each colour is, as in ITU-R 601


@dataclass(frozen=True)
class Preparation:
    """How images are made ready: the shorter side to `size / crop`, the middle square of `size`, then (x - mean) / std.

    `size` None leaves images as large as they are, as detection does. `squash` brings both sides to `size / crop`,
    whatever the image's form. One `mean` and `std` make grey images, of one channel; three make colours.
    """

    size: int | None = 224
    crop: float = 0.875
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bilinear"
    squash: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= MAX_SIZE:
            raise ConfigError(f"size={self.size} must be from 1 to {MAX_SIZE} pixels, or None")
        if not isinstance(self.squash, bool):
            raise ConfigError(f"squash={self.squash!r} is not a bool; give True or False")
        if not 0 < self.crop <= 1:
            raise ConfigError(f"crop={self.crop} must be above 0 and at most 1")
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean) or not min(self.std) > 0:
            raise ConfigError(f"mean={self.mean}, std={self.std}: give one number each, or three; std above 0")
        if self.interpolation not in ("nearest", "bilinear", "bicubic"):
            raise ConfigError(f"interpolation={self.interpolation!r} must be nearest, bilinear or bicubic")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Preparation:
        try:
            return cls(**{**data, "mean": tuple(map(float, data["mean"])), "std": tuple(map(float, data["std"]))})
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{str(data)[:200]} does not say how images are made ready ({error})") from None

    @classmethod
    def for_input(cls, dims: Sequence[int | None]) -> Preparation:
        """What the sizes of an input [N, C, H, W] say: how large its images are, whether whole, and whether grey."""
        if len(dims) != 4:
            return cls()
        grey: dict[str, Any] = {"mean": (0.0,), "std": (1.0,)} if dims[1] == 1 else {}
        side = dims[2]
        if side is None or side != dims[3] or not 1 <= side <= MAX_SIZE:
            return cls(**grey)
        return cls(size=side, crop=1.0 if side < SMALL else cls.crop, **grey)

    def __str__(self) -> str:
        how = f"{self.interpolation}, squashed" if self.squash else self.interpolation
        size = "any size" if self.size is None else f"{self.size} pixels, crop {self.crop:g}, {how}"
        mean, std = (", ".join(f"{v:g}" for v in values) for values in (self.mean, self.std))
        return f"images of {size}, mean {mean}, std {std}"

    @property
    def channels(self) -> int:
        return len(self.mean)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Bytes [3, H, W], or [1, H, W] of grey, to floats."""
        x = pixels.float() / 255
        if self.channels == 1 and len(x) == 3:
            x = (x * torch.tensor(LUMA).reshape(3, 1, 1)).sum(0, keepdim=True)
        x = self._fitted(x, self.interpolation)
        mean, std = (torch.tensor(v).reshape(-1, 1, 1) for v in (self.mean, self.std))
        return (x - mean) / std  # grey becomes three equal colours where three are wanted

    def labels(self, classes: Tensor) -> Tensor:
        """Class numbers [H, W] moved along with their image."""
        if self.size is None:
            return classes
        return self._fitted(classes[None].float(), "nearest")[0].long()

    def _fitted(self, x: Tensor, interpolation: str) -> Tensor:
        """The middle square of the image at its new size, which is at least as large."""
        if self.size is None:
            return x
        shorter = round(self.size / self.crop)
        scale = shorter / min(x.shape[-2:])
        size = [shorter if self.squash else max(shorter, round(n * scale)) for n in x.shape[-2:]]
        if size != list(x.shape[-2:]):
            smooth: dict[str, Any] = {} if interpolation == "nearest" else {"antialias": True, "align_corners": False}
            x = F.interpolate(x[None], size, mode=interpolation, **smooth)[0]
        top, left = ((n - self.size) // 2 for n in size)
        return x[..., top : top + self.size, left : left + self.size]


def read_pixels(path: str | Path) -> Tensor:
    """The bytes [3, H, W] of an image file; one that cannot be decoded is a DataError that names it."""
    return _decoded(path, "RGB", "an image").permute(2, 0, 1)


def read_classes(path: str | Path) -> Tensor:
    """The class number [H, W] of each pixel of a palette image, as Pascal VOC has them."""
    return _decoded(path, "P", "a map of classes").squeeze(2).long()


def _decoded(path: str | Path, mode: str, what: str) -> Tensor:
    """Bytes [H, W, channels] of a mode of Pillow's."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError('reading images needs pillow; pip install "spikecast[vision]"') from error
    try:
        if not Path(path).is_file():  # a device would be read, and a pipe waited for, for ever
            raise OSError("there is no such file")
        with Image.open(path, formats=FORMATS) as image:  # read so far: its header
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels, the bound is {MAX_PIXELS}")
            decoded = image.convert(mode)
    except Exception as error:  # whatever a broken file makes Pillow raise
        raise DataError(f"{path} cannot be read as {what} ({first_line(error)}); repair or remove it") from error
    width, height = decoded.size
    return torch.frombuffer(bytearray(decoded.tobytes()), dtype=torch.uint8).reshape(height, width, -1)
