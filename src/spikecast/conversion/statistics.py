"""Statistics of a site's input that do not depend on the order of batches and can be merged.

A site's values arrive as [channels, values]. Counts are whole numbers, so merging them is exact; moments are merged
in batch order in float64, so that the same batches give the same bits however they were shared out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

OCTAVES = 12  # what lies more than 2**-12 below a channel's largest value counts as zero
FINE, COARSE = 64, 4  # bins per octave; coarse where there are more channels than MANY
MANY = 8192


class Moments:
    """Count, mean and sum of squared deviations per channel (Chan's parallel formula)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | None = None
        self.squares: Tensor | None = None
        self.parts: list[tuple[int, int, Tensor, Tensor]] = []  # by batch, where processes share the work

    def observe(self, values: Tensor, batch: int | None = None) -> None:
        """Take in [channels, values]; with the number of its batch, what is added is noted for other processes."""
        if values.shape[1] == 0:
            return
        part = self.part(values)
        self.add(*part)
        if batch is not None:
            self.parts.append((batch, *part))

    def part(self, values: Tensor) -> tuple[int, Tensor, Tensor]:
        """What [channels, values] add: count, mean and sum of squared deviations."""
        var, mean = torch.var_mean(values.float(), dim=1, correction=0)
        return values.shape[1], mean.double(), var.double() * values.shape[1]

    def add(self, count: int, mean: Tensor, squares: Tensor) -> None:
        """Take in a part."""
        if self.mean is None or self.squares is None:
            self.count, self.mean, self.squares = count, mean, squares
            return
        total = self.count + count
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)
        self.squares = self.squares + squares + delta * delta * (self.count * count / total)
        self.count = total

    @property
    def std(self) -> Tensor:
        """Standard deviation per channel."""
        assert self.squares is not None
        return (self.squares / self.count).clamp_min(0).sqrt()


class MeanQuantile(Moments):
    """The signed quantile of each batch, averaged by its samples: what the authors' code takes (docs/errata.md).

    Unlike all else here it depends on how the values are cut into batches. It is merged as a mean is; it has no spread.
    """

    def __init__(self, p: float, samples: int = 1) -> None:
        super().__init__()
        self.p = p
        self.samples = samples  # of the batch that is observed next

    def part(self, values: Tensor) -> tuple[int, Tensor, Tensor]:
        """The quantile of [channels, values] between its two nearest values, and what it weighs."""
        place = self.p * (values.shape[1] - 1)
        below = math.floor(place)
        largest = values.float().topk(values.shape[1] - below, dim=1).values.double()  # in descending order
        low, high = largest[:, -1], largest[:, max(largest.shape[1] - 2, 0)]
        return self.samples, low + (place - below) * (high - low), torch.zeros_like(low)


class Histogram:
    """Counts of |x| per channel in bins that widen with the value, with the exact largest value.

    A bin spans 1/64 of an octave's lower end (1/4 with very many channels): a quantile read from it is off by at
    most 1.6 % (25 %), and is exact at p = 1.
    """

    def __init__(self) -> None:
        self.count, self.bins = 0, FINE
        self.top: Tensor | None = None  # exponent of the largest value so far, per channel
        self.largest: Tensor | None = None
        self.counts: Tensor | None = None  # [channels, 1 + OCTAVES·bins]; the first holds all below the window

    def observe(self, values: Tensor) -> None:
        """Take in [channels, values]."""
        if values.shape[1] == 0:
            return
        magnitude = values.abs().float()
        channels = magnitude.shape[0]
        if self.counts is None:
            self.bins = _bins(channels)
        self.raise_top(magnitude.amax(1))
        assert self.top is not None and self.counts is not None
        shift = 23 - (self.bins.bit_length() - 1)
        key = (magnitude.view(torch.int32) >> shift) - ((self.top - (OCTAVES - 1)) * self.bins).unsqueeze(1)
        width = OCTAVES * self.bins + 1
        key = key.add_(1).clamp_(0, width - 1).long()
        key += torch.arange(channels, device=key.device).unsqueeze(1) * width
        counted = torch.bincount(key.flatten(), minlength=channels * width)
        self.counts += counted.reshape(channels, width)
        self.count += values.shape[1]

    def clear(self, channels: int, device: torch.device) -> None:
        """Nothing seen, of so many channels."""
        self.bins = _bins(channels)
        self.raise_top(torch.zeros(channels, device=device))

    def raise_top(self, largest: Tensor) -> None:
        """Move the window up to a new largest value; what falls out below counts as zero."""
        top = (largest.view(torch.int32) >> 23).clamp_min(OCTAVES)
        width = OCTAVES * self.bins + 1
        if self.top is None or self.counts is None or self.largest is None:
            self.top, self.largest = top, largest
            self.counts = torch.zeros(len(top), width, dtype=torch.int64, device=largest.device)
            return
        self.largest = torch.maximum(self.largest, largest)
        up = (top - self.top).clamp_min(0)
        if not bool(up.any()):
            return
        self.top = self.top + up
        place = torch.arange(1, width, device=up.device).unsqueeze(0) + (up * self.bins).unsqueeze(1)
        moved = torch.where(place < width, self.counts.gather(1, place.clamp_max(width - 1)), 0)
        below = self.counts.sum(1, keepdim=True) - moved.sum(1, keepdim=True)
        self.counts = torch.cat([below, moved], 1)

    def quantile(self, p: float) -> Tensor:
        """The value that a share p of all values does not exceed, per channel; 0 where it lies below the window."""
        assert self.counts is not None and self.top is not None and self.largest is not None
        if p >= 1:
            return self.largest.double()
        rank = p * self.count
        cumulative = self.counts.cumsum(1)
        index = (cumulative < rank).sum(1)
        before = cumulative.gather(1, (index - 1).clamp_min(0).unsqueeze(1)).squeeze(1)
        inside = self.counts.gather(1, index.unsqueeze(1)).squeeze(1).clamp_min(1)
        part = ((rank - before.double()) / inside).clamp(0, 1)
        key = index - 1 + (self.top.long() - (OCTAVES - 1)) * self.bins
        exponent, mantissa = key // self.bins, key % self.bins
        low = torch.ldexp(1 + (mantissa + part) / self.bins, (exponent - 127).double())
        return torch.where(index > 0, torch.minimum(low, self.largest.double()), 0.0)


def _bins(channels: int) -> int:
    return FINE if channels <= MANY else COARSE
