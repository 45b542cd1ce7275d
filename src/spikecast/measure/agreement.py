"""Layer by layer, what the ANN computes against what the spikes say of it at every step; and what would help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.batches import InputFunction, samples_in
from spikecast.errors import ModelError
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.structure import flatten
from spikecast.kernels import Encoded
from spikecast.measure.run import ITS, answer_of, bound_calls
from spikecast.network.answers import class_scores
from spikecast.network.base import Network
from spikecast.network.spiking import SpikingNetwork
from spikecast.network.states import NeuronStates
from spikecast.text import columns, many

BY_STEP = ("error", "own", "clipped", "silent", "firing", "of_clipped", "of_silent")
LEGEND = (  # of the columns of the table
    "error: distance from the ANN's activations, as a share of their size; own: what of it the layer itself loses\n"
    "clipped: neurons with an activation beyond all their spikes; silent: with one, and no spike yet; firing: now"
)
MOST = 0.5  # of a site's own squared error: where it comes from, a remedy is due


@dataclass(frozen=True)
class SiteAgreement:
    """One site; lists have one entry per step.

    error    of the estimate against the ANN's activation, relative (root of the sums of squares)
    own      what of it the site itself adds: against what an exact neuron would send for the same input
    clipped  share of neurons whose activation is larger than all spikes so far could say
    silent   share of neurons with an activation that have not fired so far
    firing   share of neurons that fire at the step
    of_clipped, of_silent   share of the site's own squared error that lies in clipped and in silent neurons
    """

    site: str
    neurons: int
    error: list[float]
    own: list[float]
    clipped: list[float]
    silent: list[float]
    firing: list[float]
    of_clipped: list[float]
    of_silent: list[float]


@dataclass(frozen=True)
class Agreement:
    """What `measure.agreement` found, layer by layer.

    Attributes:
        samples: How many were compared.
        sites: A `SiteAgreement` for each site, in their order.
        output_error: Relative error of the answers, after each step.
        same_class: Share of equal classes after each step, where answers are scores; else None.

    Example:
        >>> found = measure.agreement(model, snn, [x])
        >>> [site.site for site in found.sites]
        ['1']
        >>> len(found.explain(1))
        1
    """

    samples: int
    sites: list[SiteAgreement]
    output_error: list[float]
    same_class: list[float] | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def table(self, step: int = -1) -> str:
        """The sites after one step, the last unless told, and what the columns say."""
        rows: list[tuple[str, ...]] = [("site", "error", "own", "clipped", "silent", "firing")]
        for s in self.sites:
            rows.append((s.site, *(f"{x[step]:.2%}" for x in (s.error, s.own, s.clipped, s.silent, s.firing))))
        same = "" if self.same_class is None else f"; same class {' '.join(f'{x:.1%}' for x in self.same_class)}"
        errors = " ".join(f"{x:.2%}" for x in self.output_error)
        steps = " at each step" if len(self.output_error) > 1 else ""
        found = f"{many(self.samples, 'sample')}; error of the answer{steps} {errors}{same}"
        return f"{columns(rows)}\n{found}\n{LEGEND}"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each site and step."""
        return [
            {"site": s.site, "t": t + 1, **{name: values[t] for name, values in asdict(s).items() if name in BY_STEP}}
            for s in self.sites
            for t in range(len(s.error))
        ]

    def explain(self, most: int = 5) -> list[str]:
        """The sites that lose most by themselves after the last step, by what would help them; each advice once.

        Args:
            most: How many sites are named; 1 or more.

        Example:
            >>> len(measure.agreement(model, snn, [x]).explain(most=3))
            1
        """
        worst = [site for site in sorted(self.sites, key=lambda s: -s.own[-1])[:most] if site.own[-1] > 0]
        helped: dict[str, list[str]] = {}
        for site in worst:
            said, remedy = _remedy(site)
            helped.setdefault(remedy, []).append(f"{site.site} loses {site.own[-1]:.1%}{said}")
        return [f"{', '.join(sites)}: {remedy}" for remedy, sites in helped.items()]


def _remedy(site: SiteAgreement) -> tuple[str, str]:
    """What there is to say of this site, and what helps it and others of its kind."""
    if site.of_clipped[-1] > MOST:
        said = f" ({site.clipped[-1]:.1%} of its neurons)"
        return said, "values are clipped; give a larger threshold (threshold_scale)"
    if site.of_silent[-1] > MOST:
        said = f" ({site.silent[-1]:.1%} of its neurons)"
        return said, "values are too small to make a neuron fire; give more levels (num_levels)"
    return "", "neurons fire, but not often enough; give more spikes a step (burst) or more steps (num_steps)"


@dataclass
class _Sums:
    """Of one site at each step, double [7, T]: squared error, own squared error; clipped, silent and fired neurons; own
    squared error of clipped and of silent ones.
    """

    steps: Tensor
    power: float = 0.0
    active: int = 0
    neurons: int = 0


