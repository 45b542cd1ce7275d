"""Who reads whose spikes: for each weighted op of a converted network, what its data inputs carry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from spikecast.errors import ModelError
from spikecast.graph.fanout import UNIFORM, all_arguments, is_convolution
from spikecast.graph.flow import Flow, Operand
from spikecast.graph.program import NEURON, Node, Program, refs
from spikecast.graph.roles import ADDED, Role

_GRADED = (Role.NONLINEAR, Role.PRODUCT, None)


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
    """

    weighted: dict[str, tuple[Operand, ...]] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)
    graded: set[str] = field(default_factory=set)
    mapped: dict[str, tuple[Node, Operand]] = field(default_factory=dict)
    paired: dict[str, tuple[Node, Operand]] = field(default_factory=dict)
    served: set[tuple[str, Operand]] = field(default_factory=set)
    followed: set[str] = field(default_factory=set)


_KNOWN: WeakKeyDictionary[Flow, Wiring] = WeakKeyDictionary()


def wiring(program: Program) -> Wiring:
    """Read off the program alone, once: a network that was loaded from a file has it too."""
    if program.flow not in _KNOWN:
        _KNOWN[program.flow] = _found(program)
    return _KNOWN[program.flow]


def _found(program: Program) -> Wiring:
    flow, found = program.flow, Wiring()
    for node in program.nodes:
        operands = flow.operands.get(node.name)
        if operands:
            found.weighted[node.name] = operands
            if len(operands) > 2:
                raise ModelError(f"{node.name} ({node.target}) multiplies three activations; write it as two products")
        elif node.name not in flow.constant and flow.roles[node.name] in _GRADED:
            found.graded.add(node.name)
    _find_moving(flow, found)
    for neuron in flow.neurons.values():
        _find_readers(program, found, neuron.name)
    return found


def _find_moving(flow: Flow, found: Wiring) -> None:
    """The ops between neurons and weighted ops."""
    wanted = [operand.name for operands in found.weighted.values() for operand in operands]
    while wanted:
        name = wanted.pop()
        if name in flow.spikes and name not in found.moving and flow.by_name[name].target != NEURON:
            found.moving.add(name)
            wanted += flow.by_name[name].inputs


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


def _knows_taps(node: Node, program: Program) -> bool:
    """Whether a convolution's taps are known before it runs: its weights are constants, its settings numbers."""
    others = [ref.name for ref in refs((node.args[1:], dict(node.kwargs)))]
    return is_convolution(node) and all(name in program.tensors for name in others)


def _geometry(node: Node, program: Program) -> Any:
    """What the taps of a convolution depend on besides its input."""
    _, weight, _, *settings = all_arguments(node, lambda r: program.tensors[r.name].shape if r != node.args[0] else 0)
    return node.target, weight[2:], settings


def summed_axis(node: Node, operand: Operand, rank: int) -> int | None:
    """The axis of a factor that its partner does not have: only how many entries along it are not zero matters."""
    if rank < 2:
        return None
    is_right = operand.position > (node.op in ADDED)
    return rank - 1 if is_right and node.op != "aten.linear" else rank - 2
