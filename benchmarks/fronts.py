"""Score against energy of the real networks, ours beside other methods: python -m benchmarks.fronts [--only ResNet-20]

    python -m benchmarks.fronts                            measure all settings, some six hours on two cores
    python -m benchmarks.fronts --settings "ours" "dcgs"   measure these; finished ones are kept in --folder
    python -m benchmarks.fronts --list                     ours beside each other method, at every energy of either
    python -m benchmarks.fronts --unreached                every point of another method that no point of ours reaches
    python -m benchmarks.fronts --check                    whether README's sentence on ours and dcgs is true (exit 0)
    python -m benchmarks.fronts --table                    all points, with intervals
    python -m benchmarks.fronts --page docs                results.md, fronts.svg and story.svg, for the docs

    python -m benchmarks.fronts --folder out/again --settings "ours"             measure anew, and then
    python -m benchmarks.fronts --folder out/again --beside benchmarks/records   see what has moved

Settings are calibrated on `calibration`; the budgets of ours are taken from what dcgs needs on the first half of `val`.
All figures are of the second half. Records are kept in benchmarks/records. What has one is not measured again: stop it
and go on as you like; remove records to measure anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import spikecast
from benchmarks.claims import check
from benchmarks.measured import ENDING, OTHERS, RECORDS, STEPS, UNSEEN, copy_record, moved, read_record, write_record
from benchmarks.real import NETWORKS, Note, Real
from benchmarks.results import against, draw, draw_story, page, table, unreached
from spikecast import Config
from spikecast.costs import COSTS
from spikecast.experiments.compare import has_rectifiers
from spikecast.network.base import Network
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Tally
from spikecast.presets import preset

FEWER = ", n=4"  # other methods have n = 8 unless their name ends so
PUBLISHED = "dcgs_published"  # which is dcgs on many networks; those are converted, but not run again
LONGEST = {"hmt": 4}  # steps, where not the last of STEPS: four with n = 8 cost as much as the ANN
OURS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, n=4": {"num_levels": 4},
    "ours, exact": {"num_levels": 10, "burst": 5},
    "ours, two steps": {"num_steps": 2},
    "ours, four steps": {"num_steps": 4},
}
# A setting of another method, its steps, and the share of their energy.
BUDGETS = {
    "ours, half": ("dcgs", 4, 0.57),
    "ours, least": ("dcgs", 1, 0.97),
    "ours, less": (f"dcgs{FEWER}", 1, 0.97),
}
SETTINGS = (*(other + levels for other in OTHERS for levels in ("", FEWER)), *OURS, *BUDGETS)


def config_of(setting: str, real: Real, model: nn.Module, folder: Path) -> Config:
    """The configuration of a setting; `budget=0.2`, `fidelity=0.01`, `burst=2` and the like are understood too."""
    output = "logits" if real.task in ("classes", "tokens") else "values"
    method = setting.removesuffix(FEWER)
    if method in OTHERS:
        rectifiers = has_rectifiers(model, real.read("calibration")[0].split(real.batch))
        steps, levels = LONGEST.get(method, STEPS[-1]), 8 if setting == method else 4
        return preset(method, num_steps=steps, num_levels=levels, rectifiers=rectifiers)
    if setting in BUDGETS:
        other, steps, part = BUDGETS[setting]
        spent = read_record(folder / f"{other}{ENDING}")["energy on the first half"][steps - 1]
        given = {"energy_budget": part * spent}
    elif setting in OURS:
        given = OURS[setting]
    else:
        words = (word.split("=") for word in setting.removeprefix("ours, ").split())
        given = {name: json.loads(value) for name, value in words}
    return Config(**{"num_steps": 1, "output": output, **given})


def measure(name: str, setting: str, folder: Path, *, unseen: bool = False, samples: int | None = None) -> None:
    """Convert with a setting and run the samples; what they said is written down.

    `unseen` calibrates on the first half of `val`, where `calibration` are images that the network was trained on.
    """
    real, label = NETWORKS[name], setting + UNSEEN * unseen
    if samples is not None:
        real = replace(real, samples=samples)
    target = folder / f"{label}{ENDING}"
    if target.is_file():
        return
    model = real.build()
    x = real.read("chosen on" if unseen else "calibration")[0][: real.calibration]
    config = config_of(setting, real, model, folder)
    began = time.monotonic()
    snn = spikecast.convert(model, x.split(real.batch), config)
    converted = time.monotonic() - began
    found = {
        "network": name,
        "setting": label,
        "version": spikecast.__version__,
        "config": config.to_json(),
        "calibration": len(x),
        "slots": snn.slots(),
        "commit": commit(),
    }
    paper = folder / f"{setting.replace(PUBLISHED, 'dcgs')}{ENDING}"
    if setting.startswith(PUBLISHED) and paper.is_file() and not unseen:
        other = spikecast.convert(
            model, x.split(real.batch), config_of(paper.name[: -len(ENDING)], real, model, folder)
        )
        if is_same(snn, other):
            copy_record(paper, target, {**found, "same network as": other.config.to_json()})
            return
    notes, ann, energy = run(real, model, snn, "reported")
    seconds = [converted, time.monotonic() - began - converted]
    found |= {"energy": energy, "notes": notes, "ann": ann, "seconds": seconds}
    if setting in {other for other, _, _ in BUDGETS.values()}:
        found["energy on the first half"] = run(real, model, snn, "chosen on", 100)[2]["paper"]
    write_record(target, found)


def is_same(snn: Network, other: Network) -> bool:
    """Whether two networks of one model are the same: then they answer with the same bits."""
    ours, theirs = snn.thresholds, other.thresholds
    same = ours.keys() == theirs.keys() and all(torch.equal(ours[site], theirs[site]) for site in ours)
    return same and (snn.neurons, snn.config.num_steps) == (other.neurons, other.config.num_steps)


def run(
    real: Real, model: nn.Module, snn: Network, split: Any, limit: int | None = None
) -> tuple[list[list[Note]], list[Note], dict[str, list[float]]]:
    """What each sample said after each step, what it said to the ANN, and the energy over the ANN's by each costs."""
    x, y = real.read(split)
    x, y = x[:limit], y[:limit]
    tally = Tally(snn.config.num_steps)
    notes: list[list[Note]] = [[] for _ in range(snn.config.num_steps)]
    ann: list[Note] = []
    for i in range(0, len(x), real.batch):
        part, truth = x[i : i + real.batch], y[i : i + real.batch]
        with torch.inference_mode():
            reference = model(part)
        ann += real.notes(reference, reference, truth)
        for own, answers in zip(notes, metered_run(snn, ((part,), {}), tally), strict=True):
            own += real.notes(answers.float(), reference, truth)
    ratios = {name: tally.ratio(costs) for name, costs in COSTS.items()}
    return notes, ann, {name: ratio for name, ratio in ratios.items() if ratio is not None}


