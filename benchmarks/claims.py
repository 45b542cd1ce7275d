"""What README says of ours and dcgs, checked against what was measured: python -m benchmarks.fronts --check

README's sentence is true of a network if

- at every energy that either method reaches, ours has a setting,
- by the band, which holds at all energies at once, it is worse at none, and better at one at least; better at none,
  where README says that samples do not tell,
- by the interval of each energy alone it is worse at as many as README says,
- one step of ours costs less than PART of what four steps of dcgs cost, and is not worse beyond the interval.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measured import Point, beside, difference, gap_text, points
from benchmarks.real import NETWORKS

UNTOLD = ("VWW", "N-MNIST")  # where the samples do not tell the two apart
WORSE = {"KWS": 12, "Stories": 3}  # at how many energies each interval alone says so
PART = 0.75  # of the energy of four steps of dcgs


def listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


SENTENCE = (
    f"One step of `ours` costs less than {PART} of what four steps of `dcgs` cost, and on no network is it worse "
    "beyond the interval. At every energy that either of the two reaches, `ours` has a setting. Over all energies of a "
    "network together (95 % band), `ours` is worse at none. It is better at some on every network but "
    f"{listed(UNTOLD)}, which have too few samples to tell. At each energy alone (95 % interval), it is worse at "
    f"{listed([f'{count} energies of {name}' for name, count in WORSE.items()])}."
)
NEEDED = ("dcgs T=4", "ours T=1", "ours, half T=1", "ours, least T=1")


def check(folder: Path, names: Sequence[str]) -> int:
    """A line for each network; 0 if the sentence is true of all, 1 if it is not, 2 if something was not measured."""
    found = {name: {p.name: p for p in points(folder / name)[0]} for name in names}
    missing = [f"{name}: {key}" for name in names for key in NEEDED if key not in found[name]]
    if missing:
        print(f"not measured in {folder}: {'; '.join(missing)}; run python -m benchmarks.fronts", file=sys.stderr)
        return 2
    truths = [_is_true_of(name, found[name]) for name in names]
    false = [name for name, is_true in zip(names, truths, strict=True) if not is_true]
    verdict = f"false of {', '.join(false)}" if false else f"true of all {len(names)} networks"
    print(f"README's sentence is {verdict}")
    return 1 if false else 0


def _is_true_of(name: str, found: dict[str, Point]) -> bool:
    fronts = beside(name, found.values(), "ours", "dcgs")
    one, four = found["ours T=1"], found["dcgs T=4"]
    gap, interval = difference(NETWORKS[name], one.notes, four.notes)
    part = one.energy / four.energy
    compared = [(at.first - at.second, at) for at in fronts.energies if at.first is not None and at.second is not None]
    least, at = min(compared, key=lambda pair: pair[0])
    assert at.interval is not None
    is_true = (
        len(fronts.at("worse")) == WORSE.get(name, 0)
        and not fronts.at("worse", common=True)
        and not fronts.at("only second")
        and bool(fronts.at("better", common=True)) == (name not in UNTOLD)
        and interval.high >= 0
        and part < PART
    )
    print(
        f"{name}: {str(is_true).lower()}; {fronts.text('ours', 'dcgs')}; "
        f"the least difference {gap_text(least, at.interval)} at {at.energy:.3f}; "
        f"T=1 minus dcgs T=4 {gap_text(gap, interval)} for {part:.2f} of its energy",
        flush=True,
    )
    return is_true
