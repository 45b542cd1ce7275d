"""What a few neurons of each site do over time, beside the activation they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from spikecast.batches import Call, samples_in
from spikecast.errors import ConfigError
from spikecast.graph.execute.observer import Neurons
from spikecast.measure.run import bound_calls
from spikecast.network.spiking import SpikingNetwork
from spikecast.page.data import Trace

# Bounds of what a page holds: below 2 MB for each network.
MOST_SITES, MOST_NEURONS, MOST_STEPS = 24, 32, 64


def traces(network: SpikingNetwork, call: Call, samples: int) -> list[Trace]:
    """Sites spread evenly over the depth, neurons spread evenly over each, of the first samples of a call."""
    names = list(network.sites)
    chosen = [names[i] for i in _spread(len(names), MOST_SITES)]
    return _traced(network, call, chosen, slice(samples), min(network.config.num_steps, MOST_STEPS)) if chosen else []


def sample_of(network: SpikingNetwork, batches: Iterable[Any], number: int) -> tuple[Call, int]:
    """The call that holds a sample, counted from 0 over all batches, and its place in it."""
    passed = 0
    for call in bound_calls(network, batches):
        size = samples_in(call, network.batch_axis)
        if number < passed + size:
            return call, number - passed
        passed += size
    raise ConfigError(f"there is no sample {number}: the data has {passed}; they are counted from 0")


def trace(network: SpikingNetwork, site: str, call: Call, sample: int = 0, *, num_steps: int | None = None) -> Trace:
    """One site and one sample of a call, for `write_raster`."""
    steps = network.config.steps_or(num_steps)
    return _traced(network, call, [site], slice(sample, sample + 1), steps)[0]


@torch.no_grad()
def _traced(network: SpikingNetwork, call: Call, chosen: Sequence[str], samples: slice, steps: int) -> list[Trace]:
    activations: dict[str, Tensor] = {}

    def note(site: str, inputs: Tensor) -> Tensor:
        out = network.exact(site, inputs)
        if site in chosen:
            activations[site] = out[0].clone()
        return out

    network.analog_with(call, Neurons(note))
    recorded = network.record(*call[0], sites=chosen, num_steps=steps, **call[1])
    return [
        _trace(name, network.sites[name].meta.batch_axis, activations[name], *recorded[name], samples)
        for name in chosen
        if name in recorded and name in activations
    ]


def _trace(site: str, axis: int | None, activation: Tensor, estimates: Tensor, levels: Tensor, samples: slice) -> Trace:
    # [B, neurons], [T, B, neurons], [T, burst, B, neurons]; without a batch axis all is one sample
    a, e, s = (
        x.movedim(axis + over, over).flatten(over + 1) if axis is not None else x.flatten(over).unsqueeze(over)
        for x, over in ((activation, 0), (estimates, 1), (levels, 2))
    )
    shown = _spread(a.shape[1], MOST_NEURONS)
    a, e, s = (x[..., samples, :][..., shown] for x in (a, e, s))
    return Trace(
        site,
        activation.numel() // (1 if axis is None else activation.shape[axis]),
        shown,
        [rounded(row) for row in a],
        [[rounded(step) for step in sample] for sample in e.transpose(0, 1)],
        s.permute(2, 0, 3, 1).tolist(),
    )


def _spread(count: int, most: int) -> list[int]:
    """At most so many of the numbers 0 .. count - 1, evenly apart, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def rounded(values: Iterable[Tensor]) -> list[float]:
    """Numbers of four digits: what a page shows."""
    return [float(f"{float(x):.4g}") for x in values]
