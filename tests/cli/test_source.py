"""MODEL of the command line, and batches on its device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spikecast.cli.source import on_device


class Fields(NamedTuple):
    x: Tensor
    scale: float


class Scaled(Fields):
    """A batch that is made from other arguments than its fields."""

    def __new__(cls, x: Tensor) -> Scaled:
        return super().__new__(cls, x, float(x.abs().max()))


def test_batches_keep_their_class_on_the_device() -> None:
    moved = on_device([Scaled(torch.ones(2)), 3], torch.device("cpu"))
    assert type(moved[0]) is Scaled
    assert (moved[0].x.tolist(), moved[0].scale, moved[1]) == ([1.0, 1.0], 1.0, 3)
