"""One run of a network in whole numbers: what the host sends, what the neurons fire, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spikecast.graph.calls import batch_size
from spikecast.graph.program import NEURON, Meta, Node, replace_refs
from spikecast.graph.structure import unflatten
from spikecast.hardware.integer.neuron import IntegerNeurons, gain
from spikecast.hardware.integer.receiver import Receiver
from spikecast.hardware.integer.trace import Step
from spikecast.hardware.integer.widths import Widths
from spikecast.theory.firing import level_index

if TYPE_CHECKING:
    from spikecast.hardware.integer.network import IntegerNetwork


class Run:
    """One input on its way: spikes of this step, bursts added up, and what the host knows of each source."""

    def __init__(self, network: IntegerNetwork, tensors: list[Tensor]) -> None:
        self.net, self.circuit = network, network.circuit
        program = self.circuit.program
        self.batch = (batch_size(program, tensors) if program.batch_symbols else None) or self.circuit.batch
        self.device = tensors[0].device
        self.known = self.circuit.frame(self.batch).values
        self.values: dict[str, Any] = {i.name: x for i, x in zip(program.inputs, tensors, strict=True)}
        self.widths = Widths(network.widths.bits, network.widths.overflow)
        self.spikes: dict[str, Tensor] = {}
        self.fired: dict[str, Step] = {}  # by site, what happened at the present step
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
            signal = value + (t - 1) * (value - before)
        else:
            signal = (value - before) / gain(t, self.net.division)
        self.sent[node.name] = value
        from_host = receiver.rounded(signal)
        pulses = neurons.step(from_host + receiver.currents(self.spikes, self.batch), t, self.widths)
        spikes = self.spikes[node.name] = pulses.sum(0)  # a synapse adds shifted weights pulse by pulse: the same sum
        unit = 2.0 ** (1 - neurons.neuron.num_levels)
        sent = spikes * unit * receiver.threshold.double()
        self.values[node.name] = self._receive(self.values.get(node.name, 0.0), sent, t)
        levels = level_index(pulses.double() * unit)
        self.fired[neurons.name] = Step(node.name, levels, sent, from_host.expand(spikes.shape), neurons.membrane)

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
            value = heard[name] = self._host_part(receiver, t)
            if receiver.synapses:
                current = self.widths.fit(f"{name} read-out", receiver.currents(self.spikes, self.batch))
                signal = current.double() * torch.exp2(-receiver.fraction.double())
                self.added[name] = self._receive(self.added.get(name, 0.0), signal, t)
                heard[name] = (value.double() + self.added[name]).to(value.dtype)
        return heard[name]

    def _receive(self, value: Tensor | float, signal: Tensor, t: int) -> Tensor:
        if self.net.coding == "rate":
            return (value * (t - 1) + signal) / t
        return value + signal * gain(t, self.net.division)
