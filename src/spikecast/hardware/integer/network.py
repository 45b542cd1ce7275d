"""A converted network in whole numbers: every threshold is 1, weights have a few bits, synapses add and shift.

Neurons and the synapses between them are integers. The host computes in floating point what is left: graded units, what
lies before the first neurons (sent once, as currents), and paths that have no fixed-point weights; `report` names them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError
from spikecast.graph.program import Program
from spikecast.graph.roles import Role
from spikecast.hardware.circuit.circuit import Circuit, whole
from spikecast.hardware.circuit.parts import Feed, Path
from spikecast.hardware.integer.file import save_weights
from spikecast.hardware.integer.fixed_point import FoldError, synapse
from spikecast.hardware.integer.memory import LayerMemory, Memory
from spikecast.hardware.integer.neuron import Division, check_boundary, keeps_estimate
from spikecast.hardware.integer.receiver import LayerWeights, Receiver
from spikecast.hardware.integer.run import Run
from spikecast.hardware.integer.trace import IntegerTrace, trace_of
from spikecast.hardware.integer.widths import MAX_BITS, Overflow, Widths
from spikecast.network.answers import with_time
from spikecast.network.plan import SILENT
from spikecast.network.spiking import SpikingNetwork

_AS_SPIKES = "; convert with Config(encode_input=True) to send the input as spikes"


@dataclass(frozen=True)
class Report:
    """Bits each register needed, overflows (if they were let pass), and what the host computes, with the reason.

    What the host computes has the names of the model's modules; an op has its own name behind that where a module has
    several, neurons have that of their site. The bits are those of the inputs and steps run so far: other inputs, or
    more steps, may need more.
    """

    used: dict[str, int]
    overflows: dict[str, int]
    host: dict[str, str]


class IntegerNetwork:
    """The network as a chip with integer synapses and membranes would run it.

    `run(x)` answers after each step; `trace(x)` has the levels that fired as well, and `weights()` the whole weights.
    `report` has the bits that each register needed, and what is left to the host.

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
        _check(whole(network), weight_bits, membrane_bits, division, overflow)
        self.network, self.division, self.bits = network, division, weight_bits
        self.coding = network.config.coding
        self.widths = Widths(membrane_bits, overflow)
        self.circuit = Circuit(network)
        self.circuit.refuse_leak("neurons in whole numbers keep all of their potential")
        self._refuse_silent()
        for layer in self.circuit.layers:
            check_boundary(layer.name, layer.neuron)
        self.receivers: dict[str, Receiver] = {}
        for layer in self.circuit.layers:
            self.receivers[layer.value] = self._receiver(layer.feed, network.threshold(layer.name), layer.name)
        for feed in self.circuit.read_outs:
            if feed.target in self.circuit.linear and feed.target not in self.receivers:
                self.receivers[feed.target] = self._receiver(feed, torch.ones(()), None)

    def __repr__(self) -> str:
        return (
            f"IntegerNetwork({len(self.circuit.layers)} layers, weight_bits={self.bits}, "
            f"membrane_bits={self.widths.bits}, division={self.division!r}, overflow={self.widths.overflow!r})"
        )

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
            if sender is None or not self._gets_through(path):
                continue
            neuron, sent = self.network.neurons[sender], self.network.threshold(sender)
            try:
                synapses.append(synapse(self.circuit, path, sent, threshold, neuron, axis, self.bits))
            except FoldError as reason:
                host.append((path, str(reason)))
        fraction = torch.full([1] * self.circuit.form(feed.target).dim(), least)
        for s in synapses:
            fraction = fraction.maximum(s.exponent + s.num_levels - 1)
        return Receiver(feed, threshold, tuple(synapses), tuple(host), fraction, site is not None)

    def _gets_through(self, path: Path) -> bool:
        """Whether anything passes the ops before the weights: of a sequence often only the last place does."""
        first = next((i for i, link in enumerate(path.links) if link.role is Role.SYNAPSE), len(path.links))
        blank = self.circuit.blank(path.source.value)
        probe = torch.rand(blank.shape, generator=torch.Generator().manual_seed(0)).to(blank)
        return not first or bool(self.circuit.along(path.links[:first], probe).any())

    @property
    def report(self) -> Report:
        """What the runs so far have shown."""
        return Report(dict(self.widths.used), dict(self.widths.overflows), self._left_to_host())

    def _left_to_host(self) -> dict[str, str]:
        """Ops, and ways from a source to a target, that are computed in floating point, with the reason."""
        label = self.circuit.label
        found = {label(op.name): f"{op.op} is not linear" for op in self.circuit.host_ops}
        for receiver in self.receivers.values():
            for source in receiver.feed.sources:
                if source.kind != "neurons" and receiver.feed.nodes:
                    why = f"weights on values, not on spikes{_AS_SPIKES if source.kind == 'input' else ''}"
                    found[f"{label(source.value)} -> {label(receiver.feed.target)}"] = why
            found |= {f"{label(path.source.value)} -> {label(path.target)}": why for path, why in receiver.host}
        return found

    def weights(self) -> dict[str, LayerWeights]:
        """The whole weights, shifts and biases as `run` uses them, by site; those of a read-out as "NAME read-out".

        A read-out that no whole weights lead to is the host's, and left out.

        Example:
            >>> {name: layer.synapses[0].weight.dtype for name, layer in hardware.IntegerNetwork(snn).weights().items()
            ...     if layer.synapses}
            {'linear read-out': torch.int64}
        """
        return {name: receiver.weights(self.circuit) for name, receiver in self._by_name().items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what `weights` answers as whole numbers in an npz file, for readers of their own.

        The arrays are "LAYER/fraction", "LAYER/bias", and for the synapse number i "LAYER/i/weight", "LAYER/i/exponent"
        and "LAYER/i/shift"; "header" holds bytes of JSON: the settings, and the names of `SynapseWeights`.

        Args:
            path: The file to write, whose name ends in .npz.

        Example:
            >>> hardware.IntegerNetwork(snn).save("chip.npz")
        """
        settings = {"coding": self.coding, "division": self.division, "num_steps": self.network.config.num_steps}
        save_weights(self.weights(), settings | {"weight_bits": self.bits, "membrane_bits": self.widths.bits}, path)

    def memory(self) -> Memory:
        """What a chip stores for each layer: registers, weights, shifts, biases; `table()` prints it.

        Example:
            >>> hardware.IntegerNetwork(snn).memory().layers["linear read-out"].weights
            360
        """
        layers = {name: self._stored(name, receiver) for name, receiver in self._by_name().items()}
        return Memory(layers, self.bits, self.widths.bits)

    def _by_name(self) -> dict[str, Receiver]:
        names = {layer.value: layer.name for layer in self.circuit.layers}
        stored = {v: r for v, r in self.receivers.items() if r.is_neurons or r.synapses}
        return {names.get(value, f"{value} read-out"): receiver for value, receiver in stored.items()}

    def _stored(self, name: str, receiver: Receiver) -> LayerMemory:
        plain = receiver.weights(self.circuit)
        return LayerMemory(
            neurons=self.circuit.form(receiver.feed.target).numel(),
            registers=2 if receiver.is_neurons and keeps_estimate(self.network.neurons[name]) else 1,
            weights=sum(s.weight.numel() for s in plain.synapses),
            shifts=sum(s.shift.numel() for s in plain.synapses),
            biases=0 if plain.bias is None else plain.bias.numel(),
            host=len(receiver.host),
        )

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
        run = Run(self, self.prepare_call(args, kwargs))
        answers = [run.advance(t) for t in range(1, self.network.config.steps_or(num_steps) + 1)]
        self.note(run)
        return with_time(answers)

    @torch.no_grad()
    def trace(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> IntegerTrace:
        """The same, with the levels that every neuron fired, in the form of `snn.twin().trace(x)`.

        Args:
            *args: What the model takes, of the sizes that the weights were made for.
            num_steps: T; what the network was converted for unless given.
            **kwargs: The same, by name.

        Example:
            >>> {site: tuple(levels.shape) for site, levels in hardware.IntegerNetwork(snn).trace(x).levels.items()}
            {'1': (4, 3, 2, 4, 6, 6)}
        """
        run, answers, steps = Run(self, self.prepare_call(args, kwargs)), [], []
        for t in range(1, self.network.config.steps_or(num_steps) + 1):
            answers.append(run.advance(t))
            steps.append(dict(run.fired))
        self.note(run)
        return trace_of(with_time(answers), steps, self.coding, self.division)

    def prepare_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The tensors of a call; refused where they are of other sizes than the weights were made for."""
        plan, tensors = self.network.prepare_call(args, kwargs)
        given, made = (_per_sample(plan.program, shapes) for shapes in ([t.shape for t in tensors], self.circuit.sizes))
        if plan.program is not self.circuit.program or given != made:
            raise DataError(f"inputs of {given} per sample: integer weights were made for {made}; give those")
        return tensors

    def note(self, run: Run) -> None:
        """Take what a run has shown since the last note into the report; raises where a register was too narrow."""
        shown, run.widths = run.widths, Widths(self.widths.bits, self.widths.overflow)
        self.widths.add(shown)
        shown.check(self.bits)


def _per_sample(program: Program, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The sizes of inputs without that of the batch, wherever it lies."""
    axes = [spec.meta.batch_axis for spec in program.inputs]
    return [tuple(n for i, n in enumerate(s) if i != axis) for s, axis in zip(shapes, axes, strict=True)]


def _check(network: SpikingNetwork, weight_bits: int, membrane_bits: int, division: str, overflow: str) -> None:
    for name, value, low, high in (("weight_bits", weight_bits, 2, 16), ("membrane_bits", membrane_bits, 4, MAX_BITS)):
        if type(value) is not int or not low <= value <= high:
            raise ConfigError(f"{name}={value!r} must be a whole number from {low} to {high}")
    for name, word, allowed in (("division", division, Division), ("overflow", overflow, Overflow)):
        if word not in get_args(allowed):
            raise ConfigError(f"{name}={word!r} must be one of {', '.join(map(repr, get_args(allowed)))}")
    if division == "shift" and network.config.coding == "rate":
        raise ConfigError("division='shift' with rate coding: its neurons never divide; leave division='divide'")
