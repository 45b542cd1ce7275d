"""A spiking neuron: it sends its receivers the nearest levels of what they are still missing (Thm 4.4).

The paper's neuron sends one spike a step. With bursts it sends up to `burst` of them, each the nearest level of what
the ones before have left over.

The value view (`encode`) has one state, the estimate r_out its receivers hold. The spike view (`spike_step`) keeps
the paper's potentials and exchanges signals, as a chip would. They agree step by step.

A leak takes a share of the potential between two steps. What has leaked so far is then a second state of the value
view.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from spikecast.config import Coding, Config
from spikecast.errors import ConfigError, DataError
from spikecast.theory import firing
from spikecast.theory.coding import prediction, receive
from spikecast.theory.modes import no_grad


@dataclass(frozen=True)
class Neuron:
    """What the neurons of one site share, besides their thresholds; the estimate stays in [lower, upper]."""

    coding: Coding = "differential"
    num_levels: int = 8
    burst: int = 1
    signed: bool = True
    firing_boundary: float = 0.75
    initial_potential: float = 0.0
    leak: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf

    def __post_init__(self) -> None:
        Config(  # the rules for these settings, and their messages, are the configuration's
            coding=self.coding,
            num_levels=self.num_levels,
            burst=self.burst,
            signed=self.signed,
            firing_boundary=self.firing_boundary,
            initial_potential=self.initial_potential,
            leak=self.leak,
        )
        if not self.lower <= 0.0 <= self.upper:
            raise ConfigError(f"[{self.lower}, {self.upper}] lacks 0, where neurons start; make it a nonlinear op")

    @property
    def is_rectifier(self) -> bool:
        """Whether the estimate is kept in an interval, as for ReLU; an identity neuron has none."""
        return math.isfinite(self.lower) or math.isfinite(self.upper)

    @property
    def tolerance(self) -> float:
        """What a spike may overshoot a bound by, in units of θ: 2**-10 of the smallest level, for landing on it."""
        return 2.0 ** -(self.num_levels + 9)


class Encoded(NamedTuple):
    """What a neuron's receivers hold after each step; if asked for, the signed levels [T, burst, ...] it fired.

    `leaked` is all that leaked from its potential, up to the start of the next step; None where there is no leak.
    """

    estimates: Tensor
    levels: Tensor | None
    leaked: Tensor | None = None


@no_grad
def encode(
    inputs: Tensor,
    threshold: Tensor,
    neuron: Neuron,
    *,
    state: Tensor | None = None,
    leaked: Tensor | None = None,
    start: int = 1,
    want_levels: bool = False,
) -> Encoded:
    """Run a site over inputs r_in [T, ...] for t = start, start+1, ...: the estimates its receivers hold (Thm 4.4).

    `state` is r_out[start-1] and `leaked` that of the steps before, zero unless given. Halves are computed in float32
    and rounded on the way out; a run in pieces therefore repeats the whole one to the bit only for float32 and float64.
    """
    if not inputs.is_floating_point() or inputs.dim() == 0 or start < 1:
        raise DataError(f"{inputs.dtype} {tuple(inputs.shape)} from step {start}: give floats [T, ...], start >= 1")
    # halves would lose spikes: next to 1 a float16 estimate cannot move by 2**-12
    dtype = torch.float64 if inputs.dtype == torch.float64 else torch.float32
    scales = firing.scales_of(threshold, neuron.firing_boundary, dtype)
    estimate = inputs.new_zeros(inputs.shape[1:], dtype=dtype) if state is None else state.to(dtype)
    if estimate.shape != inputs.shape[1:]:
        raise DataError(f"state has shape {tuple(estimate.shape)}, one step of the inputs {tuple(inputs.shape[1:])}")
    leaked = None if not neuron.leak else torch.zeros_like(estimate) if leaked is None else leaked.to(dtype, copy=True)
    if not len(inputs):
        nothing = inputs.new_empty((0, neuron.burst, *estimate.shape), dtype=torch.int8)
        return Encoded(inputs.clone(), nothing if want_levels else None, leaked)
    estimates, levels = [], []
    for k in range(len(inputs)):
        estimate, pulses = step(inputs[k].to(dtype), estimate, start + k, scales, neuron, leaked)
        estimates.append(estimate.to(inputs.dtype))
        if want_levels:
            levels.append(firing.level_index(pulses))
    return Encoded(torch.stack(estimates), torch.stack(levels) if want_levels else None, leaked)


def step(
    value: Tensor, estimate: Tensor, t: int, scales: firing.Scales, neuron: Neuron, leaked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One step of the value view: r_in[t] and r_out[t-1] give r_out[t] and the pulses [burst, ...], in units of θ.

    `leaked` is what has leaked so far, where there is a leak; what leaks before step t+1 is added to it in place.
    """
    predicted = prediction(estimate, t, neuron.coding)
    potential = (value - predicted).mul_(t)
    if neuron.initial_potential:
        potential.add_(neuron.initial_potential * scales.threshold)
    if leaked is not None:
        potential.sub_(leaked)
    pulses = fire(potential, predicted, t, scales, neuron)
    if leaked is not None:
        leaked.add_(potential.sub_(pulses.sum(0) * scales.threshold), alpha=neuron.leak)
    # θ/t first: scaling by a power of two is exact, so for one pulse this is (pulse·θ)/t to the bit with a division per
    # threshold. t is a tensor because CUDA turns division by a number into multiplication by its reciprocal.
    unit = scales.threshold / torch.full_like(scales.threshold, t)
    return _bounded((pulses.sum(0) * unit).add_(predicted), neuron), pulses


