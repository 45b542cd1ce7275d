"""What benchmarks.fronts has measured, written down and read again: points of settings, one method beside another.

A record is a JSON file, packed, of one setting of one network: what each sample said after each step, and the energy.
Records are part of the repository, so that what README says of them can be checked without measuring for hours.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.real import NETWORKS, Note, Real
from spikecast.measure.intervals import Interval, mean, paired_bootstrap, paired_share
from spikecast.measure.verdicts import At, Setting, Verdicts, two_sided

RECORDS = Path(__file__).parent / "records"
ENDING = ".json.xz"
OTHERS = ("dcgs", "dcgs_published", "ecmt", "hmt")
STEPS = (1, 2, 4, 8)
UNSEEN = ", calibrated on val"  # other samples than all other settings have: no part of a method's front
# Scores that are the mean of something of each sample, of which more is better.
MEANS: Mapping[str, Callable[[Sequence[Note]], list[float]]] = {
    "classes": lambda notes: [note[0] for note in notes],
    "tokens": lambda notes: [-note[0] for note in notes],
}
DRAWS = 400


@dataclass(frozen=True)
class Point:
    """A setting of a network after so many steps."""

    setting: str
    t: int
    slots: int
    notes: list[Note]
    energies: dict[str, float]  # over the ANN's, by each costs
    nats: float | None = None  # the mean divergence from the ANN's probabilities, where answers are classes

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


def write_record(target: Path, found: dict[str, Any]) -> None:
    """One setting of a network; a file that is there is whole.

    Of classes only what is counted stays for each sample, right and like the ANN; divergences become their mean.
    """
    if NETWORKS[found["network"]].task == "classes":
        nats = [math.fsum(note[2] for note in notes) / len(notes) for notes in found["notes"]]
        notes = [[[int(x) for x in note[:2]] for note in notes] for notes in found["notes"]]
        found = {**found, "notes": notes, "nats": nats, "ann": [[int(x) for x in note[:2]] for note in found["ann"]]}
    _write(target, found)


def _write(target: Path, found: dict[str, Any]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_bytes(lzma.compress(json.dumps(found, separators=(",", ":")).encode()))
    part.replace(target)


def copy_record(source: Path, target: Path, changes: dict[str, Any]) -> None:
    """A setting that makes the same network as another one."""
    _write(target, {**read_record(source), **changes})


def read_record(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress(file.read_bytes()))
    return found


def moved(name: str, folder: Path, other: Path) -> Iterator[str]:
    """How far the records of a network in two folders are apart, as two processors or commits make them."""
    real = NETWORKS[name]
    for file in sorted((folder / name).glob(f"*{ENDING}")):
        if not (other / name / file.name).is_file():
            continue
        first, second = read_record(file), read_record(other / name / file.name)
        both = list(zip(first["notes"], second["notes"], strict=True))
        differ = max(sum(x != y for x, y in zip(*step, strict=True)) for step in both)
        score = max(abs(real.score(mine) - real.score(theirs)) for mine, theirs in both)
        energies = zip(first["energy"]["paper"], second["energy"]["paper"], strict=True)
        energy = max(abs(x / y - 1) for x, y in energies)
        yield (
            f"{name}, {first['setting']} ({first['commit']} and {second['commit']}): at most {differ} of "
            f"{len(first['ann'])} samples differ after a step, the score by {score:.4g}, energy by {energy:.3%}"
        )


def points(folder: Path) -> tuple[list[Point], list[Note]]:
    """All that was measured of a network, and its ANN."""
    found, ann = [], []
    for file in sorted(folder.glob(f"*{ENDING}")):
        data = read_record(file)
        ann = data["ann"]
        energies = [dict(zip(data["energy"], step, strict=True)) for step in zip(*data["energy"].values(), strict=True)]
        nats = data.get("nats", [None] * len(energies))
        found += [
            Point(data["setting"], t, *step)
            for t, step in enumerate(zip(data["slots"], data["notes"], energies, nats, strict=True), 1)
        ]
    return found, ann


def difference(real: Real, first: Sequence[Note], second: Sequence[Note]) -> tuple[float, Interval]:
    """Score less score on the same samples, and the interval; in per cent or the score's own unit."""
    if real.task == "classes":
        ours, theirs = (torch.tensor([note[0] for note in notes]) == 1 for notes in (first, second))
        pair = paired_share(ours, theirs)
        return 100 * pair.difference, Interval(100 * pair.interval.low, 100 * pair.interval.high)
    interval = paired_bootstrap(real.score, list(first), list(second), draws=DRAWS)
    return real.score(first) - real.score(second), interval


def beside(name: str, found: Iterable[Point], first: str, second: str) -> Verdicts:
    """One method of a network beside another at every energy that either reaches, in the units of `difference`.

    Perplexities are compared by their logarithm, in nats: what two settings have on a part of the samples each is the
    mean of those.
    """
    real = NETWORKS[name]
    sides: dict[str, list[Setting]] = {first: [], second: []}
    for p in found:
        if p.method in sides and not p.setting.endswith(UNSEEN):
            sides[p.method].append(Setting(p.energy, MEANS[real.task](p.notes) if real.task in MEANS else p.notes))
    score, scale = (mean if real.task in MEANS else real.score, 100 if real.task == "classes" else 1)
    verdicts = two_sided(sides[first], sides[second], score, draws=DRAWS)
    return Verdicts([_scaled(at, scale) for at in verdicts.energies])


def _scaled(at: At, scale: int) -> At:
    ours, theirs = (None if x is None else scale * x for x in (at.first, at.second))
    interval, band = (ends and Interval(scale * ends.low, scale * ends.high) for ends in (at.interval, at.band))
    return At(at.energy, ours, theirs, interval, band)


def gap_text(gap: float, interval: Interval) -> str:
    """A difference and its interval."""
    return f"{gap:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"
