"""SpikingJelly's ann2snn on a real network, run by benchmarks.peers in SpikingJelly's own environment.

python -m benchmarks.peer_spikingjelly '{"network": "VGG-16", "recipe": "max", "steps": [8, 64], "samples": 100}'
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch
from spikingjelly.activation_based import ann2snn, functional, neuron
from torch import Tensor, nn

from benchmarks.real import NETWORKS, Real

# As SpikingJelly's own examples have them.
RECIPES: dict[str, Callable[[Any], Any]] = {
    "max": lambda data: ann2snn.RateCodingRecipe(dataloader=data, mode="Max"),
    "robust": lambda data: ann2snn.RateCodingRecipe(
        dataloader=data, mode="99.9%", channel_wise=True, pre_spike_maxpool=True, half_threshold=True
    ),
    "balanced": lambda data: ann2snn.LocalThresholdBalancingRecipe(dataloader=data),
}


def answers(snn: nn.Module, x: Tensor, steps: list[int]) -> Iterator[tuple[int, Tensor]]:
    """Summed over the first so many steps, which is how its examples read a network."""
    functional.reset_net(snn)
    total = torch.zeros(())
    for t in range(1, max(steps) + 1):
        total = total + snn(x)
        if t in steps:
            yield t, total / t


def notes(real: Real, model: nn.Module, snn: nn.Module, steps: list[int]) -> tuple[dict[int, Any], list[Any]]:
    """What each sample says after so many steps, and what it said to the ANN."""
    x, y = real.read("reported")
    said: dict[int, Any] = {t: [] for t in steps}
    ann: list[Any] = []
    for part, truth in zip(x.split(real.batch), y.split(real.batch), strict=True):
        reference = model(part)
        ann += real.notes(reference, reference, truth)
        for t, answer in answers(snn, part, steps):
            said[t] += real.notes(answer, reference, truth)
    return said, ann


def seconds(model: nn.Module, snn: nn.Module, x: Tensor, steps: list[int]) -> dict[int, float]:
    """Of so many steps of a batch over as many runs of the ANN; the best of three, in turns."""
    best = dict.fromkeys((0, *steps), float("inf"))  # 0: of the ANN
    for _ in range(3):
        began = time.perf_counter()
        model(x)
        best[0] = min(best[0], time.perf_counter() - began)
        began = time.perf_counter()
        for t, _ in answers(snn, x, steps):
            best[t] = min(best[t], time.perf_counter() - began)
    return {t: best[t] / (t * best[0]) for t in steps}


@torch.inference_mode()
def main() -> None:
    given = json.loads(sys.argv[1])
    real = replace(NETWORKS[given["network"]], samples=given["samples"])
    model = real.build().eval()
    with torch.inference_mode(False):
        data = real.read("calibration")[0].split(real.batch)
        snn = ann2snn.Converter(recipe=RECIPES[given["recipe"]](data), device="cpu").convert(copy.deepcopy(model))
    spiking = sum(isinstance(module, neuron.BaseNode) for module in snn.modules())
    found: dict[str, Any] = {"version": version("spikingjelly"), "layers": spiking}
    if spiking:
        found["notes"], found["ann"] = notes(real, model, snn, given["steps"])
        found["seconds"] = seconds(model, snn, data[0], given["steps"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
