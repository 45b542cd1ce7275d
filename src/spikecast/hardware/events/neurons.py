"""The neurons of one layer in the event-driven simulator: looked at only when something arrives, or when they are due.

Between two arrivals the potential is a straight line in t. Differential coding: m[t] = t·(r_in - r_out), so a neuron
whose receivers still lack something fires some day without any input. Rate coding: m[t] = t·bias + Σ arrived - Σ sent.
When the line reaches the smallest level is known at once, so a neuron waits in a ring of steps until then. Only
then, or when something has arrived that makes it due, the one equation of `theory.neuron` decides what it sends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spikecast.hardware.circuit.parts import Layer
from spikecast.hardware.events import _scatter
from spikecast.theory import firing
from spikecast.theory.neuron import step

Floats = NDArray[np.float64]
Pulse = tuple[NDArray[np.int64], NDArray[np.int8]]  # who fires, and the signed levels
Wire = tuple[Floats, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def new_wire(size: int) -> Wire:
    """What arrives in one step: values, how many spikes they came from, entries touched, and how many those are."""
    return np.zeros(size), np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(1, np.int64)


class Neurons:
    """A layer: what it takes to decide, shared by all samples."""

    def __init__(self, layer: Layer, rest: Tensor) -> None:
        self.neuron = layer.neuron
        self.rest: Floats = rest.double().flatten().numpy()  # r_in with every source silent
        threshold = layer.threshold.detach().cpu().double().expand(layer.shape).flatten()
        self.scales = firing.scales_of(threshold, self.neuron.firing_boundary, torch.float64)
        smallest = 2.0 ** (1 - self.neuron.num_levels)
        edge: Floats = (firing.EDGE * smallest / self.scales.to_level).numpy()  # potential of the smallest level
        least: Floats = threshold.numpy() * (smallest - self.neuron.tolerance)  # room that it needs
        self.constants = (self.rest, threshold.numpy(), edge, least)
        n = self.neuron
        self.settings = (n.coding == "rate", float(n.initial_potential), float(n.lower), float(n.upper), n.signed)
        self.looked_at = np.empty(len(self.rest), np.int64)


class NeuronState:
    """The neurons of one sample.

    arrived  differential: r_in; rate: the sum of all signals that came in, biases left out
    sent     differential: r_out; rate: the sum of all spikes
    """

    def __init__(self, shared: Neurons) -> None:
        self.shared = shared
        self.is_rate = shared.neuron.coding == "rate"
        size = len(shared.rest)
        self.arrived = np.zeros(size) if self.is_rate else shared.rest.copy()
        self.sent = np.zeros(size)
        ring = np.full(_scatter.RING, -1, np.int64), np.full((2, size), -1, np.int64), np.full(size, -1, np.int8)
        self.waiting = (self.arrived, self.sent, shared.constants, shared.settings, ring)
        _scatter.wait(0, np.arange(size), *self.waiting)

    def fire(self, t: int, wires: Sequence[Wire]) -> tuple[list[Pulse], int]:
        """What step t makes of what arrived: the pulses one after the other, and how many neurons were looked at."""
        shared, neuron = self.shared, self.shared.neuron
        for wire in wires:
            _scatter.receive(wire, self.arrived, 1.0 if self.is_rate else 1.0 / t)
        reached = np.unique(np.concatenate([touched[: used[0]] for _, _, touched, used in wires]))
        ready, visited = _scatter.due(t, reached, *self.waiting, shared.looked_at)
        places = np.sort(shared.looked_at[:ready])
        if self.is_rate:
            value, held = shared.rest[places] + self.arrived[places] / t, self.sent[places] / max(t - 1, 1)
        else:
            value, held = self.arrived[places], self.sent[places]
        index = torch.from_numpy(places)
        scales = firing.Scales(*(scale[index] for scale in shared.scales))
        estimate, pulses = step(torch.from_numpy(value), torch.from_numpy(held), t, scales, neuron)
        self.sent[places] = estimate.numpy() * (t if self.is_rate else 1)
        _scatter.wait(t, places, *self.waiting)
        levels = firing.level_index(pulses).numpy()
        return [(places[level != 0], level[level != 0]) for level in levels], visited