def commit() -> str:
    """Of the sources that measure; "+" where they were changed since."""
    words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fronts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument(
        "--settings", nargs="+", default=SETTINGS, help='also "ours, burst=2 num_levels=6" and the like'
    )
    parser.add_argument("--folder", type=Path, default=RECORDS, help="where records are and go")
    parser.add_argument("--samples", type=int, help="more or fewer than usual; take a --folder of their own")
    parser.add_argument("--unseen", action="store_true", help="calibrate on the first half of val")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--unreached", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="other records of the same settings")
    parser.add_argument("--check", action="store_true", help="exit 1 if README is wrong, 2 if a measurement is missing")
    parser.add_argument("--page", type=Path, metavar="FOLDER", help="write results.md, fronts.svg and story.svg there")
    given = parser.parse_args(words)
    if given.check:
        return check(given.folder, given.only)
    views: dict[str, Callable[[str, Path], Iterator[str]]] = {"list": against, "unreached": unreached, "table": table}
    shown = [view for name, view in views.items() if getattr(given, name)]
    if given.beside is not None:
        for line in (line for name in given.only for line in moved(name, given.folder, given.beside)):
            print(line, flush=True)
        return 0
    for name in given.only:
        for line in (line for view in shown for line in view(name, given.folder / name)):
            print(line, flush=True)
        if shown:
            continue
        if given.page is None:
            for setting in given.settings:
                began = time.monotonic()
                measure(name, setting, given.folder / name, unseen=given.unseen, samples=given.samples)
                print(f"{name}, {setting}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if given.page is not None:
        draw(given.folder, given.only, given.page / "fronts.svg")
        draw_story(given.folder, given.page / "story.svg")
        text = "\n".join(page(given.folder, given.only))
        (given.page / "results.md").write_text(text.rstrip() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
