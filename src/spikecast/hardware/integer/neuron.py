"""A multi-threshold neuron in whole numbers: threshold 1, levels by the exponent rule, spikes as sign and shift.

The paper's two potentials are redundant, v[t] = t·m_r[t+1], so the state is v = t·(r_in - r_out) alone, and for a
rectifying neuron its own t·r_out. From step to step both grow by t/(t-1):

    divide  u + u/(t-1), rounded to the nearest: the paper's 1/t
    shift   for chips that cannot divide: the gain 1/t gives way to 2**-floor(log2 t) at both ends of every wire, which
            is as valid a code (what counts is that they agree) and makes u grow by a shift of one at t = 2, 4, 8, ...

Rate coding needs neither: t·r only adds up. A burst repeats within a step: find the level, shift, subtract.

With firing_boundary=0.75 a level is the power of two nearest to the potential, with 1.0 the largest power of two in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from spikecast.config import Coding
from spikecast.errors import ConfigError
from spikecast.hardware.integer.widths import Widths
from spikecast.theory.firing import floor_exponent, nearest_exponent
from spikecast.theory.neuron import Neuron

Division = Literal["divide", "shift"]
GUARD = 10  # bits of an estimate below the smallest level
SLACK = 6  # a spike may overshoot a bound by 2**-6 of the smallest level, which is more than rounding adds up to


def check_boundary(site: str, neuron: Neuron) -> None:
    """Refuse neurons whose levels do not lie where leading bits change."""
    if neuron.firing_boundary not in (0.75, 1.0):
        raise ConfigError(
            f"site {site!r} has firing_boundary={neuron.firing_boundary}: whole numbers read levels off the leading "
            "bits, which have 0.75 and 1.0; convert with one of them"
        )


def keeps_estimate(neuron: Neuron) -> bool:
    """Whether neurons need t·r_out to stay in their interval: one that never falls stays above a lower bound."""
    return math.isfinite(neuron.upper) or (neuron.signed and math.isfinite(neuron.lower))


def gain(t: int, division: Division) -> float:
    """What a signal of step t moves a wire's value by: 1/t, or a power of two near it."""
    return 1 / t if division == "divide" else 2.0 ** (1 - t.bit_length())


def grown(u: Tensor, t: int, coding: Coding, division: Division) -> Tensor:
    """A value held as r/gain(t-1) as r/gain(t)."""
    if coding == "rate" or t == 1:
        return u
    if division == "shift":
        return u << (t.bit_length() - (t - 1).bit_length())
    return u + torch.div(2 * u + (t - 1), 2 * (t - 1), rounding_mode="floor")


@dataclass
class IntegerNeurons:
    """The neurons of one site. `fraction` is the number of bits of a membrane below 1, for each entry."""

    name: str
    neuron: Neuron
    threshold: Tensor
    fraction: Tensor
    division: Division

    def __post_init__(self) -> None:
        neuron = self.neuron
        self.bounded = keeps_estimate(neuron)
        self.offset = (neuron.initial_potential * torch.exp2(self.fraction.double())).round().long()
        self.scale = neuron.num_levels - 1 + GUARD  # bits of an estimate below 1
        self.membrane = self.estimate = torch.zeros((), dtype=torch.int64)

    def step(self, current: Tensor, t: int, widths: Widths) -> Tensor:
        """The pulses [burst, ...] for what arrived at step t: ±2**(n-1-k), 0 for silence."""
        neuron, pulses = self.neuron, []
        held = grown(self.membrane, t, neuron.coding, self.division) + current
        held = widths.fit(f"{self.name} membrane", held)
        estimate = grown(self.estimate, t, neuron.coding, self.division)
        for _ in range(neuron.burst):
            sign, shift = self._level(held + self.offset, estimate, t)
            held = held - (sign << (self.fraction + shift))
            if self.bounded:
                estimate = estimate + (sign << (self.scale + shift))
            pulses.append(sign << (neuron.num_levels - 1 + shift))
        self.membrane = held
        if self.bounded:
            estimate = estimate.maximum(self._bound(neuron.lower, t)).minimum(self._bound(neuron.upper, t))
            self.estimate = widths.fit(f"{self.name} estimate", estimate, follows_weights=False)
        return torch.stack(pulses)

    def _level(self, potential: Tensor, estimate: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """The next pulse for what is left of the potential: its sign, 0 for silence, and by how much 1 is shifted."""
        whole = potential.double()
        place = nearest_exponent(whole) if self.neuron.firing_boundary == 0.75 else floor_exponent(whole.abs())
        shift = (place - self.fraction).clamp(max=0)
        if self.bounded:
            shift = self._guarded(shift, potential, estimate, t)
        silent = (shift <= -self.neuron.num_levels) | (potential == 0)
        if not self.neuron.signed:
            silent |= potential < 0
        return potential.sign().masked_fill(silent, 0), shift.masked_fill(silent, 0)

    def _guarded(self, shift: Tensor, potential: Tensor, estimate: Tensor, t: int) -> Tensor:
        """The largest spike that stays in the interval where the nearest would leave it."""
        slack = 1 << (GUARD - SLACK)
        negative = potential < 0
        if math.isfinite(self.neuron.lower):
            room = floor_exponent((estimate - self._bound(self.neuron.lower, t) + slack).double()) - self.scale
            shift = torch.where(negative, shift.minimum(room), shift)
        if math.isfinite(self.neuron.upper):
            room = floor_exponent((self._bound(self.neuron.upper, t) - estimate + slack).double()) - self.scale
            shift = torch.where(negative, shift, shift.minimum(room))
        return shift

    def _bound(self, bound: float, t: int) -> Tensor:
        if not math.isfinite(bound):
            return torch.full_like(self.threshold, math.copysign(2.0**62, bound), dtype=torch.float64).long()
        division = self.division if self.neuron.coding == "differential" else "divide"
        return (bound / self.threshold.double() / gain(t, division) * 2.0**self.scale).round().long()