def fire(potential: Tensor, predicted: Tensor, t: int, scales: firing.Scales, neuron: Neuron) -> Tensor:
    """The pulses [burst, ...] of one step in units of θ, for the potential m[t].

    Each is the power of two nearest to what is left, or the largest that keeps the estimate in the interval, or 0;
    after the first 0 a neuron is silent. The paper's equations leave the interval out; without it negative inputs
    leak through a ReLU.
    """
    u = potential * scales.to_level
    firing.refuse_nan(u)
    below = _space(predicted - neuron.lower, t, scales, neuron)
    above = _space(neuron.upper - predicted, t, scales, neuron)
    pulses = []
    for _ in range(neuron.burst):
        exponent = firing.nearest_exponent(u).clamp_(max=0)
        negative = u < 0
        if math.isfinite(neuron.lower):
            exponent = torch.where(negative, torch.minimum(exponent, firing.floor_exponent(below)), exponent)
        if math.isfinite(neuron.upper):
            exponent = torch.where(negative, exponent, torch.minimum(exponent, firing.floor_exponent(above)))
        silent = exponent <= -neuron.num_levels
        if not neuron.signed:
            silent |= negative
        pulse = firing.signed_power(exponent, u).masked_fill_(silent, 0.0)
        pulses.append(pulse)
        below, above = below + pulse, above - pulse
        u = u - pulse * (firing.EDGE / neuron.firing_boundary)
    return torch.stack(pulses)


def _space(distance: Tensor, t: int, scales: firing.Scales, neuron: Neuron) -> Tensor:
    """How much may be sent towards a bound at step t, in units of θ, landing on it included."""
    return (distance * t).mul_(scales.inverse).add_(neuron.tolerance)


def _bounded(estimate: Tensor, neuron: Neuron) -> Tensor:
    """The estimate without the tolerance by which a spike may have overshot."""
    return estimate.clamp_(neuron.lower, neuron.upper) if neuron.is_rectifier else estimate


class SpikeState(NamedTuple):
    """The paper's potentials: v[t-1], m_r[t], and r_out[t-1], which only a rectifying neuron needs."""

    membrane: Tensor
    residual: Tensor
    estimate: Tensor


def rest_state(rest_in: Tensor, neuron: Neuron, threshold: Tensor) -> SpikeState:
    """The state before step 1 where the input wire rests at r_in[0], for instance at a bias (Thm 4.4, 4.5).

    A leak comes before every step, the first included. v[0] is larger by what that takes, as in the authors' code.
    """
    silent = torch.zeros_like(rest_in)
    return SpikeState(
        membrane=silent + neuron.initial_potential / (1 - neuron.leak) * threshold.to(rest_in.dtype),
        residual=rest_in if neuron.coding == "differential" else silent,
        estimate=silent,
    )


def spike_step(
    signal_in: Tensor, state: SpikeState, t: int, threshold: Tensor, neuron: Neuron
) -> tuple[Tensor, SpikeState]:
    """One step of the spike view: the signal x_in[t] gives the pulses [burst, ...], by the recurrences of Thm 4.4.

    They are in units of θ; their sum times θ is the signal x_out[t]. Without a leak the potentials are redundant,
    v[t] = t·m_r[t+1] + v₀·θ; rate coding has no m_r. A leak is v's: m_r is what the receivers lack, and stays.
    """
    scales = firing.scales_of(threshold, neuron.firing_boundary, signal_in.dtype)
    differential = neuron.coding == "differential"
    current = state.residual + signal_in if differential else signal_in
    potential = state.membrane * (1 - neuron.leak) + current
    predicted = prediction(state.estimate, t, neuron.coding)
    pulses = fire(potential, predicted, t, scales, neuron)
    signal_out = pulses.sum(0) * scales.threshold
    return pulses, SpikeState(
        membrane=potential - signal_out,
        residual=state.residual + (signal_in - signal_out) / t if differential else state.residual,
        estimate=_bounded(receive(state.estimate, signal_out, t, neuron.coding), neuron),
    )
