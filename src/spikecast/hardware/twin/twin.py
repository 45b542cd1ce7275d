"""The spike view of a converted network: what a chip would see on every wire, one step at a time.

A wire carries signals x[t] and nothing else. Synapses have no bias; a bias is a source (Thm 4.5): under differential
coding the value r[0] at which a wire rests, which a neuron holds as m_r[1] and a graded unit as its first input; under
rate coding a signal at every step. Written to be read and to check the value view (`network.py`) with, not for speed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spikecast.errors import ConfigError
from spikecast.graph.program import Node, Program, Ref
from spikecast.graph.structure import unflatten
from spikecast.hardware.twin.units import Unit, call, factors, is_wire, recast, split_affine, units
from spikecast.network.answers import stacked
from spikecast.network.plan import Plan
from spikecast.theory.coding import receive
from spikecast.theory.firing import level_index, level_value
from spikecast.theory.graded import graded_signal, product_signal
from spikecast.theory.neuron import Neuron, SpikeState, rest_state, spike_step

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork


@dataclass(frozen=True)
class Trace:
    """All that happened in a run: by wire its rest value r[0] and its signals [T, ...], by site the levels it fired.

    A wire is called like the op that sends on it (an input by its own name).
    """

    answer: Any
    rest: Mapping[str, Tensor]
    signals: Mapping[str, Tensor]
    levels: Mapping[str, Tensor]
    coding: Any

    def estimates(self, wire: str) -> Tensor:
        """What a wire stood for after each step, [T, ...]: the receivers' sum of what was sent."""
        value, found = self.rest[wire], []
        for t, signal in enumerate(self.signals[wire], start=1):
            value = receive(value, signal, t, self.coding)
            found.append(value)
        return torch.stack(found)


