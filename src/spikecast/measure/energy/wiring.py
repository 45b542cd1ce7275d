"""Who reads whose spikes: for each weighted op of a converted network, what its data inputs carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Size, Tensor

from spikecast.errors import ModelError
from spikecast.graph.fanout import ADDED, UNIFORM, is_convolution
from spikecast.graph.program import NEURON, Node, Program, Ref, refs, replace_refs, resolve
from spikecast.graph.roles import Role, activations, matmul_operands, role_of, synapse_input

_GRADED = (Role.NONLINEAR, Role.PRODUCT, None)


@dataclass(frozen=True)
class Operand:
    """A data input of an op: the value, and its place among the op's tensors."""

    name: str
    position: int


@dataclass
class Wiring:
    """The ops that count, and how the spikes of each neuron are counted.

    weighted  convolutions and matrix products, with their data inputs
    moving    ops that move or average spikes on their way to a weighted one
    graded    units that send graded signals
    mapped    by neuron, the convolution for whose taps the kernel counts; those with the same taps share it
    paired    by neuron, the matrix product for which the kernel counts along an axis
    served    data inputs that the kernel has counted for
    followed  neurons of which somebody needs to know where the spikes are, not only how many
    fan_outs  by op and shapes of its data inputs, what the meter has worked out
    """

    weighted: dict[str, tuple[Operand, ...]] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)
    graded: set[str] = field(default_factory=set)
    mapped: dict[str, tuple[Node, Operand]] = field(default_factory=dict)
    paired: dict[str, tuple[Node, Operand]] = field(default_factory=dict)
    served: set[tuple[str, Operand]] = field(default_factory=set)
    followed: set[str] = field(default_factory=set)
    fan_outs: dict[tuple[str, tuple[Size, ...]], tuple[Tensor, int, int]] = field(default_factory=dict)


def wiring(program: Program) -> Wiring:
    """Read off the program alone: a network that was loaded from a file has it too."""
    metas, still = program.metas, program.flow.constant
    spikes = {node.name for node in program.nodes if node.target == NEURON}
    carried, found = set(spikes), Wiring()
    for node in program.nodes:
        role = role_of(node, metas, still)
        if node.name in still or node.name in spikes or role is Role.CONTROL:
            continue
        active = [node.args[0].name] if node.target == "getitem" else activations(node, metas, still)
        if role is Role.SHAPE and active and carried.issuperset(active):
            carried.add(node.name)
        elif role is Role.SYNAPSE and node.op != "aten.embedding_bag":  # whose input is integers
            found.weighted[node.name] = _operands(node, [synapse_input(node, metas, still)], active)
        elif role is Role.MATMUL:
            found.weighted[node.name] = _operands(node, matmul_operands(node), active)
            if len(found.weighted[node.name]) > 2:
                raise ModelError(f"{node.name} ({node.target}) multiplies three activations; write it as two products")
        elif role in _GRADED:
            found.graded.add(node.name)
    _find_moving(program, found, carried - spikes)
    for name in spikes:
        _find_readers(program, found, name)
    return found


def _find_moving(program: Program, found: Wiring, carried: set[str]) -> None:
    """The ops between neurons and weighted ops."""
    by_name = {node.name: node for node in program.nodes}
    wanted = [operand.name for operands in found.weighted.values() for operand in operands]
    while wanted:
        name = wanted.pop()
        if name in carried and name not in found.moving:
            found.moving.add(name)
            wanted += by_name[name].inputs


def _find_readers(program: Program, found: Wiring, neuron: str) -> None:
    """Share a neuron's readers out among what its kernel can count."""
    for node in program.users.get(neuron, ()):
        for operand in found.weighted.get(node.name, ()):
            if operand.name != neuron:
                continue
            mine = (node.name, operand)
            if len(found.weighted[node.name]) == 2 and node.op in UNIFORM:
                if neuron not in found.paired:
                    found.paired[neuron] = (node, operand)
                    found.served.add(mine)
            elif node.op == "aten.linear" and operand.position == 0:
                found.served.add(mine)
            elif _knows_taps(node, program):
                first, _ = found.mapped.setdefault(neuron, (node, operand))
                if _geometry(node, program) == _geometry(first, program):
                    found.served.add(mine)
            if mine not in found.served:
                found.followed.add(neuron)
        if node.name in found.moving:
            found.followed.add(neuron)


def _operands(node: Node, found: list[Ref], active: list[str]) -> tuple[Operand, ...]:
    first = [r.name for r in refs(node.args)].index(found[0].name)
    return tuple(Operand(r.name, first + i) for i, r in enumerate(found) if r.name in active)


def _knows_taps(node: Node, program: Program) -> bool:
    """Whether a convolution's taps are known before it runs: its weights are constants, its settings numbers."""
    others = [ref.name for ref in refs((node.args[1:], dict(node.kwargs)))]
    return is_convolution(node) and all(name in program.tensors for name in others)


def _geometry(node: Node, program: Program) -> Any:
    """What the taps of a convolution depend on besides its input."""
    _, weight, _, *settings = arguments(node, lambda ref: program.tensors[ref.name].shape if ref != node.args[0] else 0)
    return node.target, weight[2:], settings


def summed_axis(node: Node, operand: Operand, rank: int) -> int | None:
    """The axis of a factor that its partner does not have: only how many entries along it are not zero matters."""
    if rank < 2:
        return None
    is_right = operand.position > (node.op in ADDED)
    return rank - 1 if is_right and node.op != "aten.linear" else rank - 2


def arguments(node: Node, look_up: Callable[[Ref], Any]) -> list[Any]:
    """All arguments of an op by position, those left out too."""
    schema = [a for a in resolve(node.target)._schema.arguments if not a.kwarg_only]  # type: ignore[attr-defined]
    given = [node.argument(i, a.name, a.default_value) for i, a in enumerate(schema)]
    return list(replace_refs(given, look_up))
