"""A reference interpreter of NIR's stock primitives, one step at a time, to say what an exported graph computes.

A step is one unit of time. Within a step every node is computed once, after what leads to it; what closes a cycle
must be a Delay. Where NIR leaves a choice, or its importers differ, `Reading` says which one is taken.
"""

from __future__ import annotations

import graphlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spikecast.errors import DataError


@dataclass(frozen=True)
class Reading:
    """How IF neurons are read: as spikecast means them, or as some importer does."""

    soft_reset: bool = True  # subtract the threshold; else the potential starts again at 0
    strict: bool = False  # fire above the threshold only
    many_spikes: bool = False  # several spikes in one step
    leak: float = 1.0  # what is left of the potential after a step
    floor: float | None = None  # the potential is cut off there


class Interpreter:
    """A graph ready to run; nested graphs are taken apart first."""

    def __init__(self, graph: Any, reading: Reading | None = None) -> None:
        self.reading = Reading() if reading is None else reading
        self.nodes: dict[str, Any] = {}
        self.sources: dict[str, list[str]] = {}
        self._take(graph, "")
        self.inputs = [name for name, node in graph.nodes.items() if type(node).__name__ == "Input"]
        self.outputs = [name for name, node in graph.nodes.items() if type(node).__name__ == "Output"]
        self.order = self._order()

    def run(self, x: Tensor, num_steps: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The output of every step [T, batch, ...], and what each named node of the top graph sent."""
        if len(self.inputs) != 1 or len(self.outputs) != 1:
            raise DataError("a graph with several inputs or outputs has host ops in between; export without split=True")
        states: dict[str, Tensor] = {}
        steps = [self._step(x, states) for _ in range(num_steps)]
        watched = [n for n in self.order if "/" not in n or n.endswith("/output")]
        sent = {n.removesuffix("/output"): torch.stack([step[n] for step in steps]) for n in watched}
        return sent[self.outputs[0]], sent

    def _take(self, graph: Any, prefix: str) -> None:
        """Flatten nested graphs: their Input and Output nodes stay as plain wires."""
        kinds = {name: type(node).__name__ for name, node in graph.nodes.items()}
        for name, node in graph.nodes.items():
            if kinds[name] == "NIRGraph":
                self._take(node, f"{prefix}{name}/")
                continue
            self.nodes[prefix + name] = node
            self.sources.setdefault(prefix + name, [])
        for a, b in graph.edges:
            source = f"{prefix}{a}/output" if kinds[a] == "NIRGraph" else prefix + a
            target = f"{prefix}{b}/input" if kinds[b] == "NIRGraph" else prefix + b
            self.sources.setdefault(target, []).append(source)

    def _order(self) -> list[str]:
        before = {name: [] if self._kind(name) == "Delay" else sources for name, sources in self.sources.items()}
        try:
            return list(graphlib.TopologicalSorter(before).static_order())
        except graphlib.CycleError as error:
            raise DataError(f"a cycle without a Delay: {' -> '.join(error.args[1][:4])}") from None

    def _step(self, x: Tensor, states: dict[str, Tensor]) -> dict[str, Tensor]:
        sent: dict[str, Tensor] = {}

        def arrived(name: str) -> Tensor:
            first, *others = (sent[source] for source in self.sources[name])
            return sum(others, first)

        for name in self.order:
            if name in self.inputs:
                sent[name] = x
            elif self._kind(name) == "Delay":
                sent[name] = states.get(name, x.new_zeros(len(x), *self.nodes[name].delay.shape))
            else:
                sent[name] = self._apply(name, arrived(name), states)
        states.update((name, arrived(name)) for name in self.nodes if self._kind(name) == "Delay")
        return sent

    def _kind(self, name: str) -> str:
        return type(self.nodes[name]).__name__

    def _apply(self, name: str, x: Tensor, states: dict[str, Tensor]) -> Tensor:
        node, kind = self.nodes[name], self._kind(name)
        match kind:
            case "Input" | "Output":
                return x
            case "Affine":
                return torch.nn.functional.linear(x, _tensor(node.weight), _tensor(node.bias))
            case "Linear":
                return torch.nn.functional.linear(x, _tensor(node.weight))
            case "Conv2d":
                sizes = [tuple(int(v) for v in a) for a in (node.stride, node.padding, node.dilation)]
                weight, bias = _tensor(node.weight), _tensor(node.bias)
                return torch.nn.functional.conv2d(x, weight, bias, sizes[0], sizes[1], sizes[2], int(node.groups))
            case "Flatten":
                return x.flatten(1)
            case "Scale":
                return x * _tensor(node.scale)
            case "Threshold":
                return (x > _tensor(node.threshold)).to(x.dtype)
            case "I":
                states[name] = x * _tensor(node.r) + states.get(name, 0.0)
                return states[name]
            case "IF":
                return self._fire(name, node, x, states)
        raise DataError(f"the reference interpreter does not know NIR's {kind} ({name})")

    def _fire(self, name: str, node: Any, x: Tensor, states: dict[str, Tensor]) -> Tensor:
        rule, threshold = self.reading, _tensor(node.v_threshold)
        potential = x * _tensor(node.r) + rule.leak * states.get(name, torch.zeros_like(x))
        if rule.many_spikes:
            spikes = torch.floor(potential / threshold).clamp_min(0.0)
        else:
            spikes = (potential > threshold if rule.strict else potential >= threshold).to(x.dtype)
        potential = potential - spikes * threshold if rule.soft_reset else torch.where(spikes > 0, 0.0, potential)
        states[name] = potential if rule.floor is None else potential.clamp_min(rule.floor)
        return spikes


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
