"""The 1797 handwritten digits of 8 x 8 pixels that scikit-learn carries (UCI, no download), with a fixed split."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spikecast.errors import MissingExtraError

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
