"""Recording the events of a run, step by step: of the value view, or of a network in whole numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spikecast.errors import ConfigError
from spikecast.graph.calls import batch_size
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.events.stream import Column, Events, events_of_step, in_pieces, joined, senders_of
from spikecast.hardware.integer.network import IntegerNetwork
from spikecast.hardware.integer.run import Run
from spikecast.network.spiking import SpikingNetwork
from spikecast.network.states import NeuronStates

_CHUNK = 16  # samples that are run at once


@torch.no_grad()
def stream_events(
    network: SpikingNetwork | IntegerNetwork, *args: Any, num_steps: int | None = None, **kwargs: Any
) -> Iterator[Events]:
    """Yield the events of each step as soon as it has been run.

    Args:
        network: The network, converted whole; or an `IntegerNetwork` made of it, for the events of its own neurons.
        *args: What the network is called with.
        num_steps: T; the network's own unless given.
        **kwargs: What the network is called with, by name.

    Example:
        >>> [len(events.columns["t"]) > 0 for events in hardware.stream_events(snn, x, num_steps=2)]
        [True, True]
    """
    integers = network if isinstance(network, IntegerNetwork) else None
    floats = network if not isinstance(network, IntegerNetwork) else network.network
    if integers is not None:
        _refuse_shifts(integers)
        circuit, tensors = integers.circuit, integers.prepare_call(args, kwargs)
    else:
        circuit = Circuit(floats, args, kwargs)
        _, tensors = floats.prepare_call(args, kwargs)
    total, senders = floats.config.steps_or(num_steps), senders_of(circuit.layers)
    free = batch_size(circuit.program, tensors) if circuit.program.batch_symbols else None
    size = _CHUNK if integers is None else 1
    pieces = in_pieces(circuit.program, tensors, size)
    runs = [_Floats(floats, circuit, p, free) if integers is None else _Integers(integers, p) for p in pieces]
    for t in range(1, total + 1):
        fired: list[tuple[int, int, Column, Column]] = []
        for k, run in enumerate(runs):
            for layer, sample, pulse in run.fire(t):
                flat = pulse.flatten().cpu().numpy()
                places = np.flatnonzero(flat)
                fired.append((layer, k * size + sample, places, flat[places]))
        yield events_of_step(fired, t, senders, floats.config.coding, total, 1 if free is None else free)


class _Floats:
    """Some samples on their way through the value view."""

    def __init__(self, network: SpikingNetwork, circuit: Circuit, piece: list[Tensor], free: int | None) -> None:
        self.layers, self.is_free = circuit.layers, free is not None
        self.execution = network.execution(circuit.program)
        self.execution.start(piece)
        self.states = NeuronStates(network, list(network.sites))

    def fire(self, t: int) -> Iterator[tuple[int, int, Tensor]]:
        """(layer, sample, levels) of each pulse of a step, the first pulses first."""
        self.states.t = t
        self.execution.advance(self.states)
        for index, layer in enumerate(self.layers):
            levels = self.states.recorded[layer.name].levels[0]
            for i in range(self.execution.batch if self.is_free else 1):
                one = torch.tensor([i], device=levels.device)
                for pulse in levels:
                    yield index, i, self.execution.select(layer.value, pulse, one) if self.is_free else pulse


class _Integers:
    """One sample on its way through whole numbers."""

    def __init__(self, network: IntegerNetwork, piece: list[Tensor]) -> None:
        self.network, self.run = network, Run(network, piece)

    def fire(self, t: int) -> Iterator[tuple[int, int, Tensor]]:
        """(layer, sample, levels) of each pulse of a step, the first pulses first."""
        self.run.advance(t)
        self.network.note(self.run)
        for index, layer in enumerate(self.network.circuit.layers):
            for pulse in self.run.fired[layer.name].levels:
                yield index, 0, pulse


def _refuse_shifts(network: IntegerNetwork) -> None:
    """Whoever reads events divides by t, and would take these for others."""
    if network.division == "shift":
        raise ConfigError(
            "events of a network with division='shift': readers of events divide by t; make it with "
            "division='divide', or take the levels of trace(x)"
        )


def record_events(
    network: SpikingNetwork | IntegerNetwork, *args: Any, num_steps: int | None = None, **kwargs: Any
) -> Events:
    """All events of a run on a batch: who fired which level when.

    Args:
        network: The network, converted whole; or an `IntegerNetwork` made of it, for the events of its own neurons.
        *args: What the network is called with.
        num_steps: T; the network's own unless given.
        **kwargs: What the network is called with, by name.

    Returns:
        Events: columns t, layer, sample, channel, y, x, level; `.save("events.npz")`, `.tonic()`, `.at(t)`.

    Example:
        >>> events = hardware.record_events(snn, x)
        >>> sorted(events.columns)
        ['channel', 'layer', 'level', 'sample', 't', 'x', 'y']
    """
    return joined(list(stream_events(network, *args, num_steps=num_steps, **kwargs)))
