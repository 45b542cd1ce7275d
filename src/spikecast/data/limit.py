"""A part of some data: images at even distances, or the first samples of somebody else's batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


def spread(items: Sequence[Any], limit: int | None) -> Sequence[Any]:
    """At most `limit` items, at even distances."""
    if limit is None or limit >= len(items):
        return items
    return [items[i * len(items) // limit] for i in range(limit)]


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
    """How many samples a batch has: the length of its first tensor, or of the list that its images are in."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if not isinstance(batch, list | tuple) or not batch:
        return 1
    return len(batch[0]) if isinstance(batch[0], list | tuple) else samples(batch[0])


def _cut(value: Any, count: int, size: int) -> Any:
    """The first samples of each tensor and list that has as many as the batch."""
    if isinstance(value, Tensor):
        return value[:count] if value.dim() and len(value) == size else value
    if isinstance(value, Mapping):
        return {k: _cut(v, count, size) for k, v in value.items()}
    return type(value)(_cut(v, count, size) for v in value) if isinstance(value, list | tuple) else value
