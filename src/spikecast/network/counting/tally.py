"""What was counted, in whole numbers: one row per op and per site, one number per step and column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from spikecast.costs import Costs
from spikecast.graph.program import Node

# dense       products the ANN computes, noted at the first step
# events      entries that are sent, times their fan-out; in a matrix product, pairs of the three products of Thm 4.3
# spikes      the same, with an averaged entry counted as the spikes it came from
# analog      entries that are sent but are no spikes, times their fan-out
# two         pairs of the two products a matrix product needs at least
# biases      outputs that a bias is added to
# graded      outputs of a graded unit
# fired       spikes of a site
# neurons     of a site
# updates     of neurons: one for each spike, and one in a silent step
Column = Literal["dense", "events", "spikes", "analog", "two", "biases", "graded", "fired", "neurons", "updates"]


@dataclass
class Line:
    """One op or site."""

    scope: str
    target: str
    columns: dict[str, list[int]] = field(default_factory=dict)  # a number for each step

    def __getitem__(self, column: Column) -> Tensor:
        return torch.tensor(self.columns.get(column, [0]))

    def accumulates(self, costs: Costs, num_steps: int) -> Tensor:
        """Accumulates at each step, as the costs count them."""
        events = self["spikes"] if costs.averaged_as_spikes else self["events"]
        pairs = self["two"] if costs.two_products else self["events"]
        own = pairs if "two" in self.columns else events
        own = own + (0 if costs.analog_as_multiply else self["analog"])
        return own.expand(num_steps)

    def picojoules(self, costs: Costs, num_steps: int) -> Tensor:
        """What is paid at each step."""
        multiplied = self["analog"].double() if costs.analog_as_multiply else torch.zeros(1)
        return (
            self.accumulates(costs, num_steps).double() * (costs.accumulate + costs.weight)
            + multiplied * (costs.multiply + costs.weight)
            + self["updates"] * costs.update
            + self["graded"] * costs.graded
            + self["biases"] * costs.bias
        )


@dataclass
class Tally:
    """The counts of some samples over `num_steps` steps, and the ops whose products nobody counts."""

    num_steps: int
    samples: int = 0
    lines: dict[str, Line] = field(default_factory=dict)
    uncounted: dict[str, str] = field(default_factory=dict)  # by name, what they are

    def add(self, name: str, node: Node, column: Column, t: int, counts: Tensor | list[int]) -> None:
        """Add what was counted from step t on."""
        line = self.lines.setdefault(name, Line(node.scope, node.kwargs.get("site", node.target)))
        own = line.columns.setdefault(column, [0] * self.num_steps)
        for k, number in enumerate(counts.tolist() if isinstance(counts, Tensor) else counts, t - 1):
            own[k] += number

    def note_uncounted(self, prefix: str, nodes: Iterable[Node]) -> None:
        """Remember ops that a ratio would leave out."""
        self.uncounted.update((prefix + node.name, node.op) for node in nodes)

    @property
    def macs(self) -> int:
        """Products of the ANN, of all samples, as far as they are counted."""
        return sum(int(line["dense"].sum()) for line in self.lines.values())

    def picojoules(self, costs: Costs) -> Tensor:
        """What all ops and sites pay at each step, of all samples."""
        return torch.stack([line.picojoules(costs, self.num_steps) for line in self.lines.values()]).sum(0)

    def ratio(self, costs: Costs) -> list[float] | None:
        """Energy over the ANN's, up to and with each step; None where the ANN's is unknown."""
        ann = costs.multiply * self.macs
        if self.uncounted or not ann:
            return None
        return [float(x) / ann for x in self.picojoules(costs).cumsum(0)]

    def merge(self, other: Tally) -> None:
        """Add what was counted elsewhere."""
        self.samples += other.samples
        self.uncounted.update(other.uncounted)
        for name, line in other.lines.items():
            own = self.lines.setdefault(name, Line(line.scope, line.target))
            for column, numbers in line.columns.items():
                before = own.columns.get(column, [0] * self.num_steps)
                own.columns[column] = [a + b for a, b in zip(before, numbers, strict=True)]

    def to_json(self) -> dict[str, Any]:
        lines = {name: [line.scope, line.target, line.columns] for name, line in self.lines.items()}
        return {"num_steps": self.num_steps, "samples": self.samples, "lines": lines, "uncounted": self.uncounted}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tally:
        lines = {name: Line(scope, target, dict(columns)) for name, (scope, target, columns) in data["lines"].items()}
        return cls(data["num_steps"], data["samples"], lines, dict(data["uncounted"]))
