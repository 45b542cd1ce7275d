"""Recording the events of a run of the value view, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.graph.calls import batch_size, take
from spikecast.graph.execute.run import Execution
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.events.stream import Column, Events, events_of_step, joined, senders_of
from spikecast.network.spiking import SpikingNetwork
from spikecast.network.states import NeuronStates

_CHUNK = 16  # samples that are run at once


@torch.no_grad()
def stream_events(snn: SpikingNetwork, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Iterator[Events]:
    """Yield the events of each step as soon as it has been run, in the value view."""
    total = snn.config.steps_or(num_steps)
    circuit = Circuit(snn, args, kwargs)
    program, senders = circuit.program, senders_of(circuit.layers)
    _, tensors = snn.prepare_call(args, kwargs)
    free = batch_size(program, tensors) if program.batch_symbols else None
    count = 1 if free is None else free
    pieces = (
        [tensors]
        if free is None
        else [take(program, tensors, i, min(i + _CHUNK, free)) for i in range(0, free, _CHUNK)]
    )
    runs = []
    for piece in pieces:
        execution = snn.execution(program)
        execution.start(piece)
        runs.append((execution, NeuronStates(snn, list(snn.sites))))
    for t in range(1, total + 1):
        found: list[tuple[int, int, Column, Column]] = []
        for k, (execution, states) in enumerate(runs):
            states.t = t
            execution.advance(states)
            for index, layer in enumerate(circuit.layers):
                levels = states.recorded[layer.name].levels[0]
                whole = [levels] if free is None else _by_sample(execution, layer.value, levels)
                found += [(index, k * _CHUNK + i, *_fired(part)) for i, part in enumerate(whole)]
        found.sort(key=lambda item: item[:2])
        yield events_of_step(found, t, senders, snn.config.coding, total, count)


def _by_sample(execution: Execution, name: str, levels: Tensor) -> list[Tensor]:
    return [execution.select(name, levels, torch.tensor([i], device=levels.device)) for i in range(execution.batch)]


def _fired(levels: Tensor) -> tuple[Column, Column]:
    flat = levels.reshape(-1).cpu().numpy()
    (places,) = np.nonzero(flat)
    return places, flat[places]


def record_events(snn: SpikingNetwork, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Events:
    """All events of a run on a batch, in the value view."""
    if not isinstance(snn, SpikingNetwork):
        raise DataError(
            f"events are recorded of a SpikingNetwork, not of a {type(snn).__name__}; give what convert made"
        )
    return joined(list(stream_events(snn, *args, num_steps=num_steps, **kwargs)))
