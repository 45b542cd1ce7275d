"""How far a figure measured on some samples may be from the figure on all there are: shares, differences, any score.

All take samples as drawn independently of each other: images, not the pixels of one image.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError

BLOCK = 2**20  # samples drawn at once
LARGEST = sys.float_info.max  # the end of an interval that nothing is known of (inf has no word in JSON)
Unit = Literal["%", "points", ""]
Notes = Sequence[Any] | Tensor
Score = Callable[[Sequence[Any]], float]


class Interval(NamedTuple):
    """From one end to the other, both included; a pair in JSON.

    Args:
        low: The lower end.
        high: The upper end.

    Example:
        >>> measure.intervals.Interval(0.9, 0.95).holds(0.92)
        True
    """

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether a value lies in it."""
        return self.low <= value <= self.high

    @property
    def is_unknown(self) -> bool:
        """Whether any number may be meant, as where one sample was measured: it cannot be drawn anew."""
        return self.high >= LARGEST

    def text(self, value: float, unit: Unit = "%", digits: int = 2) -> str:
        """A value and the interval around it: 97.50% (96.10 to 98.40), or -0.30 points (-0.52 to -0.08).

        Shares are in "%", their differences in "points"; "" leaves a number as it is, with two digits more in all.
        """
        scale, form = (1, f"z.{digits + 2}g") if unit == "" else (100, f"{'+' if unit == 'points' else ''}z.{digits}f")
        shown, low, high = (f"{scale * x:{form}}" for x in (value, *self))
        ends = "unknown" if self.is_unknown else f"{low} to {high}"
        return f"{shown}{' points' if unit == 'points' else unit} ({ends})"


UNKNOWN = Interval(-LARGEST, LARGEST)


@dataclass(frozen=True)
class PairedShare:
    """Two shares of the same samples: the first less the second, and how likely such a difference is by chance.

    only_first  samples that count in the first share only; `only_second` in the second only
    p_value     McNemar's exact test, two-sided: how often equal shares differ by as much or more
    """

    samples: int
    only_first: int
    only_second: int
    difference: float
    interval: Interval
    p_value: float

    def text(self, digits: int = 2) -> str:
        """The difference in points of a hundred, its interval and its p-value."""
        return f"{self.interval.text(self.difference, 'points', digits)}, p = {self.p_value:.2g}"


def share(successes: float, samples: float, confidence: float = 0.95) -> Interval:
    """The interval of a share of samples, `successes` out of `samples` (Wilson 1927).

    It stays within 0 and 1 and is of use at both ends: 0 of n gives 0 to z²/(n + z²).

    Args:
        successes: How many samples, from 0 to `samples`; not their share.
        samples: How many there are, 1 or more.
        confidence: Above 0 and below 1.

    Example:
        >>> measure.intervals.share(91, 100).text(0.91)
        '91.00% (83.77 to 95.19)'
    """
    z = _deviations(confidence)
    if not (samples >= 1 and float(samples).is_integer()):
        raise DataError(f"samples={samples!r} is not a whole number from 1; give the number of samples measured")
    if not (0 <= successes <= samples and float(successes).is_integer()):
        raise DataError(
            f"successes={successes!r} is not a whole number from 0 to {samples}; give how many samples, not their share"
        )
    middle = successes + z * z / 2
    half = z * math.sqrt(successes * (samples - successes) / samples + z * z / 4)
    low, high = ((middle + side) / (samples + z * z) for side in (-half, half))
    return Interval(low if successes > 0 else 0.0, high if successes < samples else 1.0)


