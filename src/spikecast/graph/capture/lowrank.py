"""Linear maps of one input that are added up become one: a layer with an adapter beside it (LoRA) is a layer."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from spikecast.graph.capture.clean import Rewriter, drop_dead
from spikecast.graph.program import Node, Program, Ref


class _Map(NamedTuple):
    """A weighted op, or several one after the other: what it reads, its weight and bias in float64, their type."""

    source: str
    weight: Tensor
    bias: Tensor | None
    dtype: torch.dtype

    def scaled(self, factor: float) -> _Map:
        return self._replace(weight=self.weight * factor, bias=None if self.bias is None else self.bias * factor)


def merge_adapters(program: Program) -> Program:
    """x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ is x·(W + s·B·A)ᵀ + b: one weighted op, fed by the neurons in front of it."""
    while True:
        writer = Rewriter(program)
        merged = drop_dead(writer.run(partial(_merged, writer)))
        if len(merged.nodes) == len(program.nodes):
            return merged
        program = merged


def _merged(writer: Rewriter, node: Node) -> Ref | None:
    """The one layer in place of an op that adds two; it keeps the place of the one that reads the input itself."""
    if node.target != "aten.add.Tensor" or node.kwargs or not all(isinstance(part, Ref) for part in node.args):
        return None
    first, second = (_map(writer.program, part.name) for part in node.args)
    if first is None or second is None or first.source != second.source or first.weight.shape != second.weight.shape:
        return None
    ends = [writer.program.flow.by_name[part.name] for part in node.args]
    like = next((n for n in ends if n.op == "aten.linear" and n.args[0].name == first.source), None)
    if like is None:  # two of low rank: one of full rank would compute more products than both
        return None
    biases = [m.bias for m in (first, second) if m.bias is not None]
    args = [Ref(writer.names.get(first.source, first.source))]
    for kind, parts in (("weight", [first.weight, second.weight]), ("bias", biases)):
        if parts:
            value = torch.stack(parts).sum(0).to(first.dtype)
            args.append(writer.constant(f"{like.scope or node.name}.{kind}.merged", value))
    return writer.emit(like, "aten.linear.default", tuple(args), node.meta)


def _map(program: Program, name: str) -> _Map | None:
    """The linear map that ends in a value which nobody else reads."""
    node = program.flow.by_name.get(name)
    if node is None or len(program.users[name]) > 1 or name in program.output_names:
        return None
    if node.target == "aten.mul.Tensor" and isinstance(node.args[0], Ref) and isinstance(node.args[1], int | float):
        inner = _map(program, node.args[0].name)
        return None if inner is None else inner.scaled(node.args[1])
    if node.op != "aten.linear" or node.args[1].name not in program.tensors:
        return None
    own, bias_ref = program.tensors[node.args[1].name], node.argument(2, "bias")
    if bias_ref is not None and bias_ref.name not in program.tensors:
        return None
    weight, bias = own.double(), None if bias_ref is None else program.tensors[bias_ref.name].double()
    before = _map(program, node.args[0].name)
    if before is None:
        return _Map(node.args[0].name, weight, bias, own.dtype)
    if before.bias is not None:
        bias = weight @ before.bias + (0.0 if bias is None else bias)
    return _Map(before.source, weight @ before.weight, bias, own.dtype)
