"""Why a forward cannot be captured, in one line: the place in the user's code, and the parts to take instead."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from spikecast.errors import CaptureError, first_line

_OURS = tuple(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[2]))  # and torch
_FEW = 6


def refused(model: nn.Module, error: BaseException, prefix: str = "") -> CaptureError:
    """What to raise when torch.export has failed; `prefix` is the path of the model, where it is a part of another."""
    place, module = _place(error)
    names = list(_parts(model, module, prefix))
    more = ", ..." if len(names) > _FEW else ""
    regions = f"regions='auto', or regions=[{', '.join(map(repr, names[:_FEW]))}{more}]"
    why, name = first_line(error).rstrip("."), type(model).__name__
    if "data-dependent" in why:
        said = f"{name}.forward decides by values of its tensors{place}, and a graph has one path for all of them"
        remedy = "take torch.where there" + (f", or convert the parts around it with {regions}" if names else "")
    else:
        said = f"torch.export cannot capture {name}.forward whole: {why}{place}"
        remedy = f"convert the parts it can capture with {regions}" if names else "write it in ops of torch only"
    return CaptureError(f"{said}; {remedy}")


def _place(error: BaseException) -> tuple[str, nn.Module | None]:
    """The last line of the user's own code that was on its way, and the module it belongs to."""
    place, module = "", None
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not code.co_filename.startswith((*_OURS, "<")):
            place, owner = (
                f" at line {line} of {code.co_filename}",
                frame.f_locals.get(next(iter(code.co_varnames), "")),
            )
            module = owner if isinstance(owner, nn.Module) else module
    return place, module


def _parts(model: nn.Module, module: nn.Module | None, prefix: str) -> Iterator[str]:
    """The largest submodules with weights that can be called and do not hold a module."""
    for name, child in model.named_children():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(child, nn.ModuleList | nn.ModuleDict) or any(m is module for m in child.modules()):
            yield from _parts(child, module, path)
        elif any(True for _ in child.parameters()):
            yield path
