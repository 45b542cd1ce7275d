"""What the process of every other tool does: reads what it is asked, converts, answers, takes the time, prints JSON.

Run by benchmarks.peers in that tool's own environment, where spikecast is not:
python -m benchmarks.peer_sinabs '{"network": "VGG-16", "recipe": "default", "steps": [8], "samples": 100, "rounds": 3}'
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.real import NETWORKS, Note, Real

Recipe = Callable[[nn.Module, Sequence[Tensor]], nn.Module]


class Spikes:
    """Counts what neurons send: a hook on each."""

    def __init__(self) -> None:
        self.sent = 0.0
        self.neurons: dict[nn.Module, int] = {}  # for one sample

    def __call__(self, neuron: nn.Module, _: object, sent: Tensor) -> None:
        self.sent += float(sent.abs().sum())
        self.neurons[neuron] = sent[0].numel()


@dataclass(frozen=True)
class Peer:
    """A tool: how it converts a copy of a network from batches of samples, its neurons, and how they forget."""

    package: str
    recipes: Mapping[str, Recipe]
    neuron: type[nn.Module]
    reset: Callable[[nn.Module], object]

    def answers(self, snn: nn.Module, x: Tensor, steps: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        """Summed over the first so many steps of a constant input, from neurons that know nothing of other samples."""
        self.reset(snn)
        total = torch.zeros(())
        for t in range(1, max(steps) + 1):
            total = total + snn(x)
            if t in steps:
                yield t, total / t

    def notes(
        self, real: Real, model: nn.Module, snn: nn.Module, steps: Sequence[int]
    ) -> tuple[dict[int, list[Note]], list[Note], dict[int, float]]:
        """What each sample says after so many steps, what it said to the ANN, and the spikes of a neuron so far."""
        x, y = real.read("reported")
        spikes, sent = Spikes(), dict.fromkeys(steps, 0.0)
        for module in snn.modules():
            if isinstance(module, self.neuron):
                module.register_forward_hook(spikes)
        said: dict[int, list[Note]] = {t: [] for t in steps}
        ann: list[Note] = []
        for part, truth in zip(x.split(real.batch), y.split(real.batch), strict=True):
            reference = model(part)
            ann += real.notes(reference, reference, truth)
            spikes.sent = 0.0
            for t, answer in self.answers(snn, part, steps):
                said[t] += real.notes(answer, reference, truth)
                sent[t] += spikes.sent
        return said, ann, {t: count / (sum(spikes.neurons.values()) * len(x)) for t, count in sent.items()}

    def seconds(
        self, model: nn.Module, snn: nn.Module, x: Tensor, steps: Sequence[int], rounds: int
    ) -> dict[int, float]:
        """Of so many steps of a batch over as many runs of the ANN; the best of the rounds, in turns, or NaN."""
        best = dict.fromkeys((0, *steps), float("inf"))  # 0: of the ANN
        for _ in range(rounds):
            began = time.perf_counter()
            model(x)
            best[0] = min(best[0], time.perf_counter() - began)
            began = time.perf_counter()
            for t, _ in self.answers(snn, x, steps):
                best[t] = min(best[t], time.perf_counter() - began)
        return {t: best[t] / (t * best[0]) for t in steps}

    def main(self) -> None:
        given = json.loads(sys.argv[1])
        real = replace(NETWORKS[given["network"]], samples=given["samples"])
        model = real.build().eval()
        data = real.read("calibration")[0].split(real.batch)
        snn = self.recipes[given["recipe"]](copy.deepcopy(model), data)
        layers = sum(isinstance(module, self.neuron) for module in snn.modules())
        found: dict[str, Any] = {"version": version(self.package), "layers": layers}
        with torch.inference_mode():
            if layers:
                found["seconds"] = self.seconds(model, snn, data[0], given["steps"], given["rounds"])
                found["notes"], found["ann"], found["spikes"] = self.notes(real, model, snn, given["steps"])
        print(json.dumps(found))
