"""What can be said of a program without looking at tensors, found once and asked by everybody.

A value is *constant* (it does not depend on the data), *settled* (on the data, not on time) or *moving* (on a neuron,
or on an input that changes with time).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Size, Tensor

from spikecast.graph.execute.schedule import Schedule, make_schedule
from spikecast.graph.fanout import FanOut, all_arguments, fan_out
from spikecast.graph.program import GETITEM, NEURON, SIZE, SIZE_OPS, Meta, Node, Program, Ref
from spikecast.graph.roles import ADDED, BUILT_IN, ROLES, Role, activations, matmul_operands, role_of

_MOST_FAN_OUTS = 4096  # kept at a time, for loaders whose shapes never repeat


@dataclass(frozen=True)
class Operand:
    """A data input of a weighted op: the value, and its place among the op's tensors."""

    name: str
    position: int


class Flow:
    """Roles, constants, who moves, who carries spikes; `program.flow` is the one there is of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._schedules: dict[bool, Schedule] = {}
        self._fan_outs: dict[tuple[str, tuple[Size, ...]], FanOut] = {}

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Every op by the name of its value."""
        return {node.name: node for node in self.program.nodes}

    @cached_property
    def constant(self) -> frozenset[str]:
        """Values that do not depend on the data: weights, sizes, and what is made of them."""
        constant = set(self.program.tensors)
        for node in self.program.nodes:
            if node.meta is None or constant.issuperset(node.inputs):
                constant.add(node.name)
        return frozenset(constant)

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
    def operands(self) -> Mapping[str, tuple[Operand, ...]]:
        """For every weighted op its data inputs: one of a synapse, both of a product of activations."""
        weighted = (Role.SYNAPSE, Role.MATMUL)
        return {n.name: self._operands(n) for n in self.program.nodes if self.roles[n.name] in weighted}

    def _operands(self, node: Node) -> tuple[Operand, ...]:
        is_matmul = ROLES[node.op] is Role.MATMUL
        factors, first = (matmul_operands(node), int(node.op in ADDED)) if is_matmul else (node.args[:1], 0)
        active = self.sources[node.name]
        return tuple(Operand(r.name, first + i) for i, r in enumerate(factors) if r.name in active)

    @cached_property
    def neurons(self) -> Mapping[str, Node]:
        """The neuron op of each site."""
        return {n.kwargs["site"]: n for n in self.program.nodes if n.target == NEURON}

    @cached_property
    def spikes(self) -> frozenset[str]:
        """Values that are what neurons sent, moved or averaged on the way."""
        spikes: set[str] = set()
        for node in self.program.nodes:
            sources = self.sources[node.name]
            moved = self.roles[node.name] is Role.SHAPE and bool(sources) and spikes.issuperset(sources)
            if node.target == NEURON or moved:
                spikes.add(node.name)
        return frozenset(spikes)

    def origins(self, name: str) -> tuple[str, ...]:
        """The sites whose spikes a value carries."""
        if name not in self.spikes:
            return ()
        node = self.by_name[name]
        if node.target == NEURON:
            return (node.kwargs["site"],)
        return tuple(dict.fromkeys(site for source in self.sources[name] for site in self.origins(source)))

    def moving(self, inputs_move: bool = False) -> frozenset[str]:
        """Values that differ from step to step."""
        return self.schedule(inputs_move).moving

    def schedule(self, inputs_move: bool = False) -> Schedule:
        """In which order a run evaluates the ops, and what it may overwrite and forget."""
        if inputs_move not in self._schedules:
            self._schedules[inputs_move] = make_schedule(self.program, inputs_move)
        return self._schedules[inputs_move]

    # -- products

    def fan_out(self, node: Node, look_up: Callable[[Ref], Any]) -> FanOut:
        """Of a weighted op's first data input, where `look_up` answers tensors or shapes; found once for each shape."""
        operands = self.operands[node.name]
        key = node.name, tuple(_shape(look_up(Ref(operand.name))) for operand in operands)
        if key not in self._fan_outs:
            if len(self._fan_outs) >= _MOST_FAN_OUTS:
                self._fan_outs.clear()
            sizes = all_arguments(node, lambda ref: _shape(look_up(ref)))
            self._fan_outs[key] = fan_out(node, sizes, operands[0].position)
        return self._fan_outs[key]

    @cached_property
    def macs(self) -> Mapping[str, int]:
        """Multiply-accumulates of every weighted op for one sample, at the sizes of the capture."""
        counted = [self.by_name[name] for name, operands in self.operands.items() if operands]
        sizes = self.captured
        return {n.name: self.fan_out(n, lambda ref: sizes[ref.name]).products // self.samples for n in counted}

    @cached_property
    def uncounted(self) -> tuple[str, ...]:
        """Ops with products that nobody counts: convolutions by an activation, unknown ops with weights."""
        return tuple(n.name for n in self.program.nodes if n.name not in self.constant and self._is_uncounted(n))

    def _is_uncounted(self, node: Node) -> bool:
        role = self.roles[node.name]
        if node.name in self.operands:
            return not self.operands[node.name]
        if node.op in BUILT_IN:
            return ROLES[node.op] is Role.SYNAPSE and role is Role.NONLINEAR
        weights = (self.program.metas[name] for name in node.inputs if name in self.constant)
        has_weights = any(isinstance(w, Meta) and w.dtype.is_floating_point and w.rank >= 2 for w in weights)
        return has_weights and role in (None, Role.NONLINEAR)

    @cached_property
    def samples(self) -> int:
        """How many samples were captured; where the batch is pinned, its axis is taken to be the first."""
        metas = [i.meta for i in self.program.inputs if i.meta.rank]
        batch = [m.shape[m.batch_axis] for m in metas if m.batch_axis is not None] or [m.shape[0] for m in metas]
        return max(batch[0], 1) if batch else 1

    @cached_property
    def captured(self) -> Mapping[str, Any]:
        """The shape of every tensor at capture, and the value of every size."""
        found: dict[str, Any] = {n: Size(m.shape) for n, m in self.program.metas.items() if isinstance(m, Meta)}
        for node in self.program.nodes:
            if node.target == SIZE:
                found[node.name] = found[node.args[0].name][node.args[1]]
            elif node.target in SIZE_OPS:
                found[node.name] = node.call(lambda ref: found[ref.name])
        return found


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, Tensor) else value
