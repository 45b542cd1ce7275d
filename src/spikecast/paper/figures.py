"""The figures of the paper that show results, as data: what a neuron fits (2), codings (4) and thresholds (5).

Figures 4 and 5 are settings to compare; any network and its data will do. Figure 2 is of one neuron and needs neither.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spikecast.config import Coding, Config
from spikecast.errors import ConfigError
from spikecast.kernels import encode
from spikecast.presets import preset
from spikecast.text import columns
from spikecast.theory.coding import receive
from spikecast.theory.neuron import Neuron

CODINGS: tuple[Coding, ...] = ("rate", "differential")
RANGE, POINTS = 2.5, 1001  # inputs of Figure 2, in units of the threshold
MOST_VALUES = 2**22  # that an ideal fit chooses from
# What each way of a figure changes in the paper's method; DC, RC, TI and LA are the paper's names.
WAYS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "coding": {"DC": {"coding": "differential"}, "RC": {"coding": "rate"}},
    "thresholds": {"TI": {"thresholds": "iteration_paper"}, "LA": {"thresholds": "quantile", "quantile": 0.999}},
}
SCALES = {"thresholds": 2.0}  # c of Figure 5; Figure 4 takes that of the method
NAMES = ("fit", *WAYS)


@dataclass(frozen=True)
class Fit:
    """What a neuron with the threshold 1 says of inputs x after T steps: `neuron`, and at best `ideal` (Figure 2).

    `ideal` is the nearest value that any spike train of T steps stands for; None where they are too many.
    """

    coding: Coding
    num_levels: int
    num_steps: int
    x: list[float]
    neuron: list[float]
    ideal: list[float] | None

    def rows(self) -> list[dict[str, Any]]:
        """A row for each input."""
        ideal: Sequence[float | None] = self.ideal or [None] * len(self.x)
        settings = {"coding": self.coding, "n": self.num_levels, "T": self.num_steps}
        figures = zip(self.x, self.neuron, ideal, strict=True)
        return [{**settings, "x": x, "neuron": neuron, "ideal": best} for x, neuron, best in figures]

    def error(self, values: Sequence[float] | None) -> float | None:
        """The mean distance from y = x for inputs within the threshold."""
        if values is None:
            return None
        errors = [abs(y - x) for x, y in zip(self.x, values, strict=True) if abs(x) <= 1]
        return sum(errors) / len(errors)


def fit(coding: Coding, *, num_levels: int = 1, num_steps: int = 3) -> Fit:
    """Figure 2 for one coding: inputs y = x, thresholds ±1 and the smaller levels, T steps."""
    Config(num_steps=num_steps, num_levels=num_levels, coding=coding)  # the rules for these, and their messages
    x = torch.linspace(-RANGE, RANGE, POINTS, dtype=torch.float64)
    neuron = Neuron(coding=coding, num_levels=num_levels)
    reached = encode(x.expand(num_steps, -1).contiguous(), torch.ones((), dtype=torch.float64), neuron).estimates[-1]
    values = sayable(coding, num_levels, num_steps)
    ideal = None if values is None else values[torch.bucketize(x, (values[1:] + values[:-1]) / 2)].tolist()
    return Fit(coding, num_levels, num_steps, x.tolist(), reached.tolist(), ideal)


def sayable(coding: Coding, num_levels: int, num_steps: int) -> Tensor | None:
    """The values that all trains of T spikes stand for, each once, in order; None where they are too many."""
    grid = math.lcm(*range(1, num_steps + 1)) * 2 ** (num_levels - 1)  # all values are multiples of 1 / grid
    if grid * num_steps > 2**52:
        return None
    levels = 2.0 ** -torch.arange(num_levels, dtype=torch.float64)
    spikes = torch.cat([-levels, levels, levels.new_zeros(1)])
    values = levels.new_zeros(1)
    for t in range(1, num_steps + 1):
        if len(values) * len(spikes) > MOST_VALUES:
            return None
        values = receive(values[:, None], spikes, t, coding).mul(grid).round().unique().div(grid)
    return values


def fits_table(fits: Iterable[Fit]) -> str:
    """How far each is from y = x, and how far it reaches."""
    rows: list[Sequence[str]] = [("coding", "n", "T", "mean error", "at best", "largest value")]
    for one in fits:
        errors = ("" if e is None else f"{e:.4f}" for e in (one.error(one.neuron), one.error(one.ideal)))
        rows.append((one.coding, str(one.num_levels), str(one.num_steps), *errors, f"{max(one.neuron):.4f}"))
    return f"{columns(rows)}\nerrors of inputs from -1 to 1, in units of the threshold"


def figure_configs(
    name: str, *, rectifiers: bool, levels: Sequence[int], num_steps: int, scale: float | None = None
) -> dict[str, Config]:
    """The ways that Figure 4 ("coding") or 5 ("thresholds") sets side by side, for each number of levels."""
    if name == "thresholds" and not rectifiers:
        raise ConfigError("thresholds are iterated for ReLUs, and this network has none; take one with ReLUs")
    given = SCALES.get(name) if scale is None else scale
    scaled: dict[str, Any] = {} if given is None else {"threshold_scale": given}
    methods = {n: preset("dcgs", num_steps=num_steps, num_levels=n, rectifiers=rectifiers) for n in levels}
    return {
        f"{way} n={n}": dataclasses.replace(method, **scaled, **changed)
        for way, changed in WAYS[name].items()
        for n, method in methods.items()
    }
