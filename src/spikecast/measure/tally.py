"""What was counted, in whole numbers: one row per op and per site, one number per step and column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from spikecast.graph.program import Node

# dense       products the ANN computes, noted at the first step
# events      entries that are sent, times their fan-out; in a matrix product, pairs of the three products of Thm 4.3
# spikes      the same, with an averaged entry counted as the spikes it came from
# analog      entries that are sent but are no spikes, times their fan-out
# two         pairs of the two products a matrix product needs at least
# biases      outputs that a bias is added to
# graded      outputs of a graded unit
# fired       spikes of a site
# updates     neurons of a site
Column = Literal["dense", "events", "spikes", "analog", "two", "biases", "graded", "fired", "updates"]


@dataclass
class Line:
    """One op or site."""

    scope: str
    target: str
    columns: dict[str, Tensor] = field(default_factory=dict)  # int64 [T] each

    def __getitem__(self, column: Column) -> Tensor:
        found = self.columns.get(column)
        return torch.zeros(1, dtype=torch.int64) if found is None else found


@dataclass
class Tally:
    """The counts of some samples over `num_steps` steps."""

    num_steps: int
    samples: int = 0
    lines: dict[str, Line] = field(default_factory=dict)

    def add(self, name: str, node: Node, column: Column, t: int, counts: Tensor | int) -> None:
        """Add what was counted at step t (a number), or from step t on (a tensor)."""
        line = self.lines.setdefault(name, Line(node.scope, node.kwargs.get("site", node.target)))
        numbers = counts.cpu() if isinstance(counts, Tensor) else torch.tensor([counts])
        if column not in line.columns:
            line.columns[column] = torch.zeros(self.num_steps, dtype=torch.int64)
        line.columns[column][t - 1 : t - 1 + len(numbers)] += numbers

    def merge(self, other: Tally) -> None:
        """Add what was counted elsewhere."""
        self.samples += other.samples
        for name, line in other.lines.items():
            own = self.lines.setdefault(name, Line(line.scope, line.target))
            for column, numbers in line.columns.items():
                own.columns[column] = own.columns[column] + numbers if column in own.columns else numbers.clone()

    def to_json(self) -> dict[str, Any]:
        lines = {
            name: [line.scope, line.target, {c: numbers.tolist() for c, numbers in line.columns.items()}]
            for name, line in self.lines.items()
        }
        return {"num_steps": self.num_steps, "samples": self.samples, "lines": lines}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tally:
        lines = {
            name: Line(scope, target, {c: torch.tensor(numbers, dtype=torch.int64) for c, numbers in columns.items()})
            for name, (scope, target, columns) in data["lines"].items()
        }
        return cls(data["num_steps"], data["samples"], lines)
