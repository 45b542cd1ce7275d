"""SpikingJelly's ann2snn beside spikecast on the same real networks: python -m benchmarks.peers [--only VGG-16]

Each tool converts the pretrained network from the same calibration samples and answers the same samples (the second
half of `val`). Shown are the share of answers that are the ANN's, after so many steps, with a 95 % interval, and the
time of T steps over T runs of the ANN. SpikingJelly runs in its own environment, which `make importers` installs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import spikecast
from benchmarks.real import NETWORKS, Note, Real
from benchmarks.timing import in_turns
from spikecast.experiments.compare import has_rectifiers
from spikecast.measure.intervals import share
from spikecast.network.base import Network
from spikecast.presets import preset
from spikecast.text import columns

PEER = Path.home() / ".cache/spikecast/importers/spikingjelly/bin/python"
# What its examples call the default, the robust way, and local threshold balancing (CVPR 2025).
RECIPES = ("max", "robust", "balanced")
STEPS = [1, 4, 8, 16, 32, 64]
OURS = {"ours": 1, "dcgs": 8}
HEAD = ("network", "tool", "setting", "T", "slots", "answers as the ANN's", "% right", "less the ANN's", "time")


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
    seconds: float

    def cells(self) -> tuple[str, ...]:
        count = len(self.notes)
        same = sum(note[1] for note in self.notes)
        right, own = (sum(note[0] for note in notes) for notes in (self.notes, self.ann))
        figures = (f"{100 * right / count:.1f}", f"{100 * (right - own) / count:+.1f}", f"{self.seconds:.2f}")
        agreement = share(round(same), count).text(same / count, digits=1)
        return (self.network, self.tool, self.setting, str(self.steps), str(self.slots), agreement, *figures)


def peer_rows(name: str, recipe: str, samples: int) -> Iterator[Row]:
    """SpikingJelly's, from its own process; a network that it cannot take is said, not left out."""
    given = {"network": name, "recipe": recipe, "steps": STEPS, "samples": samples}
    command = [str(PEER), "-m", "benchmarks.peer_spikingjelly", json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"{name}, SpikingJelly {recipe}: not converted: {last}", flush=True)
        return
    found = json.loads(done.stdout.splitlines()[-1])
    tool = f"SpikingJelly {found['version']}"
    if not found["layers"]:
        print(f"{name}, {tool} {recipe}: it finds no nn.ReLU module, so nothing spikes", flush=True)
        return
    for t in STEPS:
        yield Row(name, tool, recipe, t, t, found["notes"][str(t)], found["ann"], found["seconds"][str(t)])


def own_rows(name: str, real: Real, model: nn.Module, setting: str, steps: int) -> Iterator[Row]:
    """Ours, measured in this process."""
    calls = real.read("calibration")[0].split(real.batch)
    config = replace(preset(setting, num_steps=steps, rectifiers=has_rectifiers(model, calls)), output="logits")
    snn = spikecast.convert(model, calls, config)
    notes, ann = notes_of(real, model, snn)
    tool, slots = f"spikecast {spikecast.__version__}", snn.slots()
    for t, seconds in seconds_of(model, snn, calls[0], [t for t in STEPS if t <= steps]).items():
        yield Row(name, tool, setting, t, slots[t - 1], notes[t - 1], ann, seconds)


@torch.inference_mode()
def notes_of(real: Real, model: nn.Module, snn: Network) -> tuple[list[list[Note]], list[Note]]:
    """What each sample says after each step, and what it said to the ANN."""
    x, y = real.read("reported")
    notes: list[list[Note]] = [[] for _ in range(snn.config.num_steps)]
    ann: list[Note] = []
    for part, truth in zip(x.split(real.batch), y.split(real.batch), strict=True):
        reference = model(part)
        ann += real.notes(reference, reference, truth)
        for own, answer in zip(notes, snn.run(part), strict=True):
            own += real.notes(answer, reference, truth)
    return notes, ann


@torch.inference_mode()
def seconds_of(model: nn.Module, snn: Network, x: torch.Tensor, steps: Sequence[int]) -> dict[int, float]:
    """Of so many steps of a batch over as many runs of the ANN; the best of three, in turns."""
    works: dict[str, Callable[[], Any]] = {str(t): partial(snn.run, x, num_steps=t) for t in steps}
    best = {name: min(times) for name, times in in_turns({**works, "ann": lambda: model(x)}, 3).items()}
    return {t: best[str(t)] / (t * best["ann"]) for t in steps}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [name for name, real in NETWORKS.items() if real.task == "classes"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--recipes", nargs="*", choices=RECIPES, default=list(RECIPES))
    given = parser.parse_args(words)
    if not PEER.is_file():
        print(f"benchmarks.peers: no {PEER}; `make importers` installs it", file=sys.stderr)
        return 1
    rows: list[Row] = []
    for name in given.only:
        began = time.monotonic()
        real: Any = replace(NETWORKS[name], samples=given.samples)
        model = real.build().eval()
        for setting, steps in OURS.items():
            rows += own_rows(name, real, model, setting, steps)
        for recipe in given.recipes:
            rows += peer_rows(name, recipe, given.samples)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(columns([HEAD, *(row.cells() for row in rows)]))
    print("time: T steps over T runs of the ANN, a batch of calibration samples, best of three in turns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
