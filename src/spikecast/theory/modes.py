"""In which mode torch computes: without gradients, since a spike has none, and without the caller's autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def is_exporting() -> bool:
    """Whether torch.export traces what this thread computes; torch's own flag is up for all threads at once."""
    return torch.compiler.is_exporting() and torch._C._len_torch_dispatch_stack() > 0


def no_grad(function: Callable[P, R]) -> Callable[P, R]:
    """As torch.no_grad. A trace is left alone: torch.export turns every change of that mode into an op of its own."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_exporting():
            return function(*args, **kwargs)
        with torch.no_grad():
            return function(*args, **kwargs)

    return run


@contextmanager
def no_autocast() -> Iterator[None]:
    """The types of the tensors themselves, so that an answer has the same bits wherever the caller is."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
