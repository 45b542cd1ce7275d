"""How much the answer suffers from an error of each channel: one backward pass of the ANN, no weight is changed.

The sensitivity w of a channel is the mean of (∂L/∂a)² over its entries. For scores of classes L is the log-probability
of a class drawn from the ANN's own softmax; then ½·Σ w·error² is the divergence of the answers in nats, to second order
and for errors that do not go together. For any other answer L is its product with random signs, over its size; then the
same sum is the relative squared error of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from spikecast.config import Config
from spikecast.conversion.channels import by_channel, channel_axes
from spikecast.graph.execute.observer import Observer
from spikecast.network.plan import Site
from spikecast.network.spiking import SpikingNetwork

Answer = Literal["logits", "values"]


class Noted(Observer):
    """Exact neurons that keep what they sent, so that gradients can be asked for."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.sites = sites
        self.sent: dict[str, Tensor] = {}

    def fire(self, site: str, steps: Tensor, *, may_overwrite: bool) -> Tensor:
        sent = self.sites[site].exact(steps)
        if not sent.requires_grad:  # the first neurons: nothing before them is differentiated
            sent = sent.detach().requires_grad_()
        self.sent[site] = sent
        return sent


def sensitivities(network: SpikingNetwork, tensors: Sequence[Tensor], answer: Answer, seed: int) -> dict[str, Tensor]:
    """For each site the sensitivity of each of its channels, float64; one number where a layer shares a threshold.

    Raises RuntimeError where the program cannot be differentiated.
    """
    noted = Noted(network.sites)
    with torch.enable_grad():
        execution = network.execution(network.plan.program, overwrite=False)
        execution.start(tensors)
        outputs = [x for x in execution.advance(noted) if isinstance(x, Tensor) and x.is_floating_point()]
        total = drawn_score(outputs, answer, seed)
        gradients = torch.autograd.grad(total, list(noted.sent.values()), allow_unused=True)
    found = {}
    for (name, sent), gradient in zip(noted.sent.items(), gradients, strict=True):
        axes = channel_axes(network.sites[name], _granularity(network.config, name))
        own = torch.zeros_like(sent) if gradient is None else gradient
        found[name] = by_channel(own[0], axes).double().square().mean(1)
    return found


def drawn_score(outputs: Sequence[Tensor], answer: Answer, seed: int) -> Tensor:
    """L of all samples, summed: a class drawn for each row of scores, or a sign for each number."""
    generator = torch.Generator().manual_seed(seed)
    if answer == "logits":
        logs = [x.log_softmax(-1).flatten(0, -2) for x in outputs]
        drawn = [torch.multinomial(x.detach().exp().cpu(), 1, generator=generator).to(x.device) for x in logs]
        return torch.stack([x.gather(1, y).sum() for x, y in zip(logs, drawn, strict=True)]).sum()
    power = sum(float(x.detach().double().square().sum()) for x in outputs) / max(len(outputs[0]), 1)
    signs = [torch.randint(0, 2, x.shape, generator=generator).to(x) * 2 - 1 for x in outputs]
    # twice the square, so that half of Σ w·error² is the error itself
    factor = math.sqrt(2 / max(power, torch.finfo(torch.float64).tiny))
    return factor * torch.stack([(x * v).sum() for x, v in zip(outputs, signs, strict=True)]).sum()


def _granularity(config: Config, site: str):
    own = config.at(site)
    assert own is not None
    return own.granularity
