"""Somebody else's batches as often as they are asked for, and a part of some data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


def spread(items: Sequence[Any], limit: int | None) -> Sequence[Any]:
    """At most `limit` items, at even distances."""
    if limit is None or limit >= len(items):
        return items
    return [items[i * len(items) // limit] for i in range(limit)]


@dataclass(frozen=True)
class Again:
    """Batches of a function that yields them: it is called anew for each pass."""

    make: Callable[[], Iterable[Any]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make())


@dataclass(frozen=True)
class Limited:
    """The first batches of somebody else's, down to a number of samples."""

    batches: Iterable[Any]
    limit: int

    def __iter__(self) -> Iterator[Any]:
        left = self.limit
        for batch in self.batches:
            count = samples(batch)
            yield batch if count <= left else _cut(batch, left, count)
            left -= count
            if left <= 0:
                return


def samples(batch: Any) -> int:
    """How many samples a batch has: the length of its first tensor, or of the list that its images are in.

    ((a, b), label) are two inputs of as many samples as there are labels.
    """
    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if not isinstance(batch, list | tuple) or not batch:
        return 1
    if isinstance(batch[0], list | tuple) and not _is_inputs(batch):
        return len(batch[0])
    return samples(batch[0])


def _is_inputs(batch: Any) -> bool:
    """Whether a list of inputs is in front of a batch, each as long as the label, and not one of images."""
    if len(batch) != 2 or not isinstance(batch[0], list | tuple) or not batch[0]:
        return False
    lengths = {len(x) if isinstance(x, Tensor) and x.dim() else None for x in (*batch[0], batch[1])}
    return len(lengths) == 1 and lengths != {None}


def _cut(batch: Any, count: int, size: int) -> Any:
    """The first samples of each part of a batch that has as many as the batch."""

    def part(value: Any) -> Any:
        counted = isinstance(value, list | tuple) or (isinstance(value, Tensor) and value.dim() > 0)
        return value[:count] if counted and len(value) == size else value

    if isinstance(batch, Mapping):
        return {name: part(value) for name, value in batch.items()}
    if not isinstance(batch, list | tuple):
        return part(batch)
    parts = [_cut(batch[0], count, size), part(batch[1])] if _is_inputs(batch) else list(map(part, batch))
    return batch._make(parts) if hasattr(batch, "_make") else type(batch)(parts)
