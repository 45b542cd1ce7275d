"""One run of the spike view: what every unit does with what arrives, step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.graph.program import Node, Program, Ref
from spikecast.graph.structure import unflatten
from spikecast.hardware.affine import in_order, is_wire, split_affine
from spikecast.hardware.twin.units import Unit, factors, units
from spikecast.network.spiking import SpikingNetwork
from spikecast.theory.coding import receive
from spikecast.theory.firing import level_value
from spikecast.theory.graded import graded_signal, product_signal
from spikecast.theory.neuron import Neuron, SpikeState, rest_state, spike_step


class Run:
    """One input on its way through the spike view.

    known   what is fixed before step 1: weights, sizes, integers
    rest    r[0] of each wire: what the graph gives for input 0 with all neurons silent; 0 under rate coding
    sent    x[t] of each wire at the present step (and indices or masks, which are not signals, as they are)
    held    r[t] of the wires whose receivers have to know it, `before` the same of step t-1
    fired   by site the pulses [burst, ...] of the present step, in units of θ
    """

    def __init__(
        self, network: SpikingNetwork, program: Program, inputs: Sequence[Tensor], dtype: torch.dtype | None
    ) -> None:
        self.network, self.program, self.coding = network, program, network.config.coding
        self.dtype, self.device = dtype, inputs[0].device
        self.nodes = [
            dataclasses.replace(n, args=recast(n.args, dtype), kwargs=recast(dict(n.kwargs), dtype))
            for n in program.nodes
        ]
        self.units = units(program)
        self.inputs = {s.name: recast(x, dtype) for s, x in zip(program.inputs, inputs, strict=True)}
        self.known: dict[str, Any] = recast(dict(network.tensors_of(program)), dtype)
        self.known.update((n, x) for n, x in self.inputs.items() if not is_wire(program.metas[n]))
        fixed = {*self.known, *(name for name, unit in self.units.items() if unit is Unit.FIXED)}
        self.wires = {name for name, meta in program.metas.items() if is_wire(meta) and name not in fixed}
        self.rest = self._rest()
        self.listened = {name for n in self.nodes if self.units[n.name] in _NEED_VALUES for name in n.inputs}
        self.listened = (self.listened | set(program.output_names)) & self.wires
        self.sent: dict[str, Any] = {}
        self.held, self.before = {name: self.rest[name] for name in self.listened}, dict[str, Tensor]()
        self.last = {n.name: self.rest[n.name] for n in self.nodes if self.units[n.name] is Unit.GRADED}
        self.products: dict[str, Tensor] = {}
        self.states: dict[str, SpikeState] = {}
        self.fired: dict[str, Tensor] = {}
        self.follow: Mapping[str, Tensor] = {}

    def threshold(self, site: str) -> Tensor:
        threshold: Tensor = recast(self.network.threshold(site), self.dtype)
        return threshold

    def _rest(self) -> dict[str, Any]:
        """Evaluate the graph at rest; what is fixed is left in `known` on the way."""
        rest: dict[str, Any] = {n: torch.zeros_like(x) for n, x in self.inputs.items() if n not in self.known}
        for node in self.nodes:
            unit = self.units[node.name]
            values = [rest[n] if n in rest else self.known[n] for n in node.inputs]
            value = torch.zeros_like(values[0]) if unit is Unit.NEURON else self._call(node, values)
            if unit is Unit.FIXED:
                self.known[node.name] = value
            elif not any(n in rest for n in node.inputs):  # a token's embedding is an input, sent at step 1
                rest[node.name] = _each(torch.zeros_like, value)
            else:  # an infinite constant, such as that of a mask, stays one only on its way through synapses
                rest[node.name] = _each(_finite if unit is Unit.GRADED else _number, value)
        if self.coding == "rate":
            return {name: _each(torch.zeros_like, value) for name, value in rest.items()}
        return rest

    def _call(self, node: Node, values: Iterable[Any]) -> Any:
        return node.call(in_order(values), self.device)

    def advance(self, t: int) -> Any:
        """One step: every input sends, then every op in order; the answer is what the outputs stand for."""
        for name in self.wires & self.inputs.keys():
            image = self.inputs[name]
            self._send(name, image if t == 1 or self.coding == "rate" else torch.zeros_like(image), t)
        for node in self.nodes:
            unit = self.units[node.name]
            if unit is not Unit.FIXED:
                self._send(node.name, _STEP[unit](self, node, t), t)
        outputs = [self._value(out.name) if isinstance(out, Ref) else out for out in self.program.outputs]
        return unflatten(self.program.output_structure, outputs)

    def _send(self, name: str, signal: Any, t: int) -> None:
        self.sent[name] = signal
        if name in self.listened:
            self.before[name] = self.held[name]
            self.held[name] = receive(self.held[name], signal, t, self.coding)

    def _value(self, name: str) -> Any:
        """What a receiver knows: r[t] of a wire, and all else as it is."""
        if name in self.known:
            return self.known[name]
        return self.held[name] if name in self.wires else self.sent[name]

    def _signal(self, name: str) -> Any:
        """x[t] of a wire; a constant is sent at every step under rate coding and rests under differential coding."""
        if name not in self.known:
            return self.sent[name]
        value = self.known[name]
        return torch.zeros_like(value) if self.coding == "differential" and isinstance(value, Tensor) else value

    def _neuron(self, node: Node, t: int) -> Tensor:
        site, source = node.kwargs["site"], node.args[0].name
        neuron, threshold = self.network.neurons[site], self.threshold(site)
        if t == 1:
            rest = self.rest[source] if source in self.rest else self.known[source]
            self.states[site] = rest_state(rest, neuron, threshold)
        before = self.states[site]
        pulses, self.states[site] = spike_step(self._signal(source), before, t, threshold, neuron)
        self.fired[site] = pulses
        signal = pulses.sum(0) * threshold
        if site in self.follow:
            fired, signal = signal, self._told(site, t, pulses).sum(0) * threshold
            self.states[site] = corrected(before, self.states[site], fired, signal, t, neuron)
        return signal

    def _told(self, site: str, t: int, pulses: Tensor) -> Tensor:
        """The pulses that a site is to send, whatever it fires."""
        levels = self.follow[site]
        if len(levels) < t or levels[t - 1].shape != pulses.shape:
            due = f"[T, {', '.join(map(str, pulses.shape))}]"
            raise DataError(f"follow[{site!r}] is {list(levels.shape)}, where levels {due} are due, a step for each t")
        return level_value(levels[t - 1], pulses.dtype)

    def _linear(self, node: Node, t: int) -> Any:
        def synapses(*signals: Tensor) -> Any:
            given = iter(signals)
            return self._call(node, [next(given) if n in self.wires else self.known[n] for n in node.inputs])

        linear, constant = split_affine(synapses, *(self.sent[n] for n in node.inputs if n in self.wires))
        if self.coding == "differential":
            return linear
        if isinstance(linear, list):
            return [x + c for x, c in zip(linear, constant, strict=True)]
        return linear + constant

    def _graded(self, node: Node, t: int) -> Any:
        before, now = self.last[node.name], self._call(node, map(self._value, node.inputs))
        self.last[node.name] = now
        if isinstance(now, list | tuple):
            return [self._moved(a, b, t) for a, b in zip(before, now, strict=True)]
        return self._moved(before, now, t)

    def _moved(self, before: Any, now: Any, t: int) -> Any:
        """The signal between two values; what stays infinite (a mask) has no difference, and stays."""
        if not isinstance(now, Tensor) or not (now.is_floating_point() or now.is_complex()):
            return now
        unmoved = torch.zeros_like(now) if self.coding == "differential" else now
        return torch.where(now == before, unmoved, graded_signal(now, before, t, self.coding))

    def _product(self, node: Node, t: int) -> Tensor:
        names, (a, b) = node.inputs, factors(node)
        signals = [self._signal(name) for name in names]
        before = [self.before[name] if name in self.wires else self.known[name] for name in names]

        def multiply(x: Tensor, y: Tensor) -> Tensor:
            terms = [x if i == a else y if i == b else _zero(s) for i, s in enumerate(signals)]
            product: Tensor = self._call(node, terms)
            return product

        kept = self.products.get(node.name, signals[a].new_zeros(()))  # rate coding forgets r_out[0] at t = 1
        x = product_signal(multiply, signals[a], signals[b], before[a], before[b], kept, t, self.coding)
        self.products[node.name] = receive(kept, x, t, self.coding)
        if len(names) > 2:  # what is added to the product
            x = x + self._call(node, [_zero(s) if i in (a, b) else s for i, s in enumerate(signals)])
        return x

    def _part(self, node: Node, t: int) -> Any:
        return self._call(node, [self.sent[node.args[0].name]])


def recast(value: Any, dtype: torch.dtype | None) -> Any:
    """Tensors, and arguments that name a floating-point type, in the type that a twin computes in, if it has one."""
    if dtype is None:
        return value
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return dtype
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(dtype)
    if isinstance(value, list | tuple):
        return type(value)(recast(item, dtype) for item in value)
    if isinstance(value, dict):
        return {key: recast(item, dtype) for key, item in value.items()}
    return value


def corrected(before: SpikeState, after: SpikeState, fired: Tensor, sent: Tensor, t: int, neuron: Neuron) -> SpikeState:
    """The state after step t of a neuron that sent something else than it fired."""
    missed = fired - sent
    estimate = receive(before.estimate, sent, t, neuron.coding)
    return SpikeState(
        membrane=after.membrane + missed,
        residual=after.residual + missed / t if neuron.coding == "differential" else after.residual,
        estimate=estimate.clamp(neuron.lower, neuron.upper) if neuron.is_rectifier else estimate,
    )


_STEP: dict[Unit, Callable[[Run, Node, int], Any]] = {
    Unit.NEURON: Run._neuron,
    Unit.LINEAR: Run._linear,
    Unit.GRADED: Run._graded,
    Unit.PRODUCT: Run._product,
    Unit.PART: Run._part,
}
_NEED_VALUES = (Unit.GRADED, Unit.PRODUCT)


def _each(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A function of the numbers in a result; indices and sizes stay."""
    if isinstance(value, list | tuple):
        return [_each(function, item) for item in value]
    is_number = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
    return function(value) if is_number else value


def _finite(value: Tensor) -> Tensor:
    return torch.where(value.isfinite(), value, torch.zeros_like(value))


def _number(value: Tensor) -> Tensor:
    return torch.where(value.isnan(), torch.zeros_like(value), value)


def _zero(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, Tensor) else value
