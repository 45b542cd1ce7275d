"""What can be said of a program without looking at tensors, found once and asked by everybody.

A value is *constant* (it does not depend on the data), *settled* (on the data, not on time) or *moving* (on a neuron,
or on an input that changes with time).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from spikecast.graph.execute.schedule import Schedule, make_schedule
from spikecast.graph.program import GETITEM, NEURON, Node, Program
from spikecast.graph.roles import Role, activations, role_of


class Flow:
    """Roles, constants, who moves, who carries spikes; `program.flow` is the one there is of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._moving: dict[bool, frozenset[str]] = {}
        self._schedules: dict[bool, Schedule] = {}

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Every op by the name of its value."""
        return {node.name: node for node in self.program.nodes}

    @cached_property
    def constant(self) -> frozenset[str]:
        """Values that do not depend on the data: weights, sizes, and what is made of them."""
        found = set(self.program.tensors)
        for node in self.program.nodes:
            if node.meta is None or all(name in found for name in node.inputs):
                found.add(node.name)
        return frozenset(found)

    @cached_property
    def roles(self) -> Mapping[str, Role | None]:
        """The role of every op; None where the table of roles does not know it."""
        metas = self.program.metas
        return {n.name: role_of(n, metas, self.constant) for n in self.program.nodes}

    @cached_property
    def sources(self) -> Mapping[str, tuple[str, ...]]:
        """For every op the floating-point values it reads that depend on the data; x·x reads two."""
        metas = self.program.metas
        return {
            n.name: (n.args[0].name,) if n.target == GETITEM else tuple(activations(n, metas, self.constant))
            for n in self.program.nodes
        }

    @cached_property
    def neurons(self) -> Mapping[str, Node]:
        """The neuron op of each site."""
        return {n.kwargs["site"]: n for n in self.program.nodes if n.target == NEURON}

    @cached_property
    def spikes(self) -> frozenset[str]:
        """Values that are what neurons sent, moved or averaged on the way."""
        found: set[str] = set()
        for node in self.program.nodes:
            sources = self.sources[node.name]
            moved = self.roles[node.name] is Role.SHAPE and bool(sources) and found.issuperset(sources)
            if node.target == NEURON or moved:
                found.add(node.name)
        return frozenset(found)

    def moving(self, inputs_move: bool = False) -> frozenset[str]:
        """Values that differ from step to step."""
        if inputs_move not in self._moving:
            found = {i.name for i in self.program.inputs} if inputs_move else set()
            for node in self.program.nodes:
                if node.target == NEURON or not found.isdisjoint(node.inputs):
                    found.add(node.name)
            self._moving[inputs_move] = frozenset(found)
        return self._moving[inputs_move]

    def schedule(self, inputs_move: bool = False) -> Schedule:
        """In which order a run evaluates the ops, and what it may overwrite and forget."""
        if inputs_move not in self._schedules:
            self._schedules[inputs_move] = make_schedule(self, inputs_move)
        return self._schedules[inputs_move]
