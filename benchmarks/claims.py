"""What README says of ours and dcgs, checked against what was measured: python -m benchmarks.fronts --check

README's sentence is true of a network if

- at every energy that either method reaches, ours has a setting, and is not worse beyond the interval; at one, where
  README says so,
- at one of them at least it is better beyond it; at none, where README says that samples do not tell,
- one step of ours costs less than PART of what four steps of dcgs cost, and is not worse beyond the interval.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measured import Point, beside, difference, gap_text, points
from benchmarks.real import NETWORKS

UNTOLD = ("VGG-16", "VWW", "N-MNIST")  # where the samples do not tell the two apart
WORSE = ("KWS",)  # where it is worse at one energy
PART = 0.75  # of the energy of four steps of dcgs
SENTENCE = (
    "At every energy that `ours` or `dcgs` reaches, `ours` has a setting. It is worse beyond the 95 % interval at one "
    f"of them, of one network ({WORSE[0]}; of a hundred that are looked at, chance alone makes some so). At some it is "
    f"better beyond it, on all networks but {', '.join(UNTOLD[:-1])} and {UNTOLD[-1]}, whose samples do not tell the "
    f"two apart. One step of the default costs less than {PART} of what four steps of `dcgs` cost, and is on no "
    "network worse beyond the interval."
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
        len(fronts.at("worse")) == (name in WORSE)
        and not fronts.at("only second")
        and bool(fronts.at("better")) == (name not in UNTOLD)
        and interval.high >= 0
        and part < PART
    )
    print(
        f"{name}: {str(is_true).lower()}; {fronts.text('ours', 'dcgs')}; "
        f"the least difference {gap_text(least, at.interval)} at {at.energy:.3f}; "
        f"T=1 less dcgs T=4 {gap_text(gap, interval)} for {part:.2f} of its energy",
        flush=True,
    )
    return is_true
