"""Running batches under the meter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from spikecast.batches import Call, InputFunction, calls, samples_in
from spikecast.measure.energy.meter import Meter
from spikecast.measure.energy.tally import Tally
from spikecast.network.base import Network


def bound_calls(network: Network, batches: Iterable[Any], inputs: InputFunction | None = None) -> Iterator[Call]:
    """Every batch as a call of the network."""
    return calls(batches, network.binder(inputs))


@torch.no_grad()
def metered_run(network: Network, call: Call, tally: Tally) -> Any:
    """The answers after each step, as `run` gives them; what was done is added to the tally."""
    tally.samples += samples_in(call, network.batch_axis)
    return network.run_with(call, tally.num_steps, lambda part, execution: Meter(part, execution, tally))
