"""Where the neurons go: every rectifier becomes one, and every weighted op is fed by one."""

from __future__ import annotations

import dataclasses
import fnmatch
import math

from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.graph.capture.clean import drop_dead
from spikecast.graph.flow import Operand
from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Program, Ref, replace_refs
from spikecast.graph.roles import ADDED, Role, interval
from spikecast.network.plan import Plan, Site

_POOLS = {f"aten.{a}max_pool{d}d" for a in ("", "adaptive_") for d in (1, 2, 3)}


def plan(program: Program, config: Config, *, raw_inputs: bool = True) -> Plan:
    """Put the neurons in.

    `raw_inputs` says that the program's inputs are the network's own, which the first layer may take as they are.
    """
    return _Planner(program, config, raw_inputs and not config.encode_input).plan()


class _Planner:
    def __init__(self, program: Program, config: Config, analog_input: bool) -> None:
        self.program, self.config, self.analog_input = program, config, analog_input
        self.metas, self.users, self.flow = program.metas, program.users, program.flow
        self.roles, self.by_name = self.flow.roles, self.flow.by_name
        self.outputs = set(program.output_names)
        self.labels = _labels(program)
        self.sites: dict[str, Site] = {}
        self.offered: set[str] = set()
        self.neurons: dict[str, str] = {}  # rectifier or pool -> the site that takes its place
        self.identity: dict[str, str] = {}  # value -> the identity site beside it
        self.moved: dict[str, str] = {}
        self.skipped: set[str] = set()  # rectifiers that are passed by, their neuron sits behind a pool
        self.analog: set[str] = set()  # rectifiers whose neuron an override left out
        self.swaps: dict[tuple[str, str], str] = {}  # (op, value) -> site whose output it reads instead
        self.fed: dict[str, str] = {}

    def plan(self) -> Plan:
        for node in self.program.nodes:
            if node.op in _POOLS:
                self._neuron_behind_pool(node)
        for node in self.program.nodes:
            if self.roles[node.name] is Role.RECTIFIER and node.name not in self.skipped | self.analog:
                low, high = interval(node) or (-math.inf, math.inf)
                self._add_site(self.labels[node.name], node.args[0].name, node.name, low, high)
        raw = self._raw_values()
        for node in self.program.nodes:
            self._feed(node, raw)
        self._check_overrides()
        program = self._rewritten()
        return Plan(program, {name: self.sites[name] for name in program.flow.neurons}, self.fed, self.moved)

    def _neuron_behind_pool(self, pool: Node) -> None:
        """max(relu(x)) = relu(max(x)): where nobody else reads the rectifier, the neuron goes behind the pool."""
        source = self.by_name.get(pool.args[0].name)
        if not isinstance(pool.meta, Meta):  # one that answers where the maxima lie as well
            return
        if source is None or self.users[source.name] != [pool] or source.name in self.outputs:
            return
        parts = [source]
        if source.op in ("aten.cat", "aten.concat"):
            parts = [self.by_name[r.name] for r in source.args[0] if r.name in self.by_name]
            if len(parts) != len(source.args[0]):
                return
            if any(self.users[p.name] != [source] or p.name in self.outputs for p in parts):
                return
        bounds = {interval(p) if self.roles[p.name] is Role.RECTIFIER else None for p in parts}
        if len(bounds) != 1 or None in bounds:
            return
        low, high = bounds.pop() or (0.0, 0.0)
        name = self.labels[source.name] if source.op not in ("aten.cat", "aten.concat") else self.labels[pool.name]
        if self._add_site(name, pool.name, pool.name, low, high):
            self.skipped |= {p.name for p in parts}
            self.moved.update((p.name, name) for p in parts)
        else:
            self.analog |= {p.name for p in parts}

    def _raw_values(self) -> set[str]:
        """Values that are the network's own input, moved, scaled or shifted."""
        raw = {i.name for i in self.program.inputs if i.meta.dtype.is_floating_point}
        for node in self.program.nodes:
            sources = self.flow.sources[node.name]
            passes = self.roles[node.name] in (Role.SHAPE, Role.AFFINE, Role.SUM)
            if passes and sources and raw.issuperset(sources):
                raw.add(node.name)
        return raw

    def _feed(self, node: Node, raw: set[str]) -> None:
        """See that the data inputs of a weighted op are spikes."""
        if node.name not in self.flow.operands:
            return
        states = []
        for operand in self.flow.operands[node.name]:
            place = operand.position - (node.op in ADDED)
            side = ("left", "right")[place] if place < 2 else f"operand{place + 1}"
            side = "input" if self.roles[node.name] is Role.SYNAPSE else side
            states.append(self._feed_operand(node, operand.name, f"{self.labels[node.name]}.{side}", raw))
        self.fed[node.name] = next((s for s in states if s != "spikes"), "spikes")

    def _feed_operand(self, node: Node, value: str, name: str, raw: set[str]) -> str:
        if self._is_spikes(value):
            return "spikes"
        role = self.roles[node.name]
        if value in raw and role is Role.SYNAPSE and self.analog_input:
            return "analog input"
        if not self._is_float(value):
            return "spikes"  # integers are events already: a token, a class
        mixed = self._mixed_concat(value)
        if mixed is not None:
            states = [self._feed_part(mixed, ref.name, f"{name}.{i}") for i, ref in enumerate(mixed.args[0])]
            return next((s for s in states if s != "spikes"), "spikes")
        site = self._add_site(name, value, None, -math.inf, math.inf, consumer=node)
        if site is None:
            return "analog (override)"
        self.swaps[node.name, value] = site
        return "spikes"

    def _feed_part(self, concat: Node, value: str, name: str) -> str:
        if self._is_spikes(value):
            return "spikes"
        site = self._add_site(name, value, None, -math.inf, math.inf, consumer=concat)
        if site is None:
            return "analog (override)"
        self.swaps[concat.name, value] = site
        return "spikes"

    def _is_float(self, value: str) -> bool:
        meta = self.metas[value]
        return isinstance(meta, Meta) and meta.dtype.is_floating_point

    def _is_spikes(self, value: str) -> bool:
        """Whether a value is what neurons sent, moved or averaged on the way."""
        if value in self.neurons or value in self.flow.constant:
            return True
        sources = self.flow.sources.get(value, ())
        if not sources or self.roles[value] is not Role.SHAPE:
            return False
        return all((value, s) in self.swaps or self._is_spikes(s) for s in sources)

    def _mixed_concat(self, value: str) -> Node | None:
        """The concat behind a value, if some of its parts are spikes and some are not."""
        node = self.by_name.get(value)
        while node is not None and self.roles[node.name] is Role.SHAPE:
            if node.op in ("aten.cat", "aten.concat"):
                parts = [r.name for r in node.args[0] if r.name not in self.flow.constant]
                return node if any(self._is_spikes(p) for p in parts) else None
            sources = self._whole_sources(node)
            node = self.by_name.get(sources[0]) if len(sources) == 1 else None
        return None

    def _add_site(
        self, name: str, source: str, output: str | None, low: float, high: float, consumer: Node | None = None
    ) -> str | None:
        """A new site, or the one that encodes this value already; None where an override leaves it analog.

        `output` is the op whose value the neuron takes over; without one the value itself is encoded on the side.
        """
        encodes = source if output is None else output
        if output is None and source in self.identity:
            return self.identity[source]
        unique, number = name, 1
        while unique in self.offered:
            number += 1
            unique = f"{name}#{number}"
        self.offered.add(unique)  # also where it stays analog: an override must not rename the sites after it
        meta = self.metas[source]
        assert isinstance(meta, Meta)
        if self.config.at(unique) is None or 0 in meta.shape:  # nn.Linear(0, 3): there is nothing to encode
            return None
        axis = self._feature_axis(encodes, meta, consumer)
        self.sites[unique] = Site(unique, source, low, high, axis, meta)
        if output is not None:
            self.neurons[output] = unique
        else:
            self.identity[source] = unique
        return unique

    def _feature_axis(self, value: str, meta: Meta, consumer: Node | None) -> int | None:
        """The axis of a value's channels: as its weighted consumer reads them, else as the op before wrote them."""
        readers = [consumer] if consumer is not None else self.users.get(value, [])
        axis = next((a for r in readers if (a := self._axis_read_by(r, value, meta)) is not None), None)
        if axis is None:
            axis = self._axis_written(value, meta)
        return None if axis == -1 or axis == meta.batch_axis or meta.rank < 2 else axis

    def _axis_read_by(self, reader: Node, value: str, meta: Meta) -> int | None:
        role = self.roles[reader.name]
        if role is Role.MATMUL:
            return meta.rank - 3 if meta.rank >= 4 else -1
        if role is not Role.SYNAPSE:
            return None
        if "conv" in reader.op:
            weight = self.metas[reader.args[1].name]
            return max(meta.rank - (len(weight.shape) - 1), 0) if isinstance(weight, Meta) else 1
        is_left = Operand(value, int(reader.op in ADDED)) in self.flow.operands[reader.name]
        return meta.rank - 1 if is_left else meta.rank - 2

    def _axis_written(self, value: str, meta: Meta) -> int:
        node = self.by_name.get(value)
        for _ in range(64):
            if node is None:
                break
            if self.roles[node.name] is Role.SYNAPSE:
                return 1 if "conv" in node.op else meta.rank - 1
            sources = self._whole_sources(node)
            node = self.by_name.get(sources[0]) if sources else None
        return 1 if meta.rank > 2 else meta.rank - 1

    def _whole_sources(self, node: Node) -> tuple[str, ...]:
        """What an op reads, as far as that is whole tensors: one of several results is not looked behind."""
        return () if node.target == GETITEM else self.flow.sources[node.name]

    def _check_overrides(self) -> None:
        for pattern in self.config.overrides:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in self.offered):
                some = ", ".join(list(self.sites)[:4])
                raise ConfigError(f"overrides: no site is called {pattern!r}; sites are {some}, … (see report)")

    def _rewritten(self) -> Program:
        """The program with neuron ops, each right behind the value it reads."""
        taken = {*self.metas}
        nodes: list[Node] = []
        swapped: dict[str, str] = {}  # old value -> neuron value, for sites that take an op's place

        def neuron_after(source: str, site: str) -> None:
            name = f"{source}.spikes" if f"{source}.spikes" not in taken else f"{source}.spikes.2"
            taken.add(name)
            made[site] = name
            meta = self.sites[site].meta
            nodes.append(Node(name, NEURON, (Ref(swapped.get(source, source)),), {"site": site}, "", meta))

        made: dict[str, str] = {}
        for spec in self.program.inputs:
            if spec.name in self.identity:
                neuron_after(spec.name, self.identity[spec.name])
        for node in self.program.nodes:
            current = self._with_swaps(node, swapped, made)
            site = self.neurons.get(node.name)
            if node.name in self.skipped:
                swapped[node.name] = current.args[0].name
                continue
            if site is not None and self.roles[node.name] is Role.RECTIFIER:
                nodes.append(Node(node.name, NEURON, current.args[:1], {"site": site}, node.scope, node.meta))
            elif site is not None:  # a pool: the neuron takes the pool's name for its readers
                pooled = dataclasses.replace(current, name=f"{node.name}.pooled")
                nodes += [pooled, Node(node.name, NEURON, (Ref(pooled.name),), {"site": site}, node.scope, node.meta)]
            else:
                nodes.append(current)
            if node.name in self.identity:
                neuron_after(node.name, self.identity[node.name])
        return drop_dead(self.program.with_nodes(nodes))

    def _with_swaps(self, node: Node, swapped: dict[str, str], made: dict[str, str]) -> Node:
        def swap(ref: Ref) -> Ref:
            site = self.swaps.get((node.name, ref.name))
            return Ref(made[site]) if site is not None else Ref(swapped.get(ref.name, ref.name))

        return dataclasses.replace(
            node, args=replace_refs(node.args, swap), kwargs=replace_refs(dict(node.kwargs), swap)
        )


def _labels(program: Program) -> dict[str, str]:
    """A readable name for each op: its module's path, with the op's own name where the module has several ops."""
    kinds: dict[str, set[str]] = {}
    for node in program.nodes:
        kinds.setdefault(node.scope, set()).add(node.op)
    found: dict[str, str] = {}
    for node in program.nodes:
        op = node.op.removeprefix("aten.")
        alone = node.scope and len(kinds[node.scope]) == 1
        found[node.name] = node.scope if alone else f"{node.scope}.{op}".lstrip(".")
    return found
