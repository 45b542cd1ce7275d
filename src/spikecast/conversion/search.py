"""In-loop search: each site's thresholds are chosen on the inputs that the converted layers before it really make.

All steps of a small batch go through the network layer by layer. When a site is reached, a handful of scales of its
starting threshold are tried with the real neuron, and per channel the one is kept that comes closest to what an exact
neuron would send at each step. Only neurons run repeatedly, never a convolution.

Closest to the exact neuron on the same inputs, not to the ANN's own activation: what the layers before got wrong cannot
be mended here, and a score that counts it rewards neurons for sending less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from spikecast.batches import Call
from spikecast.config import Config
from spikecast.conversion.channels import channel_axes
from spikecast.graph.calls import folded
from spikecast.graph.execute.observer import Observer
from spikecast.kernels import encode
from spikecast.network.base import Network
from spikecast.network.plan import Site
from spikecast.network.spiking import SpikingNetwork
from spikecast.progress import tell
from spikecast.theory.neuron import Neuron

SAMPLES = 32
SCALES = tuple(2.0 ** (k / 2) for k in range(6, -5, -1))  # 8 … ¼, the largest first
TIE = 1.25e-4  # scores this close count as equal, and the larger threshold wins: fewer spikes for next to nothing
PER_CHANNEL = 2**13  # values on which a channel's scales are compared, from all samples,
AT_LEAST = 2**19  # and no less than this of a site: where few channels share them, large values are rare
FLOOR = 1e-6  # of the layer's mean power: a channel below it is as good as silent


@dataclass
class Search(Observer):
    """The neurons of a run that changes their thresholds as it goes."""

    sites: Mapping[str, Site]
    neurons: Mapping[str, Neuron]
    config: Config
    thresholds: dict[str, Tensor]
    wanted: set[str]
    found: set[str] = field(default_factory=set)
    total: int = 0  # sites to be searched, those of other regions included

    def fire(self, site: str, steps: Tensor, *, may_overwrite: bool) -> Tensor:
        """All steps of a site through its neuron, with the best threshold."""
        neuron = self.neurons[site]
        if site in self.wanted:
            self.thresholds[site] = self._best(self.sites[site], neuron, steps, self.thresholds[site])
            self.found.add(site)
            tell("search", len(self.found), self.total)
        return encode(steps, self.thresholds[site], neuron).estimates

    def _best(self, site: Site, neuron: Neuron, steps: Tensor, start: Tensor) -> Tensor:
        """The start times the scale with the least score, channel by channel."""
        own = self.config.at(site.name)
        assert own is not None
        axes = channel_axes(site, own.granularity)
        steps = thinned(steps, axes, site.meta.batch_axis, self.config.seed)
        power = _sum_of_squares(_late(site.exact(steps)), axes)
        power = power.clamp_min(float(power.mean()) * FLOOR).clamp_min(torch.finfo(torch.float32).tiny)
        trial = tried(site, axes, neuron, steps, start, count=own.search_penalty > 0)
        scores = trial.error / power
        if own.search_penalty > 0:
            scores = scores + own.search_penalty * trial.pulses
        return scaled(start, scores)


class Trial(NamedTuple):
    """What a neuron did at each scale of its threshold, [scales, channels]: squared error and spikes, of an entry."""

    error: Tensor
    pulses: Tensor


def tried(
    site: Site,
    axes: tuple[int, ...],
    neuron: Neuron,
    steps: Tensor,
    start: Tensor,
    *,
    scales: Sequence[float | Tensor] = SCALES,
    count: bool = True,
    last_only: bool = False,
) -> Trial:
    """The steps through the neuron at each scale of a starting threshold; errors are against an exact neuron.

    A scale is a number, or a tensor with one for each channel.
    """
    exact = site.exact(steps)
    others = [d + 2 for d in range(steps.dim() - 1) if d not in axes]
    errors, pulses = [], []
    for scale in scales:
        out = encode(steps, start * scale, neuron, want_levels=count)
        seen, wanted = (x[-1:] if last_only else _late(x) for x in (out.estimates, exact))
        errors.append(_sum_of_squares(seen, axes, minus=wanted))
        if out.levels is not None:
            entries = math.prod(steps.shape[d - 1] for d in others)
            pulses.append((out.levels != 0).sum((0, 1, *others)).reshape(-1).float() / entries)
    return Trial(torch.stack(errors), torch.stack(pulses) if count else torch.empty(0))


def scaled(start: Tensor, scores: Tensor, tie: float = TIE) -> Tensor:
    """The start times the scale of the least score, channel by channel; of equals, the largest."""
    first = (scores <= scores.amin(0) + tie).int().argmax(0)
    return start * scale_at(first, start)


def scale_at(numbers: Tensor, start: Tensor) -> Tensor:
    """The scales of these numbers, one for each channel, shaped like the threshold."""
    return torch.tensor(SCALES, dtype=start.dtype, device=start.device)[numbers].reshape(start.shape)


def _late(steps: Tensor) -> Tensor:
    """The steps that count: the first is coarse whatever the threshold, so it has no say where there are more."""
    return steps[1:] if len(steps) > 1 else steps


def _sum_of_squares(steps: Tensor, axes: tuple[int, ...], minus: Tensor | None = None) -> Tensor:
    """Squares of all steps (of their difference from others) by channel; one step at a time is in memory."""
    others = [d for d in range(steps.dim() - 1) if d not in axes]
    parts = (step if minus is None else step - minus[t] for t, step in enumerate(steps))
    return torch.stack([part.float().square().mean(others).reshape(-1) for part in parts]).sum(0)


def thinned(steps: Tensor, axes: tuple[int, ...], batch: int | None, seed: int, part: float = 1.0) -> Tensor:
    """Some places of all samples, drawn at random: a regular pattern would see more or less of the borders."""
    shape = steps.shape[1:]
    places = [d for d in range(len(shape)) if d not in axes and d != batch]
    enough = part * max(PER_CHANNEL * math.prod(shape[d] for d in axes), AT_LEAST)
    if math.prod(shape) <= enough or not places:
        return steps
    share = (enough / math.prod(shape)) ** (1 / len(places))
    generator = torch.Generator().manual_seed(seed)
    for d in places:
        order = torch.randperm(shape[d], generator=generator)[: math.ceil(shape[d] * share)]
        steps = steps.index_select(d + 1, order.sort().values.to(steps.device))
    return steps


def search_thresholds(network: Network, call: Call, thresholds: dict[str, Tensor], wanted: set[str]) -> None:
    """Refine thresholds on a call, network by network, on the inputs that those before it really make."""
    found: set[str] = set()

    def neurons(part: SpikingNetwork) -> Search | None:
        own = wanted & set(part.sites)
        return Search(part.sites, part.neurons, network.config, thresholds, own, found, len(wanted)) if own else None

    in_the_loop(network, call, thresholds, neurons)


def in_the_loop(
    network: Network,
    call: Call,
    thresholds: Mapping[str, Tensor],
    neurons: Callable[[SpikingNetwork], Observer | None],
) -> None:
    """Run neurons that change their own thresholds through all steps of a call, network by network."""
    total = network.config.num_steps
    for name, part in network.networks.items():
        search = neurons(part)
        if search is None:
            continue
        program, heard = network.arriving(name, call)
        if len(heard) == 1:  # the same at each step
            execution = part.execution(program)
            execution.start(heard[0])
            (execution.advance if part.foldable else execution.advance_apart)(search, total)
        elif part.foldable and all(a.shape == b.shape for step in heard for a, b in zip(step, heard[0], strict=True)):
            execution = part.execution(program, moving_inputs=True)
            execution.start(folded(program, heard))
            execution.advance(search, total, folded_inputs=True)
        else:
            part.add_note("thresholds were not searched: its batch cannot hold the steps")
        part.set_thresholds({site: thresholds[site] for site in part.sites})
