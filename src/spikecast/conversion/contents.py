"""What a model is made of, to see later whether it has changed; torch's own count of changes overlooks `.data`."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor, nn


def contents(model: nn.Module) -> dict[str, str]:
    """Each module's type and settings, and each weight's and buffer's form and checksum, by name."""
    found = {f"module {name!r}": f"{type(m).__qualname__}({m.extra_repr()})" for name, m in model.named_modules()}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found[f"weight {name!r}"] = f"{tuple(tensor.shape)} {tensor.dtype} {_checksum(tensor)}"
    return found


def difference(before: dict[str, str], now: dict[str, str]) -> str | None:
    """The first thing that is not as it was."""
    return next((name for name in {**before, **now} if before.get(name) != now.get(name)), None)


def _checksum(tensor: Tensor) -> int:
    """Of the bytes, in the order of the entries: 0.1 s for 100 MB."""
    return zlib.crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
