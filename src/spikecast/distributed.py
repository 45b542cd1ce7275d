"""Several processes on one job, started by torchrun: who has which batch, and how results come together.

Everything is exchanged as numbers or as JSON text; a result does not depend on how many processes there are.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from spikecast.errors import ResourceError, first_line

Item = TypeVar("Item")


def world() -> tuple[int, int]:
    """This process's number and how many there are."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def join() -> tuple[int, int]:
    """Meet the other processes, if torchrun started us; the same as `world` from then on."""
    if dist.is_available() and not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(leave)
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            failed(error)
            before(kind, error, trace)

        sys.excepthook = hook
    return world()


def failed(error: BaseException) -> None:
    """Tell the other processes why this one ends; all they see of it is a connection that is closed."""
    if world()[1] > 1:
        with suppress(Exception):
            dist.distributed_c10d._get_default_store().set(f"spikecast/{world()[0]}", first_line(error))


@contextmanager
def _exchanging() -> Iterator[None]:
    """While this lasts, a process that is gone is named with its own error."""
    try:
        yield
    except RuntimeError as error:
        said = "another process is gone without a word; see what was killed, and start the job again"
        with suppress(Exception):
            store = dist.distributed_c10d._get_default_store()
            gone = next(i for i in range(world()[1]) if store.check([f"spikecast/{i}"]))
            said = f"process {gone} failed: {store.get(f'spikecast/{gone}').decode()}"
        raise ResourceError(said) from error


def leave() -> None:
    """Part from the others; done at exit for a group that `join` made.

    On a busy machine one run in ten that ended with its group of gloo open aborted, its results already written.
    NCCL's closing waits for the others, so a process that fails would keep its job from ending; it is left as it is.
    """
    if dist.is_initialized() and dist.get_backend() == "gloo":
        dist.destroy_process_group()
        gc.collect()  # its threads end with the last that refers to it, which may be in a cycle


def own(items: Iterable[Item]) -> Iterator[tuple[int, Item]]:
    """This process's share with their numbers: every k-th, so that none is lost or taken twice, however many."""
    rank, size = world()
    return ((i, item) for i, item in enumerate(items) if i % size == rank)


@_exchanging()
def gather(value: Any) -> list[Any]:
    """What each process has to say, in the order of their numbers; plain JSON data."""
    _, size = world()
    if size == 1:
        return [value]
    device = _device()
    data = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=device)
    lengths = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(data)], device=device))
    longest = max(int(n) for n in lengths)
    padded = torch.cat([data, data.new_zeros(longest - len(data))])
    parts = [torch.zeros_like(padded) for _ in range(size)]
    dist.all_gather(parts, padded)
    return [json.loads(bytes(p[: int(n)].cpu().tolist())) for p, n in zip(parts, lengths, strict=True)]


def sum_over_all(counts: Tensor) -> Tensor:
    """The sum of every process's whole numbers."""
    return _reduced(counts, dist.ReduceOp.SUM)


def largest_of_all(values: Tensor) -> Tensor:
    """The largest of every process's numbers."""
    return _reduced(values, dist.ReduceOp.MAX)


@_exchanging()
def from_process(owner: int, value: Tensor) -> Tensor:
    """One process's tensor, for all; the others give one of the same form."""
    if world()[1] == 1:
        return value
    sent = value.contiguous().to(_device())
    dist.broadcast(sent, owner)
    return sent.to(value.device)


@_exchanging()
def _reduced(values: Tensor, how: Any) -> Tensor:
    if world()[1] == 1:
        return values
    sent = values.clone().to(_device())
    dist.all_reduce(sent, how)
    return sent.to(values.device)


def _device() -> torch.device:
    """Where tensors must lie to be sent."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
