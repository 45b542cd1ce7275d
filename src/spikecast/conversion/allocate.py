"""Where a spike is worth its energy: levels, bursts and thresholds of each site for an energy budget or a fidelity.

What is made small is Σ ½·w·error² + μ·price·spikes, over all channels: w is how much the answer suffers from an error
there (`sensitivity`), the price what a spike of the site costs its receivers (`network.prices`). Tables of error and
spikes are made once, with neurons only; for any μ they say which option each site takes. μ is then found for the goal,
by what is measured on the calibration samples: each trial is one pass in the loop, in which the thresholds are chosen
again on the inputs that the layers before really make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from spikecast.batches import Call, samples_in
from spikecast.config import MAX_BURST, MAX_LEVELS, Config
from spikecast.conversion.channels import channel_axes
from spikecast.conversion.search import SCALES, Trial, in_the_loop, scale_at, scaled, thinned, tried
from spikecast.conversion.sensitivity import Answer, Sensitivities, divergence
from spikecast.costs import costs_named
from spikecast.errors import ConfigError, GoalError
from spikecast.graph.execute.observer import Observer
from spikecast.graph.structure import flatten
from spikecast.kernels import encode
from spikecast.network.answers import at_step
from spikecast.network.base import Network
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Tally
from spikecast.network.plan import Site
from spikecast.network.prices import spike_prices
from spikecast.network.spiking import SpikingNetwork
from spikecast.progress import tell
from spikecast.theory.neuron import Neuron

# (num_levels, burst) that a site may take; from one spike a step to what is as good as exact.
OPTIONS = ((4, 1), (5, 2), (6, 2), (6, 3), (8, 2), (8, 3), (8, 4), (10, 4), (10, 6))
FEW = 0.25  # of the places that a search looks at, for the tables
MEASURED = 128  # samples that say whether a goal is met; others than those that were chosen on, if there are enough
TRIALS = 6  # passes in the loop, at most
CLOSE = 0.01  # of the goal: near enough to stop
NARROW = 1e-3  # of log μ: nothing is left between


class Best(NamedTuple):
    """What a site takes at some price: an option, what that gives for one sample, and the scale of each channel."""

    option: int
    harm: float
    pulses: float
    scales: Tensor


@dataclass
class Table:
    """Of one site: what each option and scale of the threshold costs, [options, scales, channels], for one sample.

    options (num_levels, burst)
    harm    ½·w·error², summed over the entries
    pulses  spikes, summed over the entries
    """

    options: Sequence[tuple[int, int]]
    harm: Tensor
    pulses: Tensor

    def best(self, price: float) -> Best:
        """The option of the least harm and price, and both; every channel takes its own scale."""
        scores = self.harm + price * self.pulses
        scale = scores.argmin(1, keepdim=True)
        option = int(scores.gather(1, scale).sum((1, 2)).argmin())
        harm, pulses = (float(t.gather(1, scale)[option].sum()) for t in (self.harm, self.pulses))
        return Best(option, harm, pulses, scale[option, 0])


@dataclass
class Tables(Observer):
    """The neurons of a run that try every option of each site, and go on as the site would by itself."""

    network: SpikingNetwork
    weights: Sensitivities
    thresholds: dict[str, Tensor]
    samples: int
    tables: dict[str, Table] = field(default_factory=dict)

    def fire(self, site: str, steps: Tensor, *, may_overwrite: bool) -> Tensor:
        own, neuron, start = self.network.sites[site], self.network.neurons[site], self.thresholds[site]
        trial = _trials(self.network, own, steps, start, FEW)
        options = _options(_own(self.network, own))
        trials = [trial(replace(neuron, num_levels=n, burst=burst)) for n, burst in options]
        sent = encode(steps, scaled(start, trial(neuron).error, tie=0.0), neuron).estimates
        exact = own.exact(steps[-1])
        self.weights.weigh(own, sent[-1] - exact)
        entries = steps[0].numel() / max(start.numel(), 1) / self.samples
        weight = self.weights.of(site, exact, start.numel())
        self.tables[site] = Table(
            options,
            torch.stack([0.5 * entries * weight * each.error for each in trials]),
            torch.stack([entries * each.pulses for each in trials]),
        )
        return sent


@dataclass
class Allocated(Observer):
    """The neurons of a run that take the options chosen, and look as they go whether the next scales are better."""

    network: SpikingNetwork
    weights: Sensitivities
    starts: Mapping[str, Tensor]
    thresholds: dict[str, Tensor]
    prices: Mapping[str, float]
    rate: float  # μ
    best: Mapping[str, Best]

    def fire(self, site: str, steps: Tensor, *, may_overwrite: bool) -> Tensor:
        own, neuron, start = self.network.sites[site], self.network.neurons[site], self.starts[site]
        near = [(self.best[site].scales + k).clamp(0, len(SCALES) - 1) for k in (-1, 0, 1)]
        trial = _trials(self.network, own, steps, start)(neuron, [scale_at(numbers, start) for numbers in near])
        weight = self.weights.of(site, own.exact(steps[-1]), start.numel())
        scores = 0.5 * weight * trial.error + self.rate * self.prices[site] * trial.pulses
        chosen = torch.stack(near).gather(0, scores.argmin(0, keepdim=True))
        self.thresholds[site] = start * scale_at(chosen[0], start)
        return encode(steps, self.thresholds[site], neuron).estimates


def _trials(
    network: SpikingNetwork, site: Site, steps: Tensor, start: Tensor, share: float = 1.0
) -> Callable[..., Trial]:
    """What a neuron of the site does with some places of these steps, at each scale of the threshold."""
    axes = channel_axes(site, _own(network, site).granularity)
    few = thinned(steps, axes, site.meta.batch_axis, network.config.seed, share)

    def trial(neuron: Neuron, scales: Sequence[float | Tensor] = SCALES) -> Trial:
        made = tried(site, axes, neuron, few, start, scales=scales, last_only=True)
        return Trial(made.error.double(), made.pulses.double())

    return trial


def _own(network: SpikingNetwork, site: Site) -> Config:
    own = network.config.at(site.name)
    assert own is not None
    return own


def _options(own: Config) -> list[tuple[int, int]]:
    """What a site may take. Levels and bursts that are not the default, its own or everybody's, are not exceeded."""
    levels = own.num_levels if own.num_levels != Config.num_levels else MAX_LEVELS
    burst = own.burst if own.burst != Config.burst else MAX_BURST
    return list(dict.fromkeys((min(n, levels), min(b, burst)) for n, b in OPTIONS))


