"""Small pictures of a network's inputs as PNG data URIs, with nothing but zlib."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spikecast.graph.structure import flatten

LARGEST = 96  # pixels of a side; a report with 50 pictures stays below a megabyte

ToPixels = Callable[[Tensor], Tensor]  # one sample of the input -> [H, W], [1, H, W] or [3, H, W] in 0..1


def png(pixels: Tensor) -> bytes:
    """Bytes [C, H, W] with one channel (grey) or three (RGB) as a PNG file."""
    channels, height, width = pixels.shape
    rows = pixels.permute(1, 2, 0).reshape(height, width * channels).cpu()
    raw = b"".join(b"\0" + bytes(row.tolist()) for row in rows)  # filter 0: as it is
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def picture(sample: Any, to_pixels: ToPixels | None = None) -> str | None:
    """A data URI of one sample, or None where it is no image; without `to_pixels`, black is its least value."""
    tensors = [leaf for leaf in flatten(sample)[0] if isinstance(leaf, Tensor)]
    if not tensors:
        return None
    image = tensors[0].detach().float()
    image = image if to_pixels is None else to_pixels(image).float()
    if image.dim() == 2:
        image = image.unsqueeze(0)
    if image.dim() != 3 or image.shape[0] not in (1, 3) or 0 in image.shape:
        return None
    if to_pixels is None:
        low, high = image.min(), image.max()
        image = (image - low) / (high - low).clamp_min(1e-12)
    largest = max(image.shape[1:])
    if largest > LARGEST:
        height, width = (max(1, round(n * LARGEST / largest)) for n in image.shape[1:])
        image = functional.adaptive_avg_pool2d(image, (height, width))
    coded = base64.b64encode(png((image.clamp(0, 1) * 255).round().to(torch.uint8)))
    return f"data:image/png;base64,{coded.decode()}"