class Twin:
    """The network as hardware would run it; it answers like the network, step by step.

    With `dtype` everything is computed in that type, thresholds and weights as the network has them.
    """

    def __init__(self, network: SpikingNetwork, dtype: torch.dtype | None = None) -> None:
        if dtype not in (None, torch.float32, torch.float64):
            raise ConfigError(f"dtype={dtype} is no type a twin computes in; give torch.float32 or torch.float64")
        self.network, self.dtype = network, dtype

    @torch.no_grad()
    def run(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Any:
        """The answer after each step, in the form of `SpikingNetwork.run`."""
        run, plan, total = self._start(args, kwargs, num_steps)
        return _answer(plan, [run.advance(t) for t in range(1, total + 1)])

    @torch.no_grad()
    def trace(
        self, *args: Any, num_steps: int | None = None, follow: Mapping[str, Tensor] | None = None, **kwargs: Any
    ) -> Trace:
        """The same, with every signal on the way.

        `follow` names levels by site, [T, ...]: the neurons send these, whatever they would have fired themselves,
        which is what `levels` says then. So spikes that differ on their own account are told from all that follows.
        """
        run, plan, total = self._start(args, kwargs, num_steps)
        run.follow = follow or {}
        answers, steps, levels = [], [], []
        for t in range(1, total + 1):
            answers.append(run.advance(t))
            steps.append({n: x for n, x in run.sent.items() if isinstance(x, Tensor) and n in run.wires})
            levels.append({site: level_index(x / run.threshold(site)) for site, x in run.fired.items()})
        signals = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        fired = {site: torch.stack([step[site] for step in levels]) for site in levels[0]}
        rest = {name: run.rest[name] for name in signals}
        return Trace(_answer(plan, answers), rest, signals, fired, self.network.config.coding)

    def _start(self, args: Sequence[Any], kwargs: Mapping[str, Any], num_steps: int | None) -> tuple[Run, Plan, int]:
        plan, tensors = self.network.prepare_call(args, kwargs)
        total = self.network.config.steps_or(num_steps)
        return Run(self.network, plan.program, tensors, self.dtype), plan, total


def twin(network: SpikingNetwork, dtype: torch.dtype | None = None) -> Twin:
    """The spike view of a network."""
    return Twin(network, dtype)


def _answer(plan: Plan, answers: list[list[Any]]) -> Any:
    leaves = [
        stacked(list(leaf)) if isinstance(out, Ref) else out
        for out, leaf in zip(plan.program.outputs, zip(*answers, strict=True), strict=True)
    ]
    return unflatten(plan.program.output_structure, leaves)


class Run:
    """One input on its way through the spike view.

    known   what is fixed before step 1: weights, sizes, integers
    rest    r[0] of each wire: what the graph gives for input 0 with all neurons silent; 0 under rate coding
    sent    x[t] of each wire at the present step (and indices or masks, which are not signals, as they are)
    held    r[t] of the wires whose receivers have to know it, `before` the same of step t-1
    """

    def __init__(
        self, network: SpikingNetwork, program: Program, inputs: Sequence[Tensor], dtype: torch.dtype | None
    ) -> None:
        self.network, self.program, self.coding = network, program, network.config.coding
        self.dtype, device = dtype, inputs[0].device
        self.nodes = [
            dataclasses.replace(n, args=recast(n.args, dtype, device), kwargs=recast(dict(n.kwargs), dtype, device))
            for n in program.nodes
        ]
        self.units = units(program)
        self.inputs = {s.name: recast(x, dtype, device) for s, x in zip(program.inputs, inputs, strict=True)}
        weights = network.tensors_of(program)
        self.known: dict[str, Any] = {name: recast(x, dtype, device) for name, x in weights.items()}
        self.known.update((n, x) for n, x in self.inputs.items() if not is_wire(program.metas[n]))
        moving = {name for name in self.inputs if name not in self.known}
        moving |= {n.name for n in self.nodes if self.units[n.name] is not Unit.FIXED}
        self.wires = {name for name in moving if is_wire(program.metas[name])}
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
        found = self.network.threshold(site)
        return found if self.dtype is None else found.to(self.dtype)

    def _rest(self) -> dict[str, Any]:
        """Evaluate the graph at rest; what is fixed is left in `known` on the way."""
        rest: dict[str, Any] = {n: torch.zeros_like(x) for n, x in self.inputs.items() if n not in self.known}
        for node in self.nodes:
            unit = self.units[node.name]
            values = [rest[n] if n in rest else self.known[n] for n in node.inputs]
            value = torch.zeros_like(values[0]) if unit is Unit.NEURON else call(node, values)
            if unit is Unit.FIXED:
                self.known[node.name] = value
            elif not any(n in rest for n in node.inputs):  # a token's embedding is an input, sent at step 1
                rest[node.name] = _each(torch.zeros_like, value)
            else:  # an infinite constant, such as that of a mask, stays one only on its way through synapses
                rest[node.name] = _each(_finite if unit is Unit.GRADED else _number, value)
        if self.coding == "rate":
            return {name: _each(torch.zeros_like, value) for name, value in rest.items()}
        return rest

    def advance(self, t: int) -> list[Any]:
        """One step: every input sends, then every op in order; the answer is what the outputs stand for."""
        for name in self.wires & self.inputs.keys():
            image = self.inputs[name]
            self._send(name, image if t == 1 or self.coding == "rate" else torch.zeros_like(image), t)
        for node in self.nodes:
            unit = self.units[node.name]
            if unit is not Unit.FIXED:
                self._send(node.name, _STEP[unit](self, node, t), t)
        return [self._value(out.name) if isinstance(out, Ref) else out for out in self.program.outputs]

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
        signal, self.states[site] = spike_step(self._signal(source), before, t, threshold, neuron)
        self.fired[site] = signal
        if site in self.follow:
            signal = level_value(self.follow[site][t - 1], signal.dtype) * threshold
            self.states[site] = corrected(before, self.states[site], self.fired[site], signal, t, neuron)
        return signal

    def _linear(self, node: Node, t: int) -> Any:
        places = [i for i, name in enumerate(node.inputs) if name in self.wires]
        values = [self.sent[name] if name in self.wires else self.known[name] for name in node.inputs]
        linear, constant = split_affine(node, values, places)
        if self.coding == "differential":
            return linear
        if isinstance(linear, list):
            return [x + c for x, c in zip(linear, constant, strict=True)]
        return linear + constant

    def _graded(self, node: Node, t: int) -> Any:
        before, now = self.last[node.name], call(node, [self._value(name) for name in node.inputs])
        self.last[node.name] = now
        if isinstance(now, list | tuple):
            return [self._moved(a, b, t) for a, b in zip(before, now, strict=True)]
        return self._moved(before, now, t)

    def _moved(self, before: Any, now: Any, t: int) -> Any:
        """The signal between two values; what stays infinite (a mask) has no difference, and stays."""
        if not isinstance(now, Tensor) or not (now.is_floating_point() or now.is_complex()):
            return now
        still = torch.zeros_like(now) if self.coding == "differential" else now
        return torch.where(now == before, still, graded_signal(now, before, t, self.coding))

    def _product(self, node: Node, t: int) -> Tensor:
        names, (a, b) = node.inputs, factors(node)
        signals = [self._signal(name) for name in names]
        before = [self.before[name] if name in self.wires else self.known[name] for name in names]

        def multiply(x: Tensor, y: Tensor) -> Tensor:
            return _as_tensor(call(node, [x if i == a else y if i == b else _zero(s) for i, s in enumerate(signals)]))

        kept = self.products.get(node.name)
        if kept is None:  # r_out[0] is known to both ends, and rate coding forgets it at t = 1
            kept = torch.zeros_like(multiply(before[a], before[b]))
        x = product_signal(multiply, signals[a], signals[b], before[a], before[b], kept, t, self.coding)
        self.products[node.name] = receive(kept, x, t, self.coding)
        if len(names) > 2:  # what is added to the product
            x = x + call(node, [_zero(s) if i in (a, b) else s for i, s in enumerate(signals)])
        return x

    def _part(self, node: Node, t: int) -> Any:
        return call(node, [self.sent[node.args[0].name]])


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


def _as_tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value
