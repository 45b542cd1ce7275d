"""Running batches under the meter, and binding what a loader yields to a converted network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from spikecast.batches import Binder, Call, InputFunction, calls
from spikecast.graph.execute.run import Execution
from spikecast.graph.structure import unflatten
from spikecast.measure.energy.meter import Meter
from spikecast.measure.energy.tally import Tally
from spikecast.network.regions import Region, RegionNetwork
from spikecast.network.spiking import SpikingNetwork
from spikecast.network.states import NeuronStates


class NetworkBinder(Binder):
    """Binds batches to the arguments a network was captured with, as `Binder` does for a model."""

    def __init__(self, snn: SpikingNetwork, inputs: InputFunction | None = None) -> None:
        self.inputs, self.name = inputs, "the model"
        positional, named = snn.plan.program.input_structure["form"]["items"]
        self.required = [f"argument {i}" for i in range(len(positional["items"]))]
        self.required_names = [key for key, _ in named["items"]] if not self.required else []
        self.known = {key for key, _ in named["items"]}
        self.open_ended = self.any_name = False
        self.dropped = set()
        self.parameter = next(snn.buffers(), None)


def bound_calls(snn: Any, batches: Iterable[Any], inputs: InputFunction | None = None) -> Iterator[Call]:
    """Every batch as a call of the network."""
    return calls(batches, binder_of(snn, inputs))


def binder_of(snn: Any, inputs: InputFunction | None = None) -> Binder:
    """Who knows which part of a batch the network takes."""
    return NetworkBinder(snn, inputs) if isinstance(snn, SpikingNetwork) else Binder(snn.model, inputs)


@torch.no_grad()
def metered_run(snn: Any, call: Call, tally: Tally) -> Any:
    """The answers after each step, as `run` gives them; what was done is added to the tally."""
    args, kwargs = call
    tally.samples += samples_in(call)
    if isinstance(snn, RegionNetwork):
        return _run_regions(snn, call, tally)
    plan, leaves = snn.run_tensors(args, kwargs, tally.num_steps, neurons=lambda e: Meter(snn, e, tally))
    return unflatten(plan.program.output_structure, leaves)


def _run_regions(snn: RegionNetwork, call: Call, tally: Tally) -> list[Any]:
    def meter(region: Region, execution: Execution) -> NeuronStates:
        assert region.network is not None
        return Meter(region.network, execution, tally, f"{region.name}.")

    for region in snn:
        region.meter = meter
    try:
        return snn.run(*call[0], num_steps=tally.num_steps, **call[1])
    finally:
        for region in snn:
            region.meter = None


def samples_in(call: Call) -> int:
    """How many samples a call holds: the length of its first list of tensors, or the batch of its first tensor."""
    first = next(iter((*call[0], *call[1].values())), None)
    while isinstance(first, Mapping) and first:
        first = next(iter(first.values()))
    if isinstance(first, list | tuple):
        return len(first)
    return int(first.shape[0]) if isinstance(first, Tensor) and first.dim() else 1
