"""The wires of the event-driven simulator: which op reads which, through what table or weights, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spikecast.errors import ModelError
from spikecast.graph.program import GETITEM, NEURON, Node
from spikecast.graph.roles import Role
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Link
from spikecast.hardware.events.neurons import Wire, new_wire
from spikecast.hardware.events.tables import Convolution, Linear, Table, synapse_of, table_of


@dataclass(frozen=True)
class Passage:
    """One op as events pass it: from a wire, through a table or weights, onto a wire."""

    node: Node
    source: str
    how: Table | Convolution | Linear
    is_spikes: bool  # what it reads are spikes, perhaps moved or averaged


class Wires:
    """The linear part of a circuit, laid out for events."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit, self.program = circuit, circuit.program
        self.rest: dict[str, NDArray[np.float64]] = {  # what is there when every source is silent
            feed.target: circuit.constant(feed).double().flatten().cpu().numpy() for feed in circuit.read_outs
        }
        self.passages: dict[str, list[Passage]] = {}
        self.wires: dict[str, tuple[Wire, ...]] = {}  # one for each pulse of a burst
        self._lay_wires()

    def _lay_wires(self) -> None:
        for node in self.program.nodes:
            if node.name in self.circuit.linear and isinstance(self.circuit.form(node.name), Tensor):
                self.passages[node.name] = self._passages(node)
        alias = self._aliases()
        for name in (*self.circuit.sources, *self.passages):
            form, root = self.circuit.form(name), name
            if not isinstance(form, Tensor):
                continue
            while root in alias:
                root = alias[root]
            if root not in self.wires:
                self.wires[root] = tuple(new_wire(form.numel()) for _ in range(self._pulses(root)))
            self.wires[name] = self.wires[root]
        self.order = [n for n in self.program.nodes if n.name in self.circuit.sources or n.name in self.passages]

    def _pulses(self, name: str) -> int:
        """How many pulses in a step a value may carry; behind weights and sums they are one signal."""
        neurons = self.circuit.network.neurons
        return max((neurons[site].burst for site in self.program.flow.origins(name)), default=1)

    def _passages(self, node: Node) -> list[Passage]:
        """One for each use that the op makes of a value; a part of a split value reads what was split."""
        flow, passages = self.program.flow, []
        role = flow.roles[node.name] or Role.SHAPE
        for position, source in enumerate(node.inputs):
            if source in flow.constant:
                continue
            links = [Link(node, position, role)]
            while node.target == GETITEM and not isinstance(self.circuit.form(source), Tensor):
                split = flow.by_name[source]
                place = next(i for i, n in enumerate(split.inputs) if n not in flow.constant)
                links.insert(0, Link(split, place, Role.SHAPE))
                source = split.inputs[place]
            is_weighted = role is Role.SYNAPSE
            how = synapse_of(self.circuit, node, source) if is_weighted else table_of(self.circuit, links, source)
            passages.append(Passage(node, source, how, source in flow.spikes))
        return passages

    def _aliases(self) -> dict[str, str]:
        """Values that can share a wire: what only changes its form, and what is only read to be added to a sum."""
        aliases: dict[str, str] = {}
        kept = {feed.target for feed in self.circuit.read_outs}
        for name, passages in self.passages.items():
            plain = [w for w in passages if isinstance(w.how, Table) and w.how.is_identity]
            if len(passages) == 1 and plain and self._pulses(name) == self._pulses(plain[0].source):
                aliases[name] = passages[0].source
                continue
            for passage in plain:
                source = passage.source
                users = [w for ws in self.passages.values() for w in ws if w.source == source]
                reads = [n for n in self.program.users[source] if n.name in self.passages or n.target == NEURON]
                is_free = source in self.passages and source not in aliases and source not in kept
                if is_free and len(users) == len(reads) == 1:
                    aliases[source] = name
        return aliases


def refuse_host_ops(circuit: Circuit) -> None:
    """See that nothing between neurons is left to the host."""
    moving = [op for op in circuit.host_ops if op.moves]
    if moving:
        named = ", ".join(f"{op.scope or op.name} ({op.op})" for op in moving[:4])
        more = f" and {len(moving) - 4} more" if len(moving) > 4 else ""
        raise ModelError(
            f"ops that are not linear in spikes: {named}{more}; the event simulator runs networks of convolutions, "
            "linear layers, averages and sums between neurons; hosted=True lets the host compute the rest"
        )
