"""The wires of the event-driven simulator: which op reads which, through what table or weights, and what they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spikecast.errors import ModelError
from spikecast.graph.program import GETITEM, NEURON, Node
from spikecast.graph.roles import Role
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Feed, Link
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
            feed.target: circuit.constant(feed).double().flatten().cpu().numpy() for feed in self.dense_feeds()
        }
        self.passages: dict[str, list[Passage]] = {}
        self.wires: dict[str, Wire] = {}
        self._lay_wires()

    def dense_feeds(self) -> list[Feed]:
        """Those of which the value itself is wanted, not only what changes: outputs, and what the host reads."""
        return [*self.circuit.outputs, *(feed for op in self.circuit.host_ops for feed in op.feeds)]

    def _lay_wires(self) -> None:
        for node in self.program.nodes:
            if node.name in self.circuit.linear and isinstance(self.form(node.name), Tensor):
                self.passages[node.name] = self._passages(node)
        alias = self._aliases()
        for name in (*self.circuit.sources, *self.passages):
            form = self.form(name)
            root = name
            while root in alias:
                root = alias[root]
            if isinstance(form, Tensor) and root not in self.wires:
                self.wires[root] = new_wire(form.numel())
            if isinstance(form, Tensor):
                self.wires[name] = self.wires[root]
        self.order = [n for n in self.program.nodes if n.name in self.circuit.sources or n.name in self.passages]

    def form(self, name: str) -> Any:
        """A tensor without data that tells a value's form; a tuple of them where an op has several results."""
        return self.circuit.forms.frame(self.circuit.batch).forms[name]

    def _passages(self, node: Node) -> list[Passage]:
        """One for each use that the op makes of a value; a part of a split value reads what was split."""
        flow, passages = self.program.flow, []
        for position, name in enumerate(node.inputs):
            if name in flow.constant:
                continue
            role = flow.roles[node.name] or Role.SHAPE
            links, source = [Link(node, position, role)], name
            while node.target == GETITEM and not isinstance(self.form(source), Tensor):
                split = flow.by_name[source]
                place = next(i for i, n in enumerate(split.inputs) if n not in flow.constant)
                links.insert(0, Link(split, place, Role.SHAPE))
                source = split.inputs[place]
            weighted = role is Role.SYNAPSE
            how = synapse_of(self.circuit, node, source) if weighted else table_of(self.circuit, links, source)
            passages.append(Passage(node, source, how, source in flow.spikes))
        return passages

    def _aliases(self) -> dict[str, str]:
        """Values that can share a wire: what only changes its form, and what is only read to be added to a sum."""
        aliases: dict[str, str] = {}
        kept = {*self.program.output_names, *(feed.target for feed in self.dense_feeds())}
        for name, passages in self.passages.items():
            plain = [w for w in passages if isinstance(w.how, Table) and w.how.is_identity]
            if len(passages) == 1 and plain:
                aliases[name] = passages[0].source
                continue
            for passage in plain:
                source = passage.source
                users = [w for ws in self.passages.values() for w in ws if w.source == source]
                reads = [n for n in self.program.users[source] if n.name in self.passages or n.target == NEURON]
                if (
                    source in self.passages
                    and source not in aliases
                    and source not in kept
                    and len(users) == len(reads) == 1
                ):
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
