"""Where the neurons of a network are, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from spikecast.graph.program import Meta, Program

SILENT = 2.0**120  # a threshold that no activation reaches, so that its neuron never fires


@dataclass(frozen=True)
class Site:
    """A layer of neurons: what it reads, the interval it keeps, and the axis its channels lie on."""

    name: str
    source: str
    lower: float
    upper: float
    axis: int | None
    meta: Meta

    @property
    def is_rectifier(self) -> bool:
        return math.isfinite(self.lower) or math.isfinite(self.upper)

    def exact(self, inputs: Tensor) -> Tensor:
        """What its neurons would send if they could send exactly."""
        return inputs.clamp(self.lower, self.upper) if self.is_rectifier else inputs


@dataclass(frozen=True)
class Plan:
    """The program with its neurons in place, the sites by name, and what became of each op."""

    program: Program
    sites: Mapping[str, Site]
    fed: Mapping[str, str]  # weighted op -> "spikes", "analog input", "analog (override)", "analog"
    moved: Mapping[str, str]  # rectifier that moved behind a pool -> site
