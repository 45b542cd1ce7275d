"""In which mode torch computes: without gradients, since a spike has none, and without the caller's autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor

from spikecast.errors import ModelError

P = ParamSpec("P")
R = TypeVar("R")


def is_exporting() -> bool:
    """Whether torch.export traces what this thread computes; torch's own flag is up for all threads at once."""
    return torch.compiler.is_exporting() and torch._C._len_torch_dispatch_stack() > 0


def refuse_followers(given: Sequence[Any]) -> None:
    """Refuse what follows this thread's ops instead of computing them; torch.export alone can follow a neuron."""
    if not is_exporting() and (name := _follower(given)):
        raise ModelError(f"{name} cannot follow spikes; take torch.export.export(snn, ...), or call snn(x) itself")


def _follower(given: Sequence[Any]) -> str:
    mode, modes = torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey
    if isinstance(given, fx.Proxy) or mode(modes.PROXY) is not None:
        return "torch.fx"
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return "torch.jit.trace"
    tensors = [value for value in given if isinstance(value, Tensor)]
    if any(torch._C._functorch.is_functorch_wrapped_tensor(t) for t in tensors):
        return "torch.func (vmap, grad, jvp)"
    is_fake = mode(modes.FAKE) is not None or any(isinstance(t, FakeTensor) for t in tensors)
    return "a fake tensor" if is_fake else ""


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
