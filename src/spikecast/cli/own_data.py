"""What can be said of somebody else's batches before any work: how many there are, and where thresholds come from.

A list is there as a whole, and so is what a loader says of its length; a generator is not gone through for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import accumulate
from typing import Any

from torch import Tensor

from spikecast.graph.structure import flatten
from spikecast.sources import samples
from spikecast.sources.limit import Again, Limited
from spikecast.text import many

OWN = "of its own"


def own_size(batches: Iterable[Any]) -> str:
    """How many batches and samples there are, as far as that is known."""
    made, limit = _parts(batches)
    if isinstance(made, list | tuple):
        used, total = _counts(made, limit)
        return f"{many(used, 'batch', 'batches')} {OWN}, {many(total, 'sample')}"
    if limit is not None:
        return f"batches {OWN}, {many(limit, 'sample')} at most"
    number = _length(made)
    return f"batches {OWN}" if number is None else f"{many(number, 'batch', 'batches')} {OWN}"


def own_origin(calibrating: Iterable[Any], batches: Iterable[Any]) -> str:
    """Which samples thresholds come from: those that are measured, or others that the function gives."""
    made, limit = _parts(calibrating)
    measured, most = _parts(batches)
    count = "all" if limit is None else f"the first {limit}"
    if isinstance(made, list | tuple):
        limit = _counts(made, limit)[1]
        count = str(limit)
    if not _are_same(made, measured, limit):
        is_told = isinstance(made, Again) and isinstance(measured, Again)  # which split is wanted
        return f"{count} that it gives {'for training' if is_told else 'when it is called again'}"
    if most is not None and (limit is None or most < limit):
        return f"{count}, {most} of which are measured too"
    return f"{count} of these"


def _parts(batches: Iterable[Any]) -> tuple[Iterable[Any], int | None]:
    """The batches as they were made, and how many samples are taken of them."""
    return (batches.batches, batches.limit) if isinstance(batches, Limited) else (batches, None)


def _counts(made: list[Any] | tuple[Any, ...], limit: int | None) -> tuple[int, int]:
    """How many batches are used, and how many samples that is."""
    sums = list(accumulate(samples(batch) for batch in made))
    total = sums[-1] if sums else 0
    if limit is None or limit >= total:
        return len(made), total
    return next(i for i, reached in enumerate(sums, 1) if reached >= limit), limit


def _length(made: Iterable[Any]) -> int | None:
    try:
        return len(made)  # type: ignore[arg-type]
    except Exception:  # a loader whose data have no length, and says so in its own way
        return None


def _are_same(made: Iterable[Any], measured: Iterable[Any], limit: int | None) -> bool:
    """Whether a function gave the same for training as for measuring, where that can be told without a pass."""
    if isinstance(made, Again) and isinstance(measured, Again):
        asked = [again.make.keywords if isinstance(again.make, partial) else {} for again in (made, measured)]
        return asked[0] == asked[1]
    if not isinstance(made, list | tuple) or not isinstance(measured, list | tuple):
        return made is measured
    used = _counts(made, limit)[0]
    return len(measured) >= used and all(map(_equal, made[:used], measured[:used]))


def _equal(first: Any, second: Any) -> bool:
    """Whether two batches have tensors, and the same."""
    pairs = [[x for x in flatten(batch)[0] if isinstance(x, Tensor)] for batch in (first, second)]
    return 0 < len(pairs[0]) == len(pairs[1]) and all(a.equal(b) for a, b in zip(*pairs, strict=True))