def paired_share(first: Tensor, second: Tensor, confidence: float = 0.95) -> PairedShare:
    """Compare two shares of the same samples, as where a network is right, and where its ANN is; bool [samples] each.

    The interval is Tango's (Statistics in Medicine 17, 1998, 891-908): the differences that a score test would not
    reject. It looks only at samples where the two differ, which are few between a network and its ANN. With Newcombe's
    method 10 (same volume, 2635-2650) the others matter too. Where a network only loses, 2 to 4 of 500 samples on
    average, his 95 % are 87 % to 100 %, by how often both are right; Tango's are 93 % to 98 %.

    Args:
        first: True for each sample that counts.
        second: The same samples, in the same order.
        confidence: Above 0 and below 1.

    Example:
        >>> right, ann = torch.tensor([True] * 98 + [False] * 2), torch.tensor([True] * 100)
        >>> measure.intervals.paired_share(right, ann).difference
        -0.02
    """
    z = _deviations(confidence)
    for name, right in (("first", first), ("second", second)):
        if right.dtype != torch.bool or right.dim() != 1 or not len(right):
            form = f"{right.dtype} of shape {tuple(right.shape)}"
            raise DataError(f"{name} is {form}, not bool [samples]; give True or False for each of at least one sample")
    if len(first) != len(second):
        raise DataError(f"{len(first)} samples against {len(second)}; give both on the same samples, in the same order")
    ours, theirs = first.cpu(), second.cpu()
    samples, b, c = len(ours), int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    interval = Interval(-_upper_limit(c, b, samples, z), _upper_limit(b, c, samples, z))
    return PairedShare(samples, b, c, (b - c) / samples, interval, _by_chance(b, c))


def _upper_limit(b: int, c: int, n: int, z: float) -> float:
    """The largest difference that b samples in the first share only and c in the second would not reject; by bisection.

    Given a difference d, q is the likeliest share of samples in the second only: 2n·q² + s·q = c·d·(1 − d).
    """
    low, high = (b - c) / n, 1.0
    for _ in range(60):
        d = (low + high) / 2
        s, product = (2 * n - b + c) * d - b - c, c * d * (1 - d)
        root = math.sqrt(max(s * s + 8 * n * product, 0.0))
        q = (root - s) / (4 * n) if s <= 0 else 2 * product / (root + s)  # equal; each where it adds
        inside = n * d - (b - c) < z * math.sqrt(max(n * (2 * q + d * (1 - d)), 0.0))
        low, high = (d, high) if inside else (low, d)
    return high


def _by_chance(b: int, c: int) -> float:
    """How likely a fair coin falls as unevenly as b to c, or more: a sum of binomials, in whole numbers."""
    n, term, total = b + c, 1, 0
    for k in range(min(b, c) + 1):
        total += term
        term = term * (n - k) // (k + 1)
    return min(1.0, 2 * total / (1 << n))


def mean(notes: Sequence[float] | Tensor) -> float:
    """The score of notes that are numbers; `bootstrap(mean, notes)` knows it and is fast."""
    return math.fsum(notes) / len(notes)


def bootstrap(score: Score, notes: Notes, confidence: float = 0.95, *, draws: int = 2000, seed: int = 0) -> Interval:
    """The interval of any score of a list of notes, one for each sample: how it varies if samples are drawn anew.

    Each draw takes as many notes as were given, some twice and some never; the interval is the middle of the scores
    (percentiles: Efron and Tibshirani 1993, chapter 13. Their BCa needs one more score for each sample left out: too
    many for mean average precision). The same seed gives the same bits, on any number of threads.

    Args:
        score: A function of some notes; `intervals.mean` is fast.
        notes: One for each sample, two at least.
        confidence: Above 0 and below 1.
        draws: How often samples are drawn anew; at least 2 / (1 - confidence).
        seed: Of the draws.

    Example:
        >>> low, high = measure.intervals.bootstrap(max, [1, 5, 2, 4, 3])
        >>> low, high
        (3.0, 5.0)
    """
    _check_draws(draws, confidence)  # before the work
    return middle(redrawn(score, notes, draws=draws, seed=seed), confidence)


