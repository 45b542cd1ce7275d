"""Where there are spikes there are no gradients: a spike has none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def no_grad(function: Callable[P, R]) -> Callable[P, R]:
    """As torch.no_grad. A trace is left alone: torch.export turns every change of that mode into an op of its own."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_exporting():
            return function(*args, **kwargs)
        with torch.no_grad():
            return function(*args, **kwargs)

    return run
