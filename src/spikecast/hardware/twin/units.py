"""What each op of a converted network is on a chip: synapses, graded units, products, neurons.

The kinds are read off the program alone, so that a network loaded from a file has them too.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Program
from spikecast.graph.roles import ADDED, Role
from spikecast.hardware.affine import is_affine, is_wire

_ADDED_FIRST = {*ADDED, "aten.addcmul"}  # what is added to the product comes first
_MAY_ADD = {*_ADDED_FIRST, "aten.linear"}


class Unit(Enum):
    """How an op turns what arrives at one step into what it sends."""

    FIXED = "fixed"  # known before step 1: weights, sizes, integer inputs and what is made of them
    NEURON = "neuron"  # spikes (Thm 4.4)
    LINEAR = "linear"  # synapses without bias; the bias is a source (Thm 4.5)
    PRODUCT = "product"  # a graded unit with two inputs and three products (Thm 4.3)
    GRADED = "graded"  # a graded unit (Thm 4.2)
    PART = "part"  # one of several results


def units(program: Program) -> dict[str, Unit]:
    """The unit of each op. An op that the table of roles does not know is a graded unit."""
    fixed = {*program.flow.constant, *(i.name for i in program.inputs if not is_wire(i.meta))}
    kinds: dict[str, Unit] = {}
    for node in program.nodes:
        kinds[node.name] = _unit(node, program, fixed)
        if kinds[node.name] is Unit.FIXED:
            fixed.add(node.name)
    return kinds


def _unit(node: Node, program: Program, fixed: Collection[str]) -> Unit:
    if node.target == NEURON:
        return Unit.NEURON
    known = all(name in fixed for name in node.inputs)
    if node.name in fixed or (known and isinstance(node.meta, Meta) and not is_wire(node.meta)):
        return Unit.FIXED
    if node.target == GETITEM:
        return Unit.PART
    if is_affine(node, program, fixed):
        return Unit.LINEAR
    return Unit.PRODUCT if _is_product(node, program, fixed) else Unit.GRADED


def _is_product(node: Node, program: Program, fixed: Collection[str]) -> bool:
    """Whether an op multiplies two signals, and adds a third at most."""
    count, signals = len(node.inputs), program.flow.sources[node.name]
    bilinear = node.op != "aten.bilinear" and (count == 2 or (count == 3 and node.op in _MAY_ADD))
    multiplies = program.flow.roles[node.name] in (Role.PRODUCT, Role.MATMUL)
    return multiplies and bilinear and is_wire(node.meta) and all(n in fixed or n in signals for n in node.inputs)


def factors(node: Node) -> tuple[int, int]:
    """Where the two factors of a product stand among the values it reads."""
    return (1, 2) if node.op in _ADDED_FIRST else (0, 1)
