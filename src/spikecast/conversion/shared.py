"""Calibration on several processes: each has seen its batches, and all end with the statistics of all of them.

Counts of a histogram are whole numbers and are summed. Moments are floats: those of each batch are sent around and
merged in the order of the batches, as one process would have done, so the bits are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from spikecast import distributed
from spikecast.conversion.calibrate import Calibration, SiteStatistics
from spikecast.conversion.statistics import Histogram, Moments
from spikecast.errors import DataError
from spikecast.network.base import Network

Item = TypeVar("Item")


def shared_out(batches: Iterable[Item], calibration: Calibration) -> Iterator[tuple[Item, bool]]:
    """Each batch, and whether this process is to observe it; what was observed is shared at the end."""
    rank, size = distributed.world()
    number = 0
    for number, batch in enumerate(batches, 1):
        calibration.batch = number - 1
        yield batch, (number - 1) % size == rank
    if size > 1:
        share(calibration, number)


def share(calibration: Calibration, batches: int) -> None:
    """Give every process the statistics of all."""
    statistics = list(calibration.statistics.values())
    shapes = distributed.gather([s.shape for s in statistics])
    for i, own in enumerate(statistics):
        found = [tuple(s[i]) for s in shapes if s[i] is not None]
        if len(set(found)) > 1:
            raise DataError(
                f"site {own.site.name!r} has thresholds of shape {found[0]} in one process and {found[-1]} in "
                f"another; granularity={own.config.granularity!r} needs calibration batches of one size"
            )
        own.shape = found[0] if found else None
        if own.histogram is not None and own.shape is not None:
            _share_histogram(own.histogram, math.prod(own.shape))
    _share_moments([s for s in statistics if s.moments is not None], batches)


def same_everywhere(thresholds: dict[str, Tensor]) -> None:
    """The first process's thresholds, for all: what was searched in each could differ with its hardware."""
    for name, theta in thresholds.items():
        thresholds[name] = distributed.from_process(0, theta)


def same_neurons(network: Network) -> None:
    """The first process's choice of levels and bursts, for all."""
    for part in network.networks.values():
        chosen = distributed.gather({name: [n.num_levels, n.burst] for name, n in part.neurons.items()})[0]
        part.set_neurons(
            {n: replace(own, num_levels=chosen[n][0], burst=chosen[n][1]) for n, own in part.neurons.items()}
        )


def _share_histogram(histogram: Histogram, channels: int) -> None:
    device = torch.device("cpu") if histogram.counts is None else histogram.counts.device
    if histogram.largest is None:
        histogram.clear(channels, device)
    assert histogram.largest is not None
    histogram.raise_top(distributed.largest_of_all(histogram.largest))
    assert histogram.counts is not None
    histogram.counts = distributed.sum_over_all(histogram.counts)
    histogram.count = int(distributed.sum_over_all(torch.tensor([histogram.count])))


def _share_moments(statistics: list[SiteStatistics], batches: int) -> None:
    """Batch by batch, from the process that saw it: for each site the parts it noted, laid one after the other."""
    rank, size = distributed.world()
    mine: dict[str, list[list[int]]] = {}  # batch -> [site, count, channels] of each part
    values: dict[int, list[Tensor]] = {}
    for i, own in enumerate(statistics):
        assert own.moments is not None
        for batch, count, mean, squares in own.moments.parts:
            mine.setdefault(str(batch), []).append([i, count, len(mean)])
            values.setdefault(batch, []).append(torch.cat([mean, squares]))
    said = distributed.gather(mine)
    merged = [Moments() for _ in statistics]
    for batch in range(batches):
        owner = batch % size
        parts = said[owner].get(str(batch), [])
        length = sum(2 * channels for _, _, channels in parts)
        if not length:
            continue
        flat = torch.cat(values[batch]) if owner == rank else torch.zeros(length, dtype=torch.float64)
        pieces = distributed.from_process(owner, flat).split([c for _, _, channels in parts for c in (channels,) * 2])
        for (i, count, _), mean, squares in zip(parts, pieces[::2], pieces[1::2], strict=True):
            merged[i].add(count, mean, squares)
    for own, moments in zip(statistics, merged, strict=True):
        own.moments = moments
