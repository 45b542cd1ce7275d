"""The smallest network of every family of timm and the smallest image it takes: python -m benchmarks.coverage.find

Nothing is downloaded, and hardly anything computed: the networks are built without memory (torch's device "meta").
"""

from __future__ import annotations

import csv
import warnings
from typing import Any

import timm
import torch
from torch import nn

from benchmarks.coverage.models import FAMILIES, FIELDS

SIZES = (96, 112, 128, 160, 192, 224, 240, 256, 288, 320, 336, 384, 448, 512)  # the last map should be 3 × 3 at least


def main() -> None:
    with FAMILIES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for family in timm.list_modules():
            if names := [name for name in timm.list_models(module=family) if not name.startswith("test_")]:
                name, parameters = min(((name, _parameters(name)) for name in names), key=lambda pair: pair[1])
                writer.writerow([family, name, parameters, *_size(name)])


def _made(name: str, **settings: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.device("meta"):
                return timm.create_model(name, pretrained=False, **settings).eval()
        except (NotImplementedError, RuntimeError):  # some look at their values while they are made
            return timm.create_model(name, pretrained=False, **settings).to("meta").eval()


def _parameters(name: str) -> int:
    return sum(p.numel() for p in _made(name).parameters())


def _size(name: str) -> tuple[int, str]:
    """The least size that the network takes, and whether it must be told when it is made."""
    for size in SIZES:
        for resized in (False, True):
            try:
                model = _made(name, **({"img_size": size} if resized else {}))
                with torch.no_grad():
                    model(torch.empty(2, 3, size, size, device="meta"))
            except Exception:  # a network may refuse a size in any way it likes
                continue
            return size, "yes" if resized else "no"
    return _size_by_values(name), "no"


def _size_by_values(name: str) -> int:
    """The least size that a network takes which decides by values, and so cannot be asked without any."""
    model = timm.create_model(name, pretrained=False).eval()
    for size in SIZES:
        try:
            with torch.no_grad():
                model(torch.zeros(2, 3, size, size))
        except Exception:  # as above
            continue
        return size
    return int(timm.get_pretrained_cfg(name).input_size[-1])


if __name__ == "__main__":
    main()
