"""A converted network in whole numbers: every threshold is 1, weights have a few bits, synapses add and shift.

Neurons and the synapses between them are integers. The host computes in floating point what is left: graded units, what
lies before the first neurons (sent once, as currents), and paths that have no fixed-point weights; `report` names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError
from spikecast.graph.calls import batch_size
from spikecast.graph.program import NEURON, Meta, Node, Program, replace_refs
from spikecast.graph.structure import unflatten
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Feed, Path
from spikecast.hardware.integer.fixed_point import FoldError, Synapse, synapse
from spikecast.hardware.integer.neuron import Division, IntegerNeurons, Overflow, Widths, gain
from spikecast.network.answers import with_time
from spikecast.network.plan import SILENT
from spikecast.network.spiking import SpikingNetwork


@dataclass(frozen=True)
class Receiver:
    """What arrives at a value: whole-number synapses, and what the host has to send."""

    feed: Feed
    threshold: Tensor
    synapses: tuple[Synapse, ...]
    host: tuple[tuple[Path, str], ...]  # paths from neurons that have no whole weights, and why
    fraction: Tensor  # bits below 1 of what adds up there

    def currents(self, spikes: dict[str, Tensor], batch: int) -> Tensor:
        """The sum of what the spikes of this step add, in units of 2**-fraction: shifted weights added up."""
        total = torch.zeros((), dtype=torch.int64)
        for s in self.synapses:
            shift = (self.fraction - s.exponent - (s.num_levels - 1)).clamp(0, 62)
            total = total + (s.currents(spikes[s.path.source.value], batch) << shift)
        return total


@dataclass(frozen=True)
class Report:
    """Bits each register needed, overflows (if they were let pass), and paths left to the host with the reason."""

    used: dict[str, int]
    overflows: dict[str, int]
    host: dict[str, str]


class IntegerNetwork:
    """The network as a chip with integer synapses and membranes would run it.

    `run(x)` answers after each step; `report` has the bits that each register needed, and what is left to the host.

    Args:
        network: The network, converted whole.
        weight_bits: Of every weight, sign included; each output channel of a synapse has a power of two of its own.
        membrane_bits: Of membranes, estimates and read-outs, sign included.
        division: "divide" by t as the paper has it, or "shift": powers of two instead.
        overflow: "raise" where a register is too narrow, or "saturate" and count it in `report`.

    Example:
        >>> hardware.IntegerNetwork(snn, weight_bits=8).run(x).shape
        torch.Size([4, 2, 10])
    """

    def __init__(
        self,
        network: SpikingNetwork,
        *,
        weight_bits: int = 8,
        membrane_bits: int = 24,
        division: Division = "divide",
        overflow: Overflow = "raise",
    ) -> None:
        _check(network, weight_bits, membrane_bits, division, overflow)
        self.network, self.division, self.bits = network, division, weight_bits
        self.coding = network.config.coding
        self.widths = Widths(membrane_bits, overflow)
        self.circuit = Circuit(network)
        self.circuit.refuse_leak("neurons in whole numbers keep all of their potential")
        self._refuse_silent()
        self.receivers: dict[str, Receiver] = {}
        for layer in self.circuit.layers:
            self.receivers[layer.value] = self._receiver(layer.feed, network.threshold(layer.name), layer.name)
        for feed in self.circuit.read_outs:
            if feed.target in self.circuit.linear and feed.target not in self.receivers:
                self.receivers[feed.target] = self._receiver(feed, torch.ones(()), None)

    def _refuse_silent(self) -> None:
        """A threshold that nothing reaches would take all the range that weights of whole numbers have."""
        for layer in self.circuit.layers:
            if bool((self.network.threshold(layer.name) >= SILENT).any()):
                raise ConfigError(
                    f"site {layer.name!r} has neurons that stay silent, as the authors' code makes them: weights in "
                    "whole numbers have no range for that; convert with thresholds that are not *_published"
                )

    def _receiver(self, feed: Feed, threshold: Tensor, site: str | None) -> Receiver:
        synapses, host = [], []
        # a current from the host is rounded to what lies below the smallest level by as much as a weight has bits
        least = self.network.neurons[site].num_levels + self.bits - 2 if site else 0
        axis = self.network.sites[site].axis if site else None
        for path in self.circuit.paths(feed):
            sender = path.source.site
            if sender is None:
                continue
            neuron, sent = self.network.neurons[sender], self.network.threshold(sender)
            try:
                synapses.append(synapse(self.circuit, path, sent, threshold, neuron, axis, self.bits))
            except FoldError as reason:
                host.append((path, str(reason)))
        fraction = torch.full([1] * self.circuit.form(feed.target).dim(), least)
        for s in synapses:
            fraction = fraction.maximum(s.exponent + s.num_levels - 1)
        return Receiver(feed, threshold, tuple(synapses), tuple(host), fraction)

    @property
    def report(self) -> Report:
        """What the runs so far have shown."""
        host = {f"{p.source.value} -> {p.target}": why for r in self.receivers.values() for p, why in r.host}
        return Report(dict(self.widths.used), dict(self.widths.overflows), host)

    @torch.no_grad()
    def run(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Any:
        """The answer after each step, in the form of `SpikingNetwork.run`.

        Args:
            *args: What the model takes, of the sizes that the weights were made for.
            num_steps: T; what the network was converted for unless given.
            **kwargs: The same, by name.

        Example:
            >>> tuple(hardware.IntegerNetwork(snn).run(x).shape)
            (4, 2, 10)
        """
        plan, tensors = self.network.prepare_call(args, kwargs)
        given, made = (_per_sample(plan.program, shapes) for shapes in ([t.shape for t in tensors], self.circuit.sizes))
        if plan.program is not self.circuit.program or given != made:
            raise DataError(f"inputs of {given} per sample: integer weights were made for {made}; give those")
        run = _Run(self, tensors)
        return with_time([run.advance(t) for t in range(1, self.network.config.steps_or(num_steps) + 1)])


def _per_sample(program: Program, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The sizes of inputs without that of the batch, wherever it lies."""
    axes = [spec.meta.batch_axis for spec in program.inputs]
    return [tuple(n for i, n in enumerate(s) if i != axis) for s, axis in zip(shapes, axes, strict=True)]


