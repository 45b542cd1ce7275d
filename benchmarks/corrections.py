"""Corrections that were tried and not kept: python -m benchmarks.corrections [--only ResNet-20]

Adds to what receivers hold the mean error of each channel (bias), or multiplies it by the best factor (gain), both
learned on calibration samples. Shows the agreement with the ANN on the first half of `val`, at T = 1.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor

import spikecast
from benchmarks.real import NETWORKS, Real
from spikecast import Config
from spikecast.conversion.channels import channel_axes
from spikecast.graph.execute.run import Execution
from spikecast.kernels import Encoded
from spikecast.network.base import Network
from spikecast.network.spiking import SpikingNetwork
from spikecast.network.states import NeuronStates

LEARNED_ON = 32


class Corrected(NeuronStates):
    """Neurons whose receivers hold something better, by tables of what to add and to multiply by."""

    def __init__(self, network: SpikingNetwork, _: Execution, kind: str, table: dict[str, Tensor], learn: bool) -> None:
        super().__init__(network)
        self.kind, self.table, self.learn = kind, table, learn

    def encode(self, site: str, steps: Tensor, threshold: Tensor, **options: Any) -> Encoded:
        own, exact = self.network.sites[site], self.network.exact(site, steps[-1:].clone())[0]
        out = super().encode(site, steps, threshold, **options)
        sent, settings = out.estimates, self.network.config.at(site)
        if self.learn and settings is not None:
            axes = channel_axes(own, settings.granularity)
            others = [d for d in range(exact.dim()) if d not in axes]
            self.table[site] = self._learned(exact, sent[-1], others)
        if self.kind == "bias":
            sent = sent + self.table[site]
        elif self.kind == "gain":
            sent = sent * self.table[site]
        return Encoded(sent, out.levels, out.counts)

    def _learned(self, exact: Tensor, sent: Tensor, others: list[int]) -> Tensor:
        if self.kind == "bias":
            return (exact - sent).mean(others, keepdim=True)
        power = sent.square().sum(others, keepdim=True)
        return torch.where(power > 0, (exact * sent).sum(others, keepdim=True) / power, 1.0)


def agreement(real: Real, snn: Network, calibration: Tensor, images: Tensor, classes: Tensor, kind: str) -> float:
    """The share of images that get the ANN's class, with a correction."""
    table: dict[str, Tensor] = {}
    if kind != "none":
        learning = partial(Corrected, kind=kind, table=table, learn=True)
        snn.run_with(((calibration[:LEARNED_ON],), {}), 1, learning, max_batch=LEARNED_ON)
    corrected = partial(Corrected, kind=kind, table=table, learn=False)
    parts = zip(images.split(real.batch), classes.split(real.batch), strict=True)
    same = [snn.run_with(((x,), {}), 1, corrected)[-1].argmax(-1) == wanted for x, wanted in parts]
    return float(torch.cat(same).double().mean())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corrections", description=__doc__)
    names = [name for name, real in NETWORKS.items() if real.task == "classes"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--images", type=int, default=200)
    given = parser.parse_args()
    for name in given.only:
        real = NETWORKS[name]
        model, calibration = real.build(), real.read("calibration")[0]
        images = real.read("chosen on")[0][: given.images]
        with torch.inference_mode():
            classes = torch.cat([model(x) for x in images.split(real.batch)]).argmax(-1)
        for burst in (2, 3):
            snn = spikecast.convert(model, calibration.split(real.batch), Config(num_steps=1, burst=burst))
            kinds = ("none", "bias", "gain")
            found = [agreement(real, snn, calibration, images, classes, kind) for kind in kinds]
            said = ", ".join(f"{kind} {share:.1%}" for kind, share in zip(kinds, found, strict=True))
            print(f"{name}, bursts of {burst}, {len(images)} images: {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
