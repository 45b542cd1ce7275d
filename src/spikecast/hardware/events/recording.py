"""Recording the events of a run of the value view, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from spikecast.graph.calls import batch_size
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.events.stream import Column, Events, events_of_step, in_pieces, joined, senders_of
from spikecast.network.spiking import SpikingNetwork
from spikecast.network.states import NeuronStates

_CHUNK = 16  # samples that are run at once


@torch.no_grad()
def stream_events(network: SpikingNetwork, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Iterator[Events]:
    """Yield the events of each step as soon as it has been run.

    Args:
        network: The network, converted whole.
        *args: What the network is called with.
        num_steps: T; the network's own unless given.
        **kwargs: What the network is called with, by name.

    Example:
        >>> [len(events.columns["t"]) > 0 for events in hardware.stream_events(snn, x, num_steps=2)]
        [True, True]
    """
    circuit = Circuit(network, args, kwargs)
    total = network.config.steps_or(num_steps)
    program, senders = circuit.program, senders_of(circuit.layers)
    _, tensors = network.prepare_call(args, kwargs)
    free = batch_size(program, tensors) if program.batch_symbols else None
    runs = []
    for piece in in_pieces(program, tensors, _CHUNK):
        execution = network.execution(program)
        execution.start(piece)
        runs.append((execution, NeuronStates(network, list(network.sites))))
    for t in range(1, total + 1):
        fired: list[tuple[int, int, Column, Column]] = []
        for k, (execution, states) in enumerate(runs):
            states.t = t
            execution.advance(states)
            for index, layer in enumerate(circuit.layers):
                levels = states.recorded[layer.name].levels[0]
                for i in range(1 if free is None else execution.batch):
                    one = torch.tensor([i], device=levels.device)
                    for pulse in levels:
                        part = pulse if free is None else execution.select(layer.value, pulse, one)
                        flat = part.flatten().cpu().numpy()
                        places = np.flatnonzero(flat)
                        fired.append((index, k * _CHUNK + i, places, flat[places]))
        yield events_of_step(fired, t, senders, network.config.coding, total, 1 if free is None else free)


def record_events(network: SpikingNetwork, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Events:
    """All events of a run on a batch: who fired which level when.

    Args:
        network: The network, converted whole.
        *args: What the network is called with.
        num_steps: T; the network's own unless given.
        **kwargs: What the network is called with, by name.

    Returns:
        Events: columns t, sample, layer, channel, y, x, level; `.save("events.npz")`, `.tonic()`, `.at(t)`.

    Example:
        >>> events = hardware.record_events(snn, x)
        >>> sorted(events.columns)
        ['channel', 'layer', 'level', 'sample', 't', 'x', 'y']
    """
    return joined(list(stream_events(network, *args, num_steps=num_steps, **kwargs)))