def _check(network: SpikingNetwork, weight_bits: int, membrane_bits: int, division: str, overflow: str) -> None:
    for name, value, low, high in (("weight_bits", weight_bits, 2, 16), ("membrane_bits", membrane_bits, 4, 48)):
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(f"{name}={value!r} must be a whole number from {low} to {high}")
    for name, word, allowed in (("division", division, Division), ("overflow", overflow, Overflow)):
        if word not in get_args(allowed):
            raise ConfigError(f"{name}={word!r} must be one of {', '.join(map(repr, get_args(allowed)))}")
    if division == "shift" and network.config.coding == "rate":
        raise ConfigError("division='shift' with rate coding: its neurons never divide; leave division='divide'")


class _Run:
    """One input on its way: spikes of this step, bursts added up, and what the host knows of each source."""

    def __init__(self, network: IntegerNetwork, tensors: list[Tensor]) -> None:
        self.net, self.circuit = network, network.circuit
        program = self.circuit.program
        self.batch = (batch_size(program, tensors) if program.batch_symbols else None) or self.circuit.batch
        self.device = tensors[0].device
        self.known = self.circuit.frame(self.batch).values
        self.values: dict[str, Any] = {i.name: x for i, x in zip(program.inputs, tensors, strict=True)}
        self.spikes: dict[str, Tensor] = {}
        self.added: dict[str, Tensor] = {}  # what has arrived at a read-out through whole-number synapses
        self.settled: dict[str, Tensor] = {}  # the host's part of a target, where it is the same at every step
        self.sent: dict[str, Tensor] = {}  # by receiver, the host's part at the last step
        self.neurons: dict[str, IntegerNeurons] = {}
        for layer in self.circuit.layers:
            threshold, fraction = network.receivers[layer.value].threshold, network.receivers[layer.value].fraction
            self.neurons[layer.value] = IntegerNeurons(layer.name, layer.neuron, threshold, fraction, network.division)

    def advance(self, t: int) -> Any:
        heard: dict[str, Tensor] = {}
        for node in self.circuit.program.nodes:
            if node.target == NEURON:
                self._fire(node, t)
            elif node.name in self.circuit.sources:
                self.values[node.name] = node.call(lambda ref: self._value(ref.name, t, heard), self.device)
        outputs = replace_refs(list(self.circuit.program.outputs), lambda ref: self._value(ref.name, t, heard))
        return unflatten(self.circuit.program.output_structure, outputs)

    def _fire(self, node: Node, t: int) -> None:
        receiver, neurons = self.net.receivers[node.name], self.neurons[node.name]
        value = self._host_part(receiver, t).double() / receiver.threshold.double()
        before = self.sent.get(node.name, torch.zeros_like(value))
        if self.net.coding == "rate":
            signal = t * value - (t - 1) * before
        else:
            signal = (value - before) / gain(t, self.net.division)
        self.sent[node.name] = value
        from_host = (signal * torch.exp2(receiver.fraction.double())).round().long()
        pulses = neurons.step(from_host + receiver.currents(self.spikes, self.batch), t, self.net.widths)
        spikes = self.spikes[node.name] = pulses.sum(0)  # a synapse adds shifted weights pulse by pulse: the same sum
        sent = spikes * 2.0 ** (1 - neurons.neuron.num_levels) * receiver.threshold.double()
        self.values[node.name] = self._receive(self.values.get(node.name, 0.0), sent, t)

    def _host_part(self, receiver: Receiver, t: int) -> Tensor:
        """What the host knows to be at a target without the whole-number synapses: biases, inputs, graded units."""
        feed = receiver.feed
        analog = {s.value: self.values[s.value] for s in feed.sources if s.kind != "neurons"}
        moves = any(s.moves for s in feed.sources if s.kind != "neurons") or receiver.host
        if not moves and feed.target in self.settled:
            return self.settled[feed.target]
        total = self.circuit.value(feed, analog, self.batch) if analog else self.circuit.constant(feed)
        for path, _ in receiver.host:
            total = total + self.circuit.along(path.links, self.values[path.source.value].to(total.dtype), self.batch)
        self.settled[feed.target] = total
        return total

    def _value(self, name: str, t: int, heard: dict[str, Tensor]) -> Any:
        """What the host reads: a source as it is, and at a read-out all that has arrived."""
        if name in self.known:
            return self.known[name]
        if name not in self.net.receivers or name in self.values:
            value, meta = self.values[name], self.circuit.program.metas[name]
            return value.to(meta.dtype) if isinstance(meta, Meta) else value
        if name not in heard:
            receiver = self.net.receivers[name]
            current = self.net.widths.fit(f"{name} read-out", receiver.currents(self.spikes, self.batch))
            signal = current.double() * torch.exp2(-receiver.fraction.double())
            self.added[name] = self._receive(self.added.get(name, 0.0), signal, t)
            value = self._host_part(receiver, t)
            heard[name] = (value.double() + self.added[name]).to(value.dtype)
        return heard[name]

    def _receive(self, value: Tensor | float, signal: Tensor, t: int) -> Tensor:
        if self.net.coding == "rate":
            return (value * (t - 1) + signal) / t
        return value + signal * gain(t, self.net.division)
