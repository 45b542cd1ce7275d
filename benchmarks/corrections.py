"""Corrections that were tried and not kept: python -m benchmarks.corrections [--only ResNet-20]

At T = 1, receivers hold something better than what was sent: the mean error of each channel is added (bias), or what
was sent is multiplied by the best factor of each channel (gain), or by the best matrix over all channels (ridge). All
are learned on calibration samples and cost no spike. A rotation lets neurons of a Transformer send the sums of a
Hadamard matrix in place of the features, with thresholds searched for them.

Shows agreement with the ANN, divergence from it and energy (spikes times their prices) on the first half of `val`. All
are applied at every site, also where a network could not fold them into its weights: an upper bound of what they give.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import spikecast
from benchmarks.real import NETWORKS, Real
from spikecast import Config
from spikecast.conversion.channels import channel_axes
from spikecast.conversion.search import scaled, tried
from spikecast.costs import costs_named
from spikecast.graph.execute.run import Execution
from spikecast.kernels import Encoded, encode
from spikecast.network.plan import Site
from spikecast.network.prices import spike_prices
from spikecast.network.spiking import SpikingNetwork
from spikecast.network.states import NeuronStates

LEARNED_ON = 32
RIDGE = 1e-3  # of the mean power of a channel
KINDS = ("none", "bias", "gain", "ridge", "rotation")


class Corrected(NeuronStates):
    """Neurons whose receivers hold something better, by a table of what each site adds or multiplies by."""

    def __init__(self, network: SpikingNetwork, _: Execution, kind: str, table: dict[str, Tensor], learn: bool) -> None:
        super().__init__(network)
        self.kind, self.table, self.learn = kind, table, learn
        self.spikes: dict[str, int] = {}

    def encode(self, site: str, steps: Tensor, threshold: Tensor, **_: Any) -> Encoded:
        own, neuron = self.network.sites[site], self.network.neurons[site]
        hadamard = rotation(own, steps) if self.kind == "rotation" else None
        if hadamard is None:
            out = encode(steps, threshold, neuron, want_levels=True)
            sent = self._better(own, own.exact(steps), out.estimates)
        else:
            steps = rotated(steps, hadamard)
            if self.learn:
                axes = (steps.dim() - 2,)
                start = steps.abs().flatten(0, -2).amax(0).clamp_min(1e-6).reshape((1,) * (steps.dim() - 2) + (-1,))
                self.table[site] = scaled(start, tried(own, axes, neuron, steps, start, count=False).error, tie=0.0)
            out = encode(steps, self.table[site], neuron, want_levels=True)
            sent = rotated(out.estimates, hadamard)
        assert out.levels is not None
        self.spikes[site] = int((out.levels != 0).sum())
        return Encoded(sent, out.levels, out.counts)

    def _better(self, site: Site, exact: Tensor, sent: Tensor) -> Tensor:
        settings = self.network.config.at(site.name)
        if self.kind in ("none", "rotation") or settings is None:
            return sent
        axes = channel_axes(site, settings.granularity)
        if self.kind == "ridge":
            return self._mixed(site, axes, exact, sent)
        if self.learn:
            others = [d for d in range(exact.dim()) if d - 1 not in axes]
            self.table[site.name] = _factor(exact, sent, others) if self.kind == "gain" else _mean(exact - sent, others)
        known = self.table[site.name]
        return sent * known if self.kind == "gain" else sent + known

    def _mixed(self, site: Site, axes: tuple[int, ...], exact: Tensor, sent: Tensor) -> Tensor:
        if len(axes) != 1:
            return sent
        a, b = (x.movedim(axes[0] + 1, -1) for x in (exact, sent))
        if self.learn:
            wanted, given = a.flatten(0, -2).double(), b.flatten(0, -2).double()
            power = given.T @ given
            power.diagonal().add_(RIDGE * power.diagonal().mean().clamp_min(1e-12))
            self.table[site.name] = torch.linalg.solve(power, given.T @ wanted).to(sent.dtype)
        return (b @ self.table[site.name]).movedim(-1, axes[0] + 1)


def _mean(error: Tensor, others: list[int]) -> Tensor:
    return error.mean(others, keepdim=True)[0]


def _factor(exact: Tensor, sent: Tensor, others: list[int]) -> Tensor:
    power = sent.square().sum(others, keepdim=True)
    return torch.where(power > 0, (exact * sent).sum(others, keepdim=True) / power, 1.0)[0]


def rotation(site: Site, steps: Tensor) -> Tensor | None:
    """The Hadamard matrix for the features of an identity site, in blocks where their number is no power of two."""
    size = steps.shape[-1] & -steps.shape[-1]
    if site.is_rectifier or site.axis is None or site.axis != steps.dim() - 2 or size < 16:
        return None
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / size**0.5


def rotated(values: Tensor, hadamard: Tensor) -> Tensor:
    """Blocks of features times the matrix, which is its own inverse."""
    return (values.unflatten(-1, (-1, len(hadamard))) @ hadamard).flatten(-2)


class Found(NamedTuple):
    agreement: float
    nats: float
    energy: float


def measured(real: Real, snn: SpikingNetwork, calibration: Tensor, images: Tensor, wanted: Tensor, kind: str) -> Found:
    """How close the answers are to the ANN's with a correction, and what they cost."""
    table: dict[str, Tensor] = {}
    made: list[Corrected] = []

    def neurons(part: SpikingNetwork, execution: Execution, learn: bool) -> Corrected:
        made.append(Corrected(part, execution, kind, table, learn))
        return made[-1]

    snn.run_with(((calibration[:LEARNED_ON],), {}), 1, partial(neurons, learn=True), max_batch=LEARNED_ON)
    made.clear()
    with torch.inference_mode():
        answers = [snn.run_with(((x,), {}), 1, partial(neurons, learn=False))[-1] for x in images.split(real.batch)]
    p, q = (x.double().log_softmax(-1) for x in (torch.cat(answers), wanted))
    spikes = {site: sum(each.spikes[site] for each in made) / len(images) for site in snn.sites}
    captured = snn.plan.program.flow.samples
    pulses = {site: count * captured / math.prod(snn.sites[site].meta.shape) for site, count in spikes.items()}
    prices = spike_prices(snn.plan.program, costs_named("paper")[0], pulses=pulses)
    return Found(
        float((p.argmax(-1) == q.argmax(-1)).double().mean()),
        float((q.exp() * (q - p)).sum(-1).mean()),
        sum(prices[site] * spikes[site] for site in spikes),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corrections",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [name for name, real in NETWORKS.items() if real.task in ("classes", "tokens")]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--bursts", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--budget", type=float, help="an energy budget in place of the bursts")
    given = parser.parse_args()
    for name in given.only:
        real = NETWORKS[name]
        model, calibration = real.build(), real.read("calibration")[0]
        images = real.read("chosen on")[0][: given.images]
        with torch.inference_mode():
            wanted = torch.cat([model(x) for x in images.split(real.batch)])
        settings: list[dict[str, Any]] = [{"burst": b} for b in given.bursts]
        for setting in [{"energy_budget": given.budget}] if given.budget else settings:
            config = Config(num_steps=1, output="logits", **setting)
            snn = spikecast.convert(model, calibration.split(real.batch), config)
            for kind in given.kinds:
                found = measured(real, snn, calibration, images, wanted, kind)
                said = f"{found.agreement:.1%} agree, {found.nats:.5f} nats, energy {found.energy:.4f}"
                print(f"{name}, {setting}, {len(images)} images, {kind}: {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