@dataclass
class _Comparison:
    network: SpikingNetwork
    num_steps: int
    sums: dict[str, _Sums] = field(default_factory=dict)
    activations: dict[str, Tensor] = field(default_factory=dict)

    def note(self, site: str, steps: Tensor) -> Tensor:
        """The ANN's pass: what an exact neuron sends."""
        self.activations[site] = self.network.exact(site, steps)[0].clone()
        return self.activations[site].unsqueeze(0)

    def compare(self, site: str, t: int, inputs: Tensor, out: Encoded) -> None:
        own = self.sums.setdefault(site, _Sums(torch.zeros(7, self.num_steps, dtype=torch.float64)))
        target, neuron = self.activations[site], self.network.neurons[site]
        threshold = self.network.threshold(site)
        assert out.levels is not None
        reach = [
            neuron.burst * (1.0 if neuron.coding == "rate" else sum(1 / k for k in range(1, t + i + 1)))
            for i in range(len(inputs))
        ]
        for i, (x, estimate, levels) in enumerate(zip(inputs, out.estimates, out.levels, strict=True)):
            lost = (estimate - self.network.exact(site, x)).double().square()
            clipped = target.abs() > reach[i] * threshold * (1 + 1e-5)
            silent = (estimate == 0) & (target != 0)
            fired = levels[0] != 0  # the first of a burst
            error = (estimate - target).double().square()
            parts = (error, lost, clipped, silent, fired, lost * clipped, lost * silent)
            own.steps[:, t - 1 + i] += torch.stack([part.sum().double().cpu() for part in parts])
        if t == 1:
            own.power += float(target.double().square().sum())
            own.active += int((target != 0).sum())
            own.neurons += target.numel()

    def result(self) -> list[SiteAgreement]:
        found = []
        for site, s in self.sums.items():
            error, own = (s.steps[:2] / max(s.power, 1e-300)).sqrt().tolist()
            clipped, silent, fired = (
                (s.steps[i] / max(number, 1)).tolist() for i, number in ((2, s.neurons), (3, s.active), (4, s.neurons))
            )
            of_clipped, of_silent = (s.steps[5:] / s.steps[1].clamp_min(1e-300)).tolist()
            found.append(SiteAgreement(site, s.neurons, error, own, clipped, silent, fired, of_clipped, of_silent))
        return found


class _Compared(NeuronStates):
    """The neurons of a run that are compared with the ANN as they go."""

    def __init__(self, network: SpikingNetwork, comparison: _Comparison) -> None:
        super().__init__(network)
        self.comparison = comparison

    def encode(self, site: str, steps: Tensor, threshold: Tensor, *, want_levels: bool, overwrite: bool) -> Encoded:
        out = super().encode(site, steps, threshold, want_levels=True, overwrite=False)
        self.comparison.compare(site, self.t, steps, out)
        return out


@torch.no_grad()
def agreement(
    model: nn.Module,
    network: Network,
    batches: Iterable[Any],
    *,
    num_steps: int | None = None,
    inputs: InputFunction | None = None,
) -> Agreement:
    """Compare a network with the model it was made from, layer by layer and step by step.

    Args:
        model: The ANN.
        network: The network, converted whole.
        batches: Inputs, with or without targets.
        num_steps: T; the network's own unless given.
        inputs: Picks the model's input out of a batch.

    Returns:
        An Agreement: errors by layer and step; `.explain()` says which layers lose most and what would help.

    Example:
        >>> for line in measure.agreement(model, snn, [x]).explain():
        ...     assert isinstance(line, str)
    """
    _check_order(model, network)
    network = network.whole("agreement")
    total = network.config.steps_or(num_steps)
    comparison, samples = _Comparison(network, total), 0
    answers = _Answers(total)
    for call in bound_calls(network, batches, inputs):
        samples += samples_in(call, network.batch_axis)
        network.analog_with(call, Neurons(comparison.note))
        out = network.run_with(call, total, lambda part, _: _Compared(part, comparison), max_batch=2**31)
        answers.add(answer_of(model, call), out)
    return Agreement(samples, comparison.result(), *answers.result())


def _check_order(model: object, network: object) -> None:
    """Refuse what is no converted network in the network's place."""
    if not isinstance(network, Network):
        swapped = " (the two are swapped)" if isinstance(model, Network) else ""
        raise ModelError(
            f"a {type(network).__name__} is no converted network{swapped}; give agreement(model, network, batches)"
        )


class _Answers:
    """Sums over the answers: errors of all floating leaves, and equal classes where there are scores."""

    def __init__(self, num_steps: int) -> None:
        self.error, self.power = torch.zeros(num_steps, dtype=torch.float64), 0.0
        self.same, self.rows = torch.zeros(num_steps, dtype=torch.float64), 0

    def add(self, wanted: Any, found: Any) -> None:
        scores = class_scores(wanted)
        ours, theirs = flatten(found)[0], flatten(wanted)[0]
        if len(ours) != len(theirs):
            raise ModelError(f"the model answers with {len(theirs)} values and the network with {len(ours)}; {ITS}")
        for a, b in zip(theirs, ours, strict=True):
            if not isinstance(a, Tensor) or not a.is_floating_point() or not isinstance(b, Tensor):
                continue
            if b.shape[1:] != a.shape:
                forms = f"{tuple(a.shape)} and the network {tuple(b.shape[1:])}"
                raise ModelError(f"the model answers with a tensor {forms}; {ITS}")
            self.error += (b - a).double().square().flatten(1).sum(1).cpu()
            self.power += float(a.double().square().sum())
            if len(scores) == 1 and a is scores[0]:
                self.same += (b.argmax(-1) == a.argmax(-1)).double().sum(1).cpu()
                self.rows += len(a)

    def result(self) -> tuple[list[float], list[float] | None]:
        error = [float(x) for x in (self.error / max(self.power, 1e-300)).sqrt()]
        return error, [float(x) / self.rows for x in self.same] if self.rows else None
