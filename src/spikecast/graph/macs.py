"""Multiply-accumulates of an op for one sample, at the sizes of the capture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spikecast.graph.program import Meta, Node
from spikecast.graph.roles import ROLES, Role, matmul_operands


def macs(node: Node, metas: Mapping[str, Any]) -> int:
    """0 for ops without weights or matrix products. Borders count as if they were inside."""
    out = node.meta
    if not isinstance(out, Meta):
        return 0
    samples = _samples(node, metas)
    if node.op.startswith("aten.conv"):
        weight = metas[node.args[1].name].shape
        if "transpose" in node.op:
            source = metas[node.args[0].name].shape
            return int(math.prod(source) * math.prod(weight[1:]) // samples)
        return int(math.prod(out.shape) * math.prod(weight[1:]) // samples)
    if ROLES.get(node.op) is not Role.MATMUL:
        return 0
    if node.op == "aten.einsum":
        return _einsum_macs(node, metas) // samples
    left = metas[matmul_operands(node)[0].name].shape
    return int(math.prod(out.shape) * left[-1] // samples)


def _samples(node: Node, metas: Mapping[str, Any]) -> int:
    """The batch size at capture, read off any input; an axis that merges the batch with others counts as one."""
    sizes = [
        m.shape[m.batch_axis]
        for m in (*(metas.get(name) for name in node.inputs), node.meta)
        if isinstance(m, Meta) and m.batch_axis is not None
    ]
    return min(sizes) if sizes else 1


def _einsum_macs(node: Node, metas: Mapping[str, Any]) -> int:
    terms = str(node.args[0]).replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, ref in zip(terms, matmul_operands(node), strict=False):
        shape = metas[ref.name].shape
        if "." not in term and len(term) == len(shape):
            sizes.update(zip(term, shape, strict=True))
    return math.prod(sizes.values())
