"""What benchmarks.fronts has measured, read again: points of settings, and one method beside another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.real import NETWORKS, Note, Real
from spikecast.measure.intervals import Interval, mean, paired_bootstrap, paired_share
from spikecast.measure.verdicts import At, Setting, Verdicts, two_sided

OTHERS = ("dcgs", "dcgs_published", "ecmt", "hmt")
STEPS = (1, 2, 4, 8)
UNSEEN = ", calibrated on val"  # other samples than all other settings have: no part of a method's front
DRAWS, DRAWS_OF_BOXES = 400, 40  # a mean average precision takes a third of a second


@dataclass(frozen=True)
class Point:
    """A setting of a network after so many steps."""

    setting: str
    t: int
    slots: int
    notes: list[Note]
    energies: dict[str, float]  # over the ANN's, by each costs

    @property
    def energy(self) -> float:
        """Under the paper's costs, by which all is compared."""
        return self.energies["paper"]

    @property
    def name(self) -> str:
        return f"{self.setting} T={self.t}"

    @property
    def method(self) -> str:
        return self.setting.split(",")[0]


def points(folder: Path) -> tuple[list[Point], list[Note]]:
    """All that was measured of a network, and its ANN."""
    found, ann = [], []
    for file in sorted(folder.glob("*.json")):
        data = json.loads(file.read_text())
        if not isinstance(data["energy"], dict):
            raise SystemExit(f"{file} is of an older form, with one list of costs; measure again, in another --folder")
        ann = data["ann"]
        steps = zip(data["slots"], data["notes"], zip(*data["energy"].values(), strict=True), strict=True)
        found += [
            Point(data["setting"], t, slots, notes, dict(zip(data["energy"], energies, strict=True)))
            for t, (slots, notes, energies) in enumerate(steps, 1)
        ]
    return found, ann


def difference(real: Real, first: Sequence[Note], second: Sequence[Note]) -> tuple[float, Interval]:
    """Score less score on the same samples, and the interval; in per cent or the score's own unit."""
    if real.task == "classes":
        ours, theirs = (torch.tensor([note[0] for note in notes]) == 1 for notes in (first, second))
        pair = paired_share(ours, theirs)
        return 100 * pair.difference, Interval(100 * pair.interval.low, 100 * pair.interval.high)
    interval = paired_bootstrap(real.score, list(first), list(second), draws=draws_of(real))
    return real.score(first) - real.score(second), interval


def draws_of(real: Real) -> int:
    return DRAWS_OF_BOXES if real.task == "boxes" else DRAWS


def beside(name: str, found: Iterable[Point], first: str, second: str) -> Verdicts:
    """One method of a network beside another at every energy that either reaches, in the units of `difference`."""
    real = NETWORKS[name]
    sides: dict[str, list[Setting]] = {first: [], second: []}
    for p in found:
        if p.method in sides and not p.setting.endswith(UNSEEN):
            notes = [note[0] for note in p.notes] if real.task == "classes" else p.notes
            sides[p.method].append(Setting(p.energy, notes))
    score, scale = (mean, 100) if real.task == "classes" else (real.score, 1)
    verdicts = two_sided(sides[first], sides[second], score, draws=draws_of(real))
    return Verdicts([_scaled(at, scale) for at in verdicts.energies])


def _scaled(at: At, scale: int) -> At:
    ours, theirs = (None if x is None else scale * x for x in (at.first, at.second))
    interval = at.interval and Interval(scale * at.interval.low, scale * at.interval.high)
    return At(at.energy, ours, theirs, interval)


def gap_text(gap: float, interval: Interval) -> str:
    """A difference and its interval."""
    return f"{gap:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"
