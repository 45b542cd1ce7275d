"""How much the answer suffers from an error of each channel: one backward pass of the ANN, no weight is changed.

The sensitivity w of a channel is the mean of (∂L/∂a)² over its entries. For scores of classes L is the sum of all
√p·log p with random signs, p being the ANN's own probabilities; then ½·Σ w·error² is the divergence of the answers in
nats, to second order and for errors that do not go together. For any other answer L is its product with random signs,
over its size; then the same sum is the relative squared error of the answer.

Errors of one site do go together, as those of the smallest values, which are all lost. What the answer suffers from all
of them is ½·(Σ ∂L/∂a·error)² in the mean; how much more that is than ½·Σ (∂L/∂a·error)² is measured with the errors of
the site's own neurons (`together`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from spikecast.batches import Call, samples_in
from spikecast.conversion.channels import by_channel, channel_axes
from spikecast.errors import first_line
from spikecast.graph.calls import batch_size
from spikecast.graph.execute.observer import Observer
from spikecast.graph.turns import computing
from spikecast.network.base import Network
from spikecast.network.plan import Site
from spikecast.network.spiking import SpikingNetwork

Answer = Literal["logits", "values"]


@dataclass(frozen=True)
class Sensitivities:
    """w of every channel of every site; empty where there are none, and relative errors count instead.

    `gradients` are kept until the errors of their site are known.
    """

    by_site: dict[str, Tensor]
    samples: int
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def of(self, site: str, sent: Tensor, channels: int) -> Tensor:
        """Of the channels of a site that sends this; without gradients, what makes errors relative to the layer."""
        if self.by_site:
            return self.by_site[site]
        power = float(sent.double().square().sum()) / self.samples
        return torch.full((channels,), 2 / max(power, 1e-30), dtype=torch.float64, device=sent.device)

    def weigh(self, site: Site, error: Tensor) -> None:
        """Count the errors of a site as they go together, once it is known what its neurons leave."""
        gradient = self.gradients.pop(site.name, None)
        if gradient is not None:
            self.by_site[site.name] *= together(gradient * error, self.samples, site.meta.batch_axis or 0)

    @classmethod
    def of_network(cls, network: Network, call: Call, answer: Answer) -> Sensitivities:
        """From one backward pass; where that is not possible, none, and the network's report says so."""
        by_site: dict[str, Tensor] = {}
        gradients: dict[str, Tensor] = {}
        if "" not in network.networks:
            network.add_note("errors of all layers count alike: a network by region is not differentiated")
        else:
            try:
                by_site, gradients = _from_gradients(network.networks[""], call, answer, network.config.seed)
            except RuntimeError as error:
                network.add_note(f"errors of all layers count alike: no gradients ({first_line(error)})")
        return cls(by_site, samples_in(call, network.batch_axis), gradients)


class _Noted(Observer):
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


def together(parts: Tensor, samples: int, batch_axis: int) -> float:
    """How much more errors harm together than one by one, given each one's part in the answer's error.

    A mean over few samples: it counts where it is more than a standard error above 1, and up to 50.
    """
    rows = parts.movedim(batch_axis, 0).double()
    if samples < 2 or len(rows) % samples:
        return 1.0
    rows = rows.reshape(samples, -1)  # heads may lie in the batch
    squares, apart = rows.sum(1).square(), float(rows.square().sum(1).mean())
    mean, error = float(squares.mean()), float(squares.std()) / math.sqrt(samples)
    return min(mean / apart, 50.0) if mean - error > apart else 1.0


def _from_gradients(
    network: SpikingNetwork, call: Call, answer: Answer, seed: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    plan, tensors = network.prepare_call(*call)
    noted = _Noted(network.sites)
    with torch.enable_grad(), computing():
        execution = network.execution(plan.program, overwrite=False)
        execution.start(tensors)
        outputs = _floats(execution.advance(noted))
        score = drawn_score(outputs, answer, batch_size(plan.program, tensors) or 1, seed)
        gradients = torch.autograd.grad(score, list(noted.sent.values()), allow_unused=True, materialize_grads=True)
    by_site = {}
    for name, gradient in zip(noted.sent, gradients, strict=True):
        own = network.config.at(name)
        assert own is not None
        axes = channel_axes(network.sites[name], own.granularity)
        by_site[name] = by_channel(gradient[0], axes).double().square().mean(1)
    return by_site, {name: gradient[0].bfloat16() for name, gradient in zip(noted.sent, gradients, strict=True)}


def drawn_score(outputs: Sequence[Tensor], answer: Answer, samples: int, seed: int) -> Tensor:
    """L of all samples, summed: signs for the classes of each row of scores, or for each number."""
    generator = torch.Generator().manual_seed(seed)
    if answer == "logits":
        logs = [x.log_softmax(-1).flatten(0, -2) for x in outputs]
        signs = [torch.randint(0, 2, x.shape, generator=generator).to(x) * 2 - 1 for x in logs]
        rows = sum(len(x) for x in logs) / samples  # of a sample: their divergences are averaged
        score = torch.stack([(x * x.detach().div(2).exp() * v).sum() for x, v in zip(logs, signs, strict=True)]).sum()
        return score / math.sqrt(rows)
    power = sum(float(x.detach().double().square().sum()) for x in outputs) / samples
    signs = [torch.randint(0, 2, x.shape, generator=generator).to(x) * 2 - 1 for x in outputs]
    score = torch.stack([(x * v).sum() for x, v in zip(outputs, signs, strict=True)]).sum()
    return score * math.sqrt(2 / max(power, 1e-300))  # half of Σ w·error² is then the error itself


@torch.no_grad()
def divergence(answers: Sequence[Any], reference: Sequence[Any], answer: Answer) -> float:
    """How far answers are from the reference: nats per row of scores in the mean, or the squared relative error."""
    pairs = list(zip(_floats(answers), _floats(reference), strict=True))
    if answer == "values":
        error = sum(float((a.double() - b.double()).square().sum()) for a, b in pairs)
        return error / max(sum(float(b.double().square().sum()) for _, b in pairs), 1e-300)
    logs = [(a.double().log_softmax(-1), b.double().log_softmax(-1)) for a, b in pairs]
    nats = sum(float((q.exp() * (q - p)).sum()) for p, q in logs)
    return nats / sum(q[..., 0].numel() for _, q in logs)


def _floats(leaves: Sequence[Any]) -> list[Tensor]:
    return [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]
