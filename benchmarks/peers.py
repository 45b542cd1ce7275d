"""SpikingJelly and Sinabs beside spikecast on the same real networks: python -m benchmarks.peers [--only VGG-16]

Each tool converts the pretrained network from the same calibration samples and answers the same samples (the second
half of `val`). Shown are the share of answers that are the ANN's, after so many steps, with a 95 % interval, and the
time of T steps over T runs of the ANN. Each other tool runs in its own environment, which `make importers` installs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isnan, nan
from pathlib import Path
from typing import Any

import torch
from torch import nn

import spikecast
from benchmarks.real import NETWORKS, Note, Real
from benchmarks.timing import in_turns
from spikecast.costs import COSTS
from spikecast.experiments.compare import has_rectifiers
from spikecast.measure.figures import Energy
from spikecast.measure.intervals import share
from spikecast.network.base import Network
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Tally
from spikecast.presets import preset
from spikecast.text import columns

HOME = Path.home() / ".cache/spikecast/importers"
# What the recipes are is said in benchmarks/peer_*.py, which cannot be read here: they import the other tools.
RECIPES = {"SpikingJelly": ("max", "robust", "balanced"), "Sinabs": ("default", "normalized", "scaled")}
STEPS = [1, 4, 8, 16, 32, 64]
OURS = {"ours": 1, "dcgs": 8}
HEAD = (
    "network",
    "tool",
    "setting",
    "T",
    "slots",
    "answers as the ANN's",
    "% right",
    "minus the ANN's",
    "spikes",
    "time",
)


@dataclass(frozen=True)
class Row:
    """One setting of a tool after so many steps."""

    network: str
    tool: str
    setting: str
    steps: int
    slots: int
    notes: list[Note]
    ann: list[Note]
    spikes: float  # of a neuron, in the mean over all
    seconds: float

    def cells(self) -> tuple[str, ...]:
        count = len(self.notes)
        same = sum(note[1] for note in self.notes)
        right, own = (sum(note[0] for note in notes) for notes in (self.notes, self.ann))
        seconds = "–" if isnan(self.seconds) else f"{self.seconds:.2f}"
        shares = (f"{100 * right / count:.1f}", f"{100 * (right - own) / count:+.1f}")
        figures = (*shares, f"{self.spikes:.2f}", seconds)
        agreement = share(round(same), count).text(same / count, digits=1)
        return (self.network, self.tool, self.setting, str(self.steps), str(self.slots), agreement, *figures)


@dataclass(frozen=True)
class Asked:
    """How much is measured."""

    samples: int = 100
    steps: Sequence[int] = tuple(STEPS)
    rounds: int = 3


def python_of(tool: str) -> Path:
    return HOME / tool.lower() / "bin/python"


def peer_rows(name: str, tool: str, recipe: str, asked: Asked) -> Iterator[Row]:
    """Another tool's, from its own process; a network that it cannot take is said, not left out."""
    given = json.dumps({"network": name, "recipe": recipe, **asdict(asked)})
    command = [str(python_of(tool)), "-m", f"benchmarks.peer_{tool.lower()}", given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"{name}, {tool} {recipe}: not converted: {last}", flush=True)
        return
    found = json.loads(done.stdout.splitlines()[-1])
    tool = f"{tool} {found['version']}"
    if not found["layers"]:
        print(f"{name}, {tool} {recipe}: it finds no nn.ReLU module, so nothing spikes", flush=True)
        return
    for t in asked.steps:
        each = (found[figure][str(t)] for figure in ("spikes", "seconds"))
        yield Row(name, tool, recipe, t, t, found["notes"][str(t)], found["ann"], *each)


def own_rows(name: str, real: Real, model: nn.Module, setting: str, asked: Asked) -> Iterator[Row]:
    """Ours, measured in this process."""
    steps = OURS[setting]
    calls = real.read("calibration")[0].split(real.batch)
    config = replace(preset(setting, num_steps=steps, rectifiers=has_rectifiers(model, calls)), output="logits")
    snn = spikecast.convert(model, calls, config)
    notes, ann, spikes = notes_of(real, model, snn)
    tool, slots = f"spikecast {spikecast.__version__}", snn.slots()
    for t, seconds in seconds_of(model, snn, calls[0], [t for t in STEPS if t <= steps], asked.rounds).items():
        yield Row(name, tool, setting, t, slots[t - 1], notes[t - 1], ann, spikes[t - 1], seconds)


@torch.inference_mode()
def notes_of(real: Real, model: nn.Module, snn: Network) -> tuple[list[list[Note]], list[Note], list[float]]:
    """What each sample says after each step, what it said to the ANN, and the spikes of a neuron up to each step."""
    x, y = real.read("reported")
    tally = Tally(snn.config.num_steps)
    notes: list[list[Note]] = [[] for _ in range(snn.config.num_steps)]
    ann: list[Note] = []
    for part, truth in zip(x.split(real.batch), y.split(real.batch), strict=True):
        reference = model(part)
        ann += real.notes(reference, reference, truth)
        for own, answer in zip(notes, metered_run(snn, ((part,), {}), tally), strict=True):
            own += real.notes(answer, reference, truth)
    return notes, ann, Energy(tally, COSTS["paper"], "paper", snn.slots()).spikes_per_neuron


@torch.inference_mode()
def seconds_of(model: nn.Module, snn: Network, x: torch.Tensor, steps: Sequence[int], rounds: int) -> dict[int, float]:
    """Of so many steps of a batch over as many runs of the ANN; the best of the rounds, in turns, or NaN."""
    if not rounds:
        return dict.fromkeys(steps, nan)
    works: dict[str, Callable[[], Any]] = {str(t): partial(snn.run, x, num_steps=t) for t in steps}
    best = {name: min(times) for name, times in in_turns({**works, "ann": lambda: model(x)}, rounds).items()}
    return {t: best[str(t)] / (t * best["ann"]) for t in steps}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [name for name, real in NETWORKS.items() if real.task == "classes"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    recipes = [recipe for group in RECIPES.values() for recipe in group]
    parser.add_argument("--ours", nargs="*", choices=OURS, default=list(OURS), help="settings of spikecast")
    parser.add_argument("--recipes", nargs="*", choices=recipes, default=recipes, help="of the other tools")
    parser.add_argument("--samples", type=int, default=Asked.samples)
    parser.add_argument("--steps", type=int, nargs="+", default=list(Asked.steps), help="of the other tools")
    parser.add_argument("--rounds", type=int, default=Asked.rounds, help="of which the best time is taken; 0: no time")
    given = parser.parse_args(words)
    asked = Asked(given.samples, given.steps, given.rounds)
    peers = [(tool, recipe) for tool, group in RECIPES.items() for recipe in group if recipe in given.recipes]
    for python in sorted({python_of(tool) for tool, _ in peers}):
        if not python.is_file():
            print(f"benchmarks.peers: no {python}; `make importers` installs it", file=sys.stderr)
            return 1
    rows: list[Row] = []
    for name in given.only:
        began = time.monotonic()
        real: Any = replace(NETWORKS[name], samples=given.samples)
        model = real.build().eval()
        for setting in given.ours:
            rows += own_rows(name, real, model, setting, asked)
        for tool, recipe in peers:
            rows += peer_rows(name, tool, recipe, asked)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(columns([HEAD, *(row.cells() for row in rows)]))
    print(f"time: T steps over T runs of the ANN, a batch of calibration samples, in turns, the best of {asked.rounds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
