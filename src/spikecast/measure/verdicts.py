"""Two methods at the same energy: which scores more, and where the samples are too few to tell.

A method is a front: the settings that score more than all cheaper ones. Between two of them it has what running the
one on a part of the samples and the other on the rest would give, which is a straight line. Above the dearest, that one
stands; below the cheapest there is nothing. As the best of many is the best by luck too, fronts are chosen on every
other sample, and all that is said comes from the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.measure.intervals import Interval, Score, mean, middle, paired_share, redrawn

Verdict = Literal["better", "undecided", "worse", "only first", "only second"]
UNKNOWN = Interval(-torch.finfo(torch.float64).max, torch.finfo(torch.float64).max)  # inf has no word in JSON


class Setting(NamedTuple):
    """What a setting costs, and a note on each sample."""

    energy: float
    notes: Sequence[Any]


@dataclass(frozen=True)
class At:
    """Both scores at one energy, None where a method has none, and 95 % of the first less the second."""

    energy: float
    first: float | None
    second: float | None
    interval: Interval | None

    @property
    def verdict(self) -> Verdict:
        """For the first; better and worse are said outside of the interval only."""
        if self.interval is None:
            return "only first" if self.second is None else "only second"
        return "better" if self.interval.low > 0 else "worse" if self.interval.high < 0 else "undecided"


@dataclass(frozen=True)
class Verdicts:
    """The first method beside the second at every energy that either reaches."""

    energies: list[At]

    def at(self, verdict: Verdict) -> list[At]:
        """Where it is so."""
        return [at for at in self.energies if at.verdict == verdict]

    @property
    def overall(self) -> Verdict:
        """Better or worse only if it is so at every energy: then many looks make no mistake more likely than one."""
        found = {at.verdict for at in self.energies}
        if "better" in found and found <= {"better", "only first"}:
            return "better"
        return "worse" if "worse" in found and found <= {"worse", "only second"} else "undecided"

    def text(self) -> str:
        """How often each verdict falls."""
        said = ", ".join(f"{word} at {len(self.at(word))}" for word in get_args(Verdict) if self.at(word))
        return f"{self.overall} over all; of {len(self.energies)} energies {said}"


@dataclass(frozen=True)
class _Part:
    """A setting of a front: its notes that are reported, their score, and that of every draw of them."""

    energy: float
    notes: Sequence[Any]
    score: float
    drawn: Tensor | None


Mixture = list[tuple[float, _Part]]  # weights and settings


def two_sided(first: Sequence[Setting], second: Sequence[Setting], score: Score, *, draws: int = 2000) -> Verdicts:
    """Compare two methods on the same samples at every energy that either reaches.

    More of the score is better. Its interval comes from samples drawn anew, the same for all settings, with scores
    interpolated in each draw; for a `mean` that is the same as interpolating the notes of each sample. Where two
    settings meet whose notes are 0 or 1, Tango's interval of their shares is taken, as elsewhere.
    """
    numbers = {len(setting.notes) for setting in (*first, *second)}
    if not first or not second or len(numbers) != 1 or 0 in numbers:
        raise DataError(
            f"{len(first)} settings against {len(second)}, with {sorted(numbers)} notes; give both on the same samples"
        )
    ours, theirs = (_front(settings, score, draws) for settings in (first, second))
    energies = sorted({setting.energy for setting in (*first, *second)})
    return Verdicts([_at(e, _mixture(ours, e), _mixture(theirs, e), score) for e in energies])


def _front(settings: Sequence[Setting], score: Score, draws: int) -> list[_Part]:
    starts = (0, 1) if len(settings[0].notes) > 1 else (0, 0)  # one sample is in both halves
    chosen, reported = (slice(start, None, 2) for start in starts)
    figures = [score(setting.notes[chosen]) for setting in settings]
    front: list[_Part] = []
    most = -float("inf")
    for i in sorted(range(len(settings)), key=lambda i: (settings[i].energy, -figures[i])):
        if figures[i] > most:
            most, notes = figures[i], settings[i].notes[reported]
            drawn = redrawn(score, notes, draws=draws) if len(notes) > 1 else None
            front.append(_Part(settings[i].energy, notes, score(notes), drawn))
    return front


def _mixture(front: Sequence[_Part], energy: float) -> Mixture:
    """The settings between which an energy lies, with their weights."""
    place = bisect_right([part.energy for part in front], energy)
    near = front[max(place - 1, 0) : place + 1]
    if place == 0:
        return []
    if len(near) == 1 or near[0].energy == energy:
        return [(1.0, near[0])]
    weight = (energy - near[0].energy) / (near[1].energy - near[0].energy)
    return [(1 - weight, near[0]), (weight, near[1])]


def _at(energy: float, first: Mixture, second: Mixture, score: Score) -> At:
    ours, theirs = (sum(weight * part.score for weight, part in side) if side else None for side in (first, second))
    return At(energy, ours, theirs, _interval(first, second, score) if first and second else None)


def _interval(first: Mixture, second: Mixture, score: Score) -> Interval:
    a, b = first[0][1], second[0][1]
    if score is mean and len(first) == len(second) == 1 and all(note in (0, 1) for note in (*a.notes, *b.notes)):
        return paired_share(torch.tensor(a.notes) == 1, torch.tensor(b.notes) == 1).interval
    parts = [*first, *((-weight, part) for weight, part in second)]
    scores = [weight * part.drawn for weight, part in parts if part.drawn is not None]
    return middle(torch.stack(scores).sum(0)) if scores else UNKNOWN
