"""The converted graph as it is drawn: one row per op, values as lanes between rows, so that no line crosses an op."""

from __future__ import annotations

from collections.abc import Iterable

from spikecast.graph.program import NEURON, Node
from spikecast.graph.roles import Role
from spikecast.network.plan import Plan
from spikecast.network.spiking import SpikingNetwork
from spikecast.page.data import GraphNode
from spikecast.text import op_word

MOST_ROWS = 3000

_KINDS = {
    Role.SHAPE: ("shape", "moves or averages"),
    Role.AFFINE: ("affine", "scale or shift"),
    Role.SUM: ("affine", "sum"),
    Role.PRODUCT: ("graded", "elementwise product"),
    Role.NONLINEAR: ("graded", "nonlinear unit"),
    Role.RECTIFIER: ("analog", "analog rectifier"),
}


def kind_of(node: Node, role: Role | None, network: SpikingNetwork) -> tuple[str, str]:
    """The colour of an op, and its role in a few words."""
    if node.target == NEURON:
        site = network.sites[node.kwargs["site"]]
        return "spiking", "rectifying neurons" if site.is_rectifier else "identity neurons"
    if role in (Role.SYNAPSE, Role.MATMUL):
        what = "synapse" if role is Role.SYNAPSE else "activation product"
        return ("synapse", what) if network.plan.fed.get(node.name) == "spikes" else ("analog", f"analog {what}")
    return ("graded", "unknown op") if role is None else _KINDS.get(role, ("shape", ""))


def drawing(network: SpikingNetwork) -> list[GraphNode]:
    """Rows in the order they run. Ops that only move one value are left out; their readers read what they moved."""
    program = network.plan.program
    drawn, source = _contracted(network.plan)
    names = [i.name for i in program.inputs] + [node.name for node, _ in drawn]
    place = {name: i for i, name in enumerate(names)}
    if len(names) >= MOST_ROWS:
        return []

    def places(values: Iterable[str]) -> list[int]:
        moved = (source.get(name, name) for name in values)
        return list(dict.fromkeys(place[name] for name in moved if name in place))

    words = [(i.name, "input", "", "analog", "the network's input") for i in program.inputs]
    for node, role in drawn:
        is_neuron = node.target == NEURON
        name, op = (node.kwargs["site"], "neurons") if is_neuron else (node.name, op_word(node.target))
        words.append((name, op, node.scope, *kind_of(node, role, network)))
    words.append(("output", "output", "", "shape", "the answer"))
    inputs: list[list[int]] = [[] for _ in program.inputs]
    inputs += [places(node.inputs) for node, _ in drawn]
    inputs.append(places(program.output_names))
    facts = zip(words, *_lanes(inputs), inputs, strict=True)
    return [GraphNode(*said, lane, reads, last) for said, lane, last, reads in facts]


def _contracted(plan: Plan) -> tuple[list[tuple[Node, Role | None]], dict[str, str]]:
    """The ops that are drawn with their roles, and for each op that only moves a value, what it moved."""
    flow = plan.program.flow
    drawn: list[tuple[Node, Role | None]] = []
    source: dict[str, str] = {}
    for node in plan.program.nodes:
        if node.name in flow.constant:
            continue
        role = flow.roles[node.name]
        origins = list(dict.fromkeys(source.get(name, name) for name in flow.sources[node.name]))
        if role is Role.SHAPE and len(origins) == 1 and ("mean" not in node.op and "pool" not in node.op):
            source[node.name] = origins[0]
        elif role is not Role.CONTROL:
            drawn.append((node, role))
    return drawn, source


def _lanes(inputs: list[list[int]]) -> tuple[list[int], list[int]]:
    """For each row its lane, and the last row that reads its value; a lane is free again after that row."""
    until = list(range(len(inputs)))
    for row, sources in enumerate(inputs):
        for i in sources:
            until[i] = row
    lanes: list[int] = []
    taken: dict[int, int] = {}  # lane -> row whose value runs in it
    for row, sources in enumerate(inputs):
        ending = sorted(lanes[i] for i in sources if until[i] == row)
        for lane in ending:
            taken.pop(lane, None)
        lane = ending[0] if ending else next(k for k in range(len(inputs) + 1) if k not in taken)
        lanes.append(lane)
        if until[row] > row:
            taken[lane] = row
    return lanes, until