def middle(found: Tensor, confidence: float = 0.95) -> Interval:
    """From where to where this share of the scores of all draws lies, as many left out on each side."""
    _check_draws(len(found), confidence)
    if not bool(found.isfinite().all()):
        bad = found[~found.isfinite()][0]
        raise DataError(
            f"a score of samples drawn anew is {bad}, not finite; let it be a number for any choice of them"
        )
    ends = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
    return Interval(*found.quantile(ends).tolist())


def redrawn(
    score: Score | Callable[[Sequence[Any]], Sequence[float]], notes: Notes, *, draws: int, seed: int = 0
) -> Tensor:
    """The score of each draw, double [draws]; [draws, figures] where it is several figures.

    As many notes with the same seed are drawn alike: two networks on the same samples can be compared draw by draw.
    """
    if len(notes) < 2:
        raise DataError(f"{len(notes)} notes cannot be drawn anew; give one for each sample, two samples at least")
    blocks = _drawn(len(notes), draws, seed)
    if score is mean:
        values = _numbers(notes)
        sums = [values.index_select(0, block.flatten()).view_as(block).sum(1) for block in blocks]
        return torch.cat(sums)[:draws] / len(values)
    rows = islice(chain.from_iterable(block.tolist() for block in blocks), draws)
    return torch.tensor([score([notes[i] for i in row]) for row in rows], dtype=torch.float64)


def paired_bootstrap(
    score: Score, first: Notes, second: Notes, confidence: float = 0.95, *, draws: int = 2000, seed: int = 0
) -> Interval:
    """The interval of score(first) − score(second), notes on the same samples: each draw takes the same from both.

    Args:
        score: A function of some notes; `intervals.mean` is fast.
        first: One note for each sample, two at least.
        second: The same samples, in the same order.
        confidence: Above 0 and below 1.
        draws: How often samples are drawn anew; at least 2 / (1 - confidence).
        seed: Of the draws.

    Example:
        >>> mean = measure.intervals.mean
        >>> low, high = measure.intervals.paired_bootstrap(mean, [2.0, 4.0, 6.0], [1.0, 3.0, 5.0])
        >>> low, high
        (1.0, 1.0)
    """
    if len(first) != len(second):
        raise DataError(f"{len(first)} notes against {len(second)}; give both on the same samples, in the same order")
    if score is mean:
        return bootstrap(mean, _numbers(first) - _numbers(second), confidence, draws=draws, seed=seed)
    _check_draws(draws, confidence)
    ours, theirs = (redrawn(score, notes, draws=draws, seed=seed) for notes in (first, second))
    return middle(ours - theirs, confidence)


def _drawn(samples: int, draws: int, seed: int) -> Iterator[Tensor]:
    """Numbers of the samples of each draw, blocks of [rows, samples], for `draws` rows or some more.

    A block has at least two rows: torch cuts a single long row up by the number of threads when it adds it up.
    """
    generator, rows = torch.Generator().manual_seed(seed), min(draws, max(2, BLOCK // samples))
    for _ in range(0, draws, rows):
        yield torch.randint(samples, (rows, samples), generator=generator, dtype=torch.int32)


def _numbers(notes: Notes) -> Tensor:
    values = torch.as_tensor(notes, dtype=torch.float64, device="cpu")
    if values.dim() != 1:
        raise DataError(f"notes of shape {tuple(values.shape)} are not one number for each sample; give [samples]")
    return values


def _deviations(confidence: float) -> float:
    """How many standard deviations to each side hold this share of a normal distribution."""
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence={confidence!r} is not between 0 and 1; give 0.95 for 95 %")
    return -NormalDist().inv_cdf((1 - confidence) / 2)


def _check_draws(draws: int, confidence: float) -> None:
    _deviations(confidence)  # refuses what is no confidence
    least = math.ceil(2 / (1 - confidence) - 1e-6)
    if draws < least:
        raise ConfigError(f"draws={draws!r} leave none outside of {confidence:.4g}; give at least {least}")