class Allocation:
    """A network on its way to a goal: what is known of its sites, and how it is set and measured."""

    def __init__(
        self, network: Network, call: Call, measured: Sequence[Call], starts: Mapping[str, Tensor], answer: Answer
    ) -> None:
        self.network, self.call, self.measured, self.answer = network, call, measured, answer
        self.starts = dict(starts)
        self.samples = samples_in(call, network.batch_axis)
        self.reference = [leaf for args, kwargs in measured for leaf in flatten(network.analog(*args, **kwargs))[0]]
        self.costs = costs_named(network.config.budget_costs)[0]
        self.neurons = dict(network.neurons)
        self.weights = Sensitivities.of_network(network, call, answer)
        self.tables: dict[str, Table] = {}
        in_the_loop(network, call, self.starts, self._tables)
        self.prices = self._prices()

    def _tables(self, part: SpikingNetwork) -> Tables:
        made = Tables(part, self.weights, self.starts, self.samples)
        made.tables = self.tables
        return made

    def _prices(self) -> dict[str, float]:
        """Of each site; partners of products are taken to send what they would at no price."""
        steps, prices = self.network.config.num_steps, dict[str, float]()
        for part in self.network.networks.values():
            sites = {n: self.tables[n] for n in part.sites}
            captured = part.plan.program.flow.samples
            sizes = {n: math.prod(site.meta.shape) / captured for n, site in part.sites.items()}
            pulses = {n: table.best(0.0).pulses / max(sizes[n], 1) for n, table in sites.items()}
            prices |= spike_prices(part.plan.program, self.costs, pulses=pulses, num_steps=steps)
        return prices

    def modelled(self, rate: float) -> tuple[float, float]:
        """Harm and energy that the tables promise for a μ."""
        best = self.best(rate)
        return sum(b.harm for b in best.values()), sum(self.prices[n] * b.pulses for n, b in best.items())

    def best(self, rate: float) -> dict[str, Best]:
        """What the tables choose for a μ."""
        return {n: table.best(rate * self.prices[n]) for n, table in self.tables.items()}

    def apply(self, rate: float) -> None:
        """Give every site the option that the tables choose for a μ, and thresholds that fit it in the loop."""
        best = self.best(rate)
        for part in self.network.networks.values():
            options = {n: self.tables[n].options[best[n].option] for n in part.sites}
            part.set_neurons({n: replace(self.neurons[n], num_levels=o[0], burst=o[1]) for n, o in options.items()})
        thresholds = dict(self.starts)
        in_the_loop(
            self.network,
            self.call,
            thresholds,
            lambda part: Allocated(part, self.weights, self.starts, thresholds, self.prices, rate, best),
        )
        self.network.set_thresholds(thresholds)

    def measure(self) -> tuple[float, float]:
        """Energy as a share of the ANN's, and how far the answers are from its, after the last step."""
        tally = Tally(self.network.config.num_steps)
        answers = [
            leaf for call in self.measured for leaf in flatten(at_step(metered_run(self.network, call, tally), -1))[0]
        ]
        ratio = tally.ratio(self.costs)
        if ratio is None:
            raise ConfigError("the products of some op are not counted, so a share of the ANN's energy is not known")
        return ratio[-1], divergence(answers, self.reference, self.answer)


