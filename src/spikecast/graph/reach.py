"""How many products a spike of each site takes part in, in the mean over its neurons: exact at borders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spikecast.graph.program import NEURON, Meta, Node, Program, Ref
from spikecast.graph.spread import spread


@dataclass(frozen=True)
class Reach:
    """What a spike of a site meets.

    synapses  products with constant weights, in the mean over the neurons
    partners  products with other activations: by the name of the partner's value, how many of its entries
    """

    synapses: float
    partners: Mapping[str, float]


def reach(program: Program) -> dict[str, Reach]:
    """The reach of every site of a program with neurons, at the sizes of the capture."""
    return {site: _reach(program, node) for site, node in program.flow.neurons.items()}


def _reach(program: Program, neuron: Node) -> Reach:
    assert isinstance(neuron.meta, Meta)
    flow, size = program.flow, math.prod(neuron.meta.shape)
    copies = _followed(program, neuron)
    synapses, partners = 0.0, dict[str, float]()
    for name, operands in flow.operands.items():
        for operand in operands:
            if operand.name not in copies:
                continue
            out = flow.fan_out(flow.by_name[name], lambda ref: flow.captured[ref.name])
            links = copies[operand.name]
            if len(operands) == 1 and links is not None:
                synapses += float((links * out.taps).sum()) * out.factor / size
                continue
            entries = math.prod(flow.captured[operand.name])
            each = out.products / max(entries, 1) * (1.0 if links is None else float(links.sum()) / size)
            if len(operands) == 1:
                synapses += each
            for other in operands:
                if other is not operand:
                    partners[other.name] = partners.get(other.name, 0.0) + each
    return Reach(synapses, partners)


def _followed(program: Program, neuron: Node) -> dict[str, Any]:
    """Every value that holds spikes of the neuron, and how often each entry does; None for the neuron's own value."""
    flow = program.flow
    copies: dict[str, Any] = {neuron.name: None}

    def value(ref: Ref) -> Any:
        if copies.get(ref.name) is not None:
            return copies[ref.name]
        if ref.name in program.tensors:
            return program.tensors[ref.name]
        known = flow.captured[ref.name]
        if not isinstance(known, torch.Size):
            return known
        return torch.ones(known) if ref.name == neuron.name else torch.zeros(known)

    for node in program.nodes:
        if node.name in flow.spikes and node.target != NEURON and not copies.keys().isdisjoint(node.inputs):
            moved = spread(node, value)
            copies[node.name] = moved.float() if isinstance(moved, Tensor) else moved
    return copies
