"""What a leak costs a real network: python -m benchmarks.leak [--only ResNet-20] [--images 400]

Thresholds are those of the preset, from `calibration`; the figures are of the first half of `val`: agreement
with the ANN after some steps; divergence from it and energy under the paper's costs after the last.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence

import spikecast
from benchmarks.fronts import run
from benchmarks.real import NETWORKS, Note
from spikecast.measure.intervals import share
from spikecast.presets import preset

LEAKS = (0.0, 0.05, 0.2)
STEPS = (2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="ResNet-20", choices=[n for n, r in NETWORKS.items() if r.task == "classes"])
    parser.add_argument("--images", type=int, default=400)
    given = parser.parse_args()
    real = dataclasses.replace(NETWORKS[given.only], samples=given.images)
    model, calibration = real.build(), real.read("calibration")[0].split(real.batch)
    print("| preset | leak | " + " | ".join(f"T = {t}" for t in STEPS) + " | nats | energy |")
    print("|---" * (len(STEPS) + 4) + "|")
    for name in ("dcgs", "ecmt"):
        config = preset(name, num_steps=STEPS[-1], num_levels=4)
        for leak in LEAKS:
            snn = spikecast.convert(model, calibration, dataclasses.replace(config, leak=leak))
            notes, _, energy = run(real, model, snn, "chosen on")
            said = " | ".join(agreement(notes[t - 1]) for t in STEPS)
            nats = math.fsum(note[2] for note in notes[-1]) / len(notes[-1])
            print(f"| {name} | {leak:g} | {said} | {nats:.4f} | {energy[-1]:.3f} |", flush=True)


def agreement(notes: Sequence[Note]) -> str:
    """The share of samples with the ANN's class, and its interval."""
    same = sum(note[1] == 1 for note in notes)
    return share(same, len(notes)).text(same / len(notes), digits=1)


if __name__ == "__main__":
    main()