def allocate(
    network: Network, call: Call, measured: Sequence[Call], starts: Mapping[str, Tensor], answer: Answer
) -> None:
    """Choose levels, bursts and thresholds on a call, for the goal of the configuration as measured on several.

    The network is set to them.
    """
    config = network.config
    tell("allocate", 0, TRIALS + 1)
    allocation = Allocation(network, call, measured, starts, answer)
    if config.energy_budget is not None:
        _meet(allocation, Goal("energy_budget", config.energy_budget, of_energy=True))
    else:
        assert config.fidelity is not None
        _meet(allocation, Goal("fidelity", config.fidelity, of_energy=False))


class Goal(NamedTuple):
    """A figure that may not be exceeded; with a larger μ energy falls, and harm rises."""

    name: str
    most: float
    of_energy: bool

    def modelled(self, allocation: Allocation, log_rate: float) -> float:
        """What the tables promise."""
        return allocation.modelled(math.exp(log_rate))[1 if self.of_energy else 0]

    def reached(self, allocation: Allocation, log_rate: float) -> float:
        """What is measured once the network is set to a μ."""
        allocation.apply(math.exp(log_rate))
        return allocation.measure()[0 if self.of_energy else 1]


def _meet(allocation: Allocation, goal: Goal) -> None:
    """Find the μ whose measured figure is the goal: where the tables promise it, once what they promised before is
    set right by what was measured. The best that keeps the goal is taken.
    """
    low, high = _ends(allocation)  # log μ
    if not goal.of_energy:
        low, high = -high, -low  # from here on the figure falls from low to high
    side = 1 if goal.of_energy else -1
    kept: tuple[float, float] | None = None
    promised, last = goal.most, 0.0
    for trial in range(1, TRIALS + 1):
        tell("allocate", trial, TRIALS + 1)  # the tables, and the trials before
        last = at = _where(lambda x: goal.modelled(allocation, side * x), promised, low, high)
        found = goal.reached(allocation, side * at)
        if found <= goal.most * (1 + CLOSE) and (kept is None or found > kept[1]):
            kept = (at, found)
        low, high = (low, at) if found <= goal.most else (at, high)
        if abs(found / goal.most - 1) < CLOSE or high - low < NARROW:
            break
        promised = goal.most * goal.modelled(allocation, side * at) / max(found, 1e-300)
    if kept is None and last != high:  # nothing kept it: is there anything that does?
        last, found = high, goal.reached(allocation, side * high)
        kept = (high, found) if found <= goal.most else None
    if kept is None:
        least = f"the least that is reached is {found:.3g}; give more"
        raise GoalError(f"{goal.name}={goal.most:g} cannot be met: {least}")
    if kept[0] != last:
        goal.reached(allocation, side * kept[0])
    tell("allocate", TRIALS + 1, TRIALS + 1)


def _where(figure: Callable[[float], float], most: float, low: float, high: float) -> float:
    """Where a falling figure comes down to a value; an end where it does not, else not next to one, which is known."""
    if figure(low) <= most or figure(high) > most:
        return low if figure(low) <= most else high
    begin, end = low, high
    for _ in range(20):
        middle = (begin + end) / 2
        begin, end = (middle, end) if figure(middle) > most else (begin, middle)
    return min(max(end, low + 0.1 * (high - low)), high - 0.1 * (high - low))


def _ends(allocation: Allocation) -> tuple[float, float]:
    """log μ where the tables stop changing: every site at its most harmless, every site at its cheapest."""
    harm, energy = allocation.modelled(0.0)
    middle = math.log(max(harm, 1e-12) / max(energy, 1e-12))
    low = high = middle
    while low > middle - 40 and allocation.modelled(math.exp(low))[1] < 0.995 * energy:
        low -= 2
    floor = allocation.modelled(math.exp(middle + 60))[1]
    while high < middle + 60 and allocation.modelled(math.exp(high))[1] > 1.005 * floor:
        high += 2
    return low, high
