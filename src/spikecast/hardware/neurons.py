"""The neurons of one layer in the event-driven simulator: looked at only when something arrives, or when they are due.

Between two arrivals the potential is a straight line in t. Differential coding: m[t] = t·(r_in - r_out), so a neuron
whose receivers still lack something fires some day without any input. Rate coding: m[t] = t·bias + Σ arrived - Σ sent.
When the line reaches the smallest level is known at once, so a neuron waits in a ring of steps until then; at that
step it is looked at with the one equation of `theory.neuron`. Nobody else is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spikecast.hardware import _scatter
from spikecast.hardware.parts import Layer
from spikecast.theory import firing
from spikecast.theory.neuron import step

Floats = NDArray[np.float64]
Wire = tuple[Floats, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def new_wire(size: int) -> Wire:
    """What arrives in one step: values, how many spikes they came from, entries touched, and how many those are."""
    return np.zeros(size), np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(1, np.int64)


class Neurons:
    """A layer: what it takes to decide, shared by all samples."""

    def __init__(self, layer: Layer, rest: Tensor) -> None:
        self.layer, self.neuron = layer, layer.neuron
        self.rest: Floats = rest.double().flatten().numpy()  # r_in with every source silent
        theta = layer.threshold.detach().cpu().double().expand(layer.shape).flatten()
        self.scales = firing.scales_of(theta, self.neuron.firing_boundary, torch.float64)
        self.threshold: Floats = theta.numpy()
        smallest = 2.0 ** (1 - self.neuron.num_levels)
        self.edge: Floats = (firing.EDGE * smallest / self.scales.to_level).numpy()  # potential of the smallest level
        self.least: Floats = self.threshold * (smallest - self.neuron.tolerance)  # room that it needs
        self.found = np.empty(len(self.rest), np.int64)

    def sample(self) -> NeuronState:
        return NeuronState(self)


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
        self.head = np.full(_scatter.RING, -1, np.int64)
        self.links = np.full((2, size), -1, np.int64)
        self.slot = np.full(size, -1, np.int8)
        self._wait(0, np.arange(size))

    def fire(self, t: int, wire: Wire) -> tuple[NDArray[np.int64], NDArray[np.int8], int]:
        """What step t makes of what arrived: who fires, the signed levels, and how many had to be looked at."""
        shared, neuron = self.shared, self.shared.neuron
        _scatter.receive(wire, self.arrived, 1.0 if self.is_rate else 1.0 / t)
        number = _scatter.due(t, wire, self.head, self.links, self.slot, shared.found)
        places = shared.found[:number].copy()
        if self.is_rate:
            value, held = shared.rest[places] + self.arrived[places] / t, self.sent[places] / max(t - 1, 1)
        else:
            value, held = self.arrived[places], self.sent[places]
        index = torch.from_numpy(places)
        scales = firing.Scales(*(scale[index] for scale in shared.scales))
        estimate, pulse = step(torch.from_numpy(value), torch.from_numpy(held), t, scales, neuron)
        self.sent[places] = estimate.numpy() * (t if self.is_rate else 1)
        self._wait(t, places)
        levels = firing.level_index(pulse).numpy()
        fired = np.flatnonzero(levels)
        order = fired[np.argsort(places[fired])]
        return places[order], levels[order], number

    def _wait(self, t: int, places: NDArray[np.int64]) -> None:
        """See at which step they would fire if nothing arrived."""
        shared, neuron = self.shared, self.shared.neuron
        arrived, sent = self.arrived[places], self.sent[places]
        offset = neuron.initial_potential * shared.threshold[places]
        room: Any = np.zeros((2, 2, len(places)))
        if self.is_rate:
            slope, offset = shared.rest[places], offset + arrived - sent
            room[0] = [np.full(len(places), -neuron.lower), sent]
            room[1] = [np.full(len(places), neuron.upper), -sent]
        else:
            slope = arrived - sent
            room[0, 0], room[1, 0] = sent - neuron.lower, neuron.upper - sent
        for k, bound in enumerate((neuron.lower, neuron.upper)):
            if math.isinf(bound):
                room[k] = [np.zeros(len(places)), np.full(len(places), np.inf)]
        edge, least = shared.edge[places], shared.least[places]
        ring = (self.head, self.links, self.slot)
        _scatter.wait(t, places, slope, offset, edge, room, least, neuron.signed, *ring)
