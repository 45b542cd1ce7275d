"""How values lie in memory, and which may be overwritten. What they are stays the same; the speed does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spikecast.graph.program import NEURON, Meta, Program, Ref

# Ops that can write over their first argument. A new large tensor costs more than filling it: the system hands out its
# pages one by one.
IN_PLACE: dict[str, Callable[..., Tensor]] = {
    "aten.add.Tensor": torch.ops.aten.add_.Tensor,
    "aten.mul.Tensor": torch.ops.aten.mul_.Tensor,
    "aten.gelu.default": torch.ops.aten.gelu_.default,
    "aten.silu.default": torch.ops.aten.silu_.default,
}
# Ops whose result is memory of its own, no part of another value.
_FRESH = frozenset(
    f"aten.{name}"
    for name in (
        *("linear", "matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("add", "mul", "gelu", "silu", "softmax", "layer_norm", "group_norm"),
    )
)


def owned_sources(program: Program, moving: set[str]) -> set[str]:
    """Neurons and ops of `IN_PLACE` that are the only ones to read their first argument, which moves and is fresh."""
    by_name = {node.name: node for node in program.nodes}
    users, outputs = program.users, set(program.output_names)
    found = set()
    for node in program.nodes:
        if (node.target != NEURON and node.target not in IN_PLACE) or not isinstance(node.args[0], Ref):
            continue
        source = by_name.get(node.args[0].name)
        if source is None or source.op not in _FRESH or source.name not in moving or source.name in outputs:
            continue
        alike = isinstance(source.meta, Meta) and isinstance(node.meta, Meta) and source.meta.dtype == node.meta.dtype
        if alike and len(users.get(source.name, ())) == 1 and sum(name == source.name for name in node.inputs) == 1:
            found.add(node.name)
    return found


def keeps_form(args: Sequence[Any]) -> bool:
    """Whether the result of an elementwise op has the form of its first argument."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    first = tensors[0]
    return all(t.dtype == first.dtype and torch.broadcast_shapes(t.shape, first.shape) == first.shape for t in tensors)


def channels_last(program: Program) -> Program:
    """Weights of 2-D convolutions with their channels innermost, which is the order the fast kernels compute in.

    A convolution whose weights lie so answers in the same order, so all that follows stays in it: nothing is rearranged
    from one convolution to the next (`python -m benchmarks --only networks`).
    """
    weights = {
        node.args[1].name
        for node in program.nodes
        if node.op == "aten.conv2d" and isinstance(node.args[1], Ref) and node.args[1].name in program.tensors
    }
    tensors = {
        name: value.contiguous(memory_format=torch.channels_last) if name in weights and value.dim() == 4 else value
        for name, value in program.tensors.items()
    }
    return dataclasses.replace(program, tensors=tensors)
