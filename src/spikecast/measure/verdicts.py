"""Two methods at the same energy: which scores more, and where the samples are too few to tell.

A method is a front: the settings that score more than all cheaper ones. Between two of them it has what running the
one on a part of the samples and the other on the rest would give, which is a straight line (for perplexity, one of its
logarithm). Above the dearest, that one stands; below the cheapest there is nothing. As the best of many is the best by
luck too, fronts are chosen on every other sample, and all that is said comes from the rest. Who looks at many energies
finds some differences by luck as well: the band is wide enough for all energies together.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.measure.intervals import UNKNOWN, Interval, Score, mean, middle, paired_share, redrawn

Verdict = Literal["better", "undecided", "worse", "only first", "only second"]


class Setting(NamedTuple):
    """What a setting costs, and a note on each sample."""

    energy: float
    notes: Sequence[Any]


@dataclass(frozen=True)
class At:
    """Both scores at one energy, None where a method has none, and 95 % of the first less the second.

    `interval` holds at this energy alone. `band` is wider: in 95 % of cases the bands of all energies hold at once.
    """

    energy: float
    first: float | None
    second: float | None
    interval: Interval | None
    band: Interval | None = None

    @property
    def verdict(self) -> Verdict:
        """For the first; better and worse are said outside of the interval only."""
        return self._said(self.interval)

    @property
    def common_verdict(self) -> Verdict:
        """The same by the band, for one who looks at all energies."""
        return self._said(self.interval if self.band is None else self.band)

    def _said(self, interval: Interval | None) -> Verdict:
        if interval is None:
            return "only first" if self.second is None else "only second"
        return "better" if interval.low > 0 else "worse" if interval.high < 0 else "undecided"


@dataclass(frozen=True)
class Verdicts:
    """The first method beside the second at every energy that either reaches."""

    energies: list[At]

    def at(self, verdict: Verdict, *, common: bool = False) -> list[At]:
        """Where it is so; `common`: by the band that holds at all energies at once."""
        return [at for at in self.energies if (at.common_verdict if common else at.verdict) == verdict]

    @property
    def overall(self) -> Verdict:
        """Better or worse only if it is so at every energy: then many looks make no mistake more likely than one."""
        found = {at.verdict for at in self.energies}
        if "better" in found and found <= {"better", "only first"}:
            return "better"
        return "worse" if "worse" in found and found <= {"worse", "only second"} else "undecided"

    def text(self, first: str, second: str) -> str:
        """How often each verdict falls, with the names of the two methods."""
        words = {"only first": f"only {first} reaches", "only second": f"only {second} reaches"}
        counts = {word: len(self.at(word)) for word in get_args(Verdict)}
        said = ", ".join(f"{words.get(word, f'{word} at')} {count}" for word, count in counts.items() if count)
        sure = {word: len(self.at(word, common=True)) for word in ("better", "worse") if counts[word]}
        band = ", ".join(f"{word} at {count}" for word, count in sure.items())
        return f"{self.overall} over all; of {len(self.energies)} energies {said}" + (
            f"; by the band {band}" if band else ""
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        said = [{"verdict": at.verdict, "common_verdict": at.common_verdict} for at in self.energies]
        found = [{**dataclasses.asdict(at), **words} for at, words in zip(self.energies, said, strict=True)]
        return {"overall": self.overall, "energies": found}


@dataclass(frozen=True)
class _Part:
    """A setting of a front: its notes that are reported, their score, and that of every draw of them."""

    energy: float
    notes: Sequence[Any]
    score: float
    drawn: Tensor | None


Mixture = list[tuple[float, _Part]]  # weights and settings


class Front:
    """A method's settings that score more than all cheaper ones. Samples are drawn anew once, when it is made.

    More of the score is better; `samples` are the notes of each setting, `energies` those of all settings.
    """

    def __init__(self, settings: Sequence[Setting], score: Score, *, draws: int = 2000) -> None:
        numbers = {len(setting.notes) for setting in settings}
        if len(numbers) != 1 or 0 in numbers:
            raise DataError(f"{len(settings)} settings with {sorted(numbers)} notes; give some on the same samples")
        (self.samples,) = numbers
        self.score, self.energies = score, {setting.energy for setting in settings}
        starts = (0, 1) if self.samples > 1 else (0, 0)  # one sample is in both halves
        chosen, reported = (slice(start, None, 2) for start in starts)
        figures = [_finite(setting, setting.notes[chosen], score) for setting in settings]
        self.parts: list[_Part] = []
        most = -float("inf")
        for i in sorted(range(len(settings)), key=lambda i: (settings[i].energy, -figures[i])):
            if figures[i] > most:
                most, notes = figures[i], settings[i].notes[reported]
                figure = _finite(settings[i], notes, score)
                drawn = redrawn(score, notes, draws=draws) if len(notes) > 1 else None
                self.parts.append(_Part(settings[i].energy, notes, figure, drawn))

    def beside(self, other: Front) -> Verdicts:
        """This method beside another on the same samples, at every energy that either reaches.

        The interval comes from samples drawn anew, the same for all settings, with scores interpolated in each draw;
        for a `mean` that is the same as interpolating the notes of each sample. Where two settings meet whose notes are
        0 or 1, Tango's interval of their shares is taken, as elsewhere. The bands are as many standard errors wide as
        the most deviant energy of a draw has in 95 % of the draws.
        """
        if self.samples != other.samples:
            raise DataError(f"{self.samples} samples against {other.samples}; give both on the same samples")
        energies = sorted(self.energies | other.energies)
        found = [_at(e, _mixture(self.parts, e), _mixture(other.parts, e), self.score) for e in energies]
        return Verdicts(_with_bands(found))


def two_sided(first: Sequence[Setting], second: Sequence[Setting], score: Score, *, draws: int = 2000) -> Verdicts:
    """Compare two methods by their settings; of several, make each `Front` once."""
    return Front(first, score, draws=draws).beside(Front(second, score, draws=draws))


def _finite(setting: Setting, notes: Sequence[Any], score: Score) -> float:
    found = score(notes)
    if not math.isfinite(found):
        raise DataError(
            f"the score of the setting at energy {setting.energy:.4g} is {found} on half of its samples, not finite; "
            "mend the score, or leave that setting out"
        )
    return found


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


def _at(energy: float, first: Mixture, second: Mixture, score: Score) -> tuple[At, Tensor | None]:
    """Both scores, and every draw of their difference where samples can be drawn."""
    ours, theirs = (sum(weight * part.score for weight, part in side) if side else None for side in (first, second))
    if not (first and second):
        return At(energy, ours, theirs, None), None
    parts = [*first, *((-weight, part) for weight, part in second)]
    scores = [weight * part.drawn for weight, part in parts if part.drawn is not None]
    drawn = torch.stack(scores).sum(0) if scores else None
    return At(energy, ours, theirs, _interval(first, second, drawn, score)), drawn


def _interval(first: Mixture, second: Mixture, drawn: Tensor | None, score: Score) -> Interval:
    a, b = first[0][1], second[0][1]
    if score is mean and len(first) == len(second) == 1 and all(note in (0, 1) for note in (*a.notes, *b.notes)):
        return paired_share(torch.tensor(a.notes) == 1, torch.tensor(b.notes) == 1).interval
    return UNKNOWN if drawn is None else middle(drawn)


def _with_bands(found: Sequence[tuple[At, Tensor | None]]) -> list[At]:
    """Each with a band around its difference, as many standard errors wide as hold at all energies at once.

    Where an interval is wider, as Tango's for few samples, that one is the band.
    """
    drawn = [draws for _, draws in found if draws is not None]
    if not drawn:
        return [dataclasses.replace(at, band=at.interval) for at, _ in found]
    errors = torch.stack([draws.std() for draws in drawn])
    away = (torch.stack(drawn) - torch.stack([draws.mean() for draws in drawn])[:, None]).abs()
    moving = errors > 0
    most = (away[moving] / errors[moving, None]).amax(0) if moving.any() else torch.zeros(1)
    width = torch.quantile(most.double(), 0.95).item()
    return [at if draws is None else _with_band(at, width * draws.std().item()) for at, draws in found]


def _with_band(at: At, half: float) -> At:
    assert at.first is not None
    assert at.second is not None
    assert at.interval is not None
    gap = at.first - at.second
    return dataclasses.replace(at, band=Interval(min(gap - half, at.interval.low), max(gap + half, at.interval.high)))
