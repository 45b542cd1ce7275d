"""An event-driven simulator: every event touches its own fan-out and nothing else, so work is proportional to spikes.

It counts accumulates as a chip would perform them, op by op and step by step; the numbers equal those of
`measure.energy`. Column "events" (costs "paper"): spikes that an average pool merges within a step go on as
one weighted event, which is how the simulator works. Column "spikes" (costs "honest"): the same, with a merged event
counted as the spikes it came from. Column "analog": entries of the image and of whatever else is no spikes. The pulses
of a burst are events of their own: on each wire that carries spikes the first pulses of a step go, then the second
ones, and so on, and only pulses of one number are merged.

Two more columns are of neurons, not of accumulates: "fired", the pulses they sent, and "visited", neurons that were
looked at, since something reached them or what they kept was due; none where spikes are given. All numbers are sums
over the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError
from spikecast.graph.program import NEURON, Node, replace_refs
from spikecast.graph.structure import unflatten
from spikecast.hardware.affine import in_order
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.events import _scatter
from spikecast.hardware.events.neurons import Neurons, NeuronState, Wire
from spikecast.hardware.events.stream import Events, events_of_step, in_pieces, senders_of
from spikecast.hardware.events.tables import Linear, Table
from spikecast.hardware.events.wires import Passage, Wires, refuse_host_ops
from spikecast.network.answers import with_time
from spikecast.network.spiking import SpikingNetwork
from spikecast.theory.coding import signal_between

COLUMNS = ("events", "spikes", "analog", "fired", "visited")
Counts = dict[str, dict[str, list[int]]]  # by op, by column: a number for each step


class Simulator(Wires):
    """Runs a network event by event and counts accumulates; `start` it with inputs, then `step` as often as wanted.

    Neurons must be joined by linear ops. Ops that are not linear are the host's: those before the first neurons are
    evaluated once.

    Args:
        network: The network, converted whole.
        *example: A call of another size than the one the network was converted with.
        hosted: Ops that are not linear and depend on spikes are refused by name. True evaluates them in every step,
            whole, and sends what changes in their result as graded events; their work is not counted.
        **kwargs: The example's arguments by name.

    Example:
        >>> simulator = hardware.Simulator(snn)
        >>> bool((simulator.run(x) - snn.run(x)).abs().max() < 1e-4)
        True
        >>> simulator.start(x)
        >>> events = simulator.step()  # who fired in the first step
    """

    def __init__(self, network: SpikingNetwork, *example: Any, hosted: bool = False, **kwargs: Any) -> None:
        circuit = Circuit(network, example if example or kwargs else None, kwargs)
        if not hosted:
            refuse_host_ops(circuit)
        circuit.refuse_leak("the simulator looks at a neuron only when something arrives, and a leak never rests")
        super().__init__(circuit)
        self.network, self.coding = network, network.config.coding
        self.senders = senders_of(circuit.layers)
        self.layers = {layer.value: i for i, layer in enumerate(circuit.layers)}
        self.neurons = [Neurons(layer, circuit.constant(layer.feed)) for layer in circuit.layers]
        self.counts: Counts = {}
        self.t = self.samples = 0
        self.inputs: list[list[Tensor]] | None = None
        self.states: list[list[NeuronState]] = []

    def __repr__(self) -> str:
        return f"Simulator({len(self.senders)} layers, t={self.t}, samples={self.samples})"

    # -- running

    def start(self, *args: Any, samples: int | None = None, **kwargs: Any) -> None:
        """Begin anew with these inputs; or with none, for `samples` whose spikes will be given."""
        self.t, self.counts, self.inputs = 0, {}, None
        if args or kwargs:
            plan, tensors = self.network.prepare_call(args, kwargs)
            self.inputs = in_pieces(self.program, tensors, 1)
            expected = [tuple(self.circuit.form(spec.name).shape) for spec in self.program.inputs]
            fits = all([tuple(t.shape) for t in one] == expected for one in self.inputs)
            if plan.program is not self.program or not fits:
                sizes = [tuple(t.shape) for t in tensors]
                raise DataError(
                    f"the simulator was made for samples of {expected}, not {sizes}; make one for this call"
                )
            samples = len(self.inputs)
        if samples is None:
            raise DataError(
                "started without inputs; give what the network takes, or samples= of which spikes will come"
            )
        others = {s.value for feed in self.circuit.outputs for s in feed.sources if s.kind != "neurons"}
        if self.inputs is None and others:
            raise DataError(f"the answer depends on {', '.join(sorted(others))} besides spikes; give the inputs too")
        self.samples = samples
        self.states = [[NeuronState(neurons) for neurons in self.neurons] for _ in range(samples)]
        self.held = [{name: np.zeros_like(rest) for name, rest in self.rest.items()} for _ in range(samples)]
        self.host: list[dict[str, Any]] = [{} for _ in range(samples)]

    def step(self, events: Events | None = None) -> Events:
        """One step: what the neurons of all samples fire. With `events`, the neurons are taken to fire those of it."""
        if not self.states:
            raise DataError("the simulator was not started; call start(inputs) first")
        if events is None and self.inputs is None:
            raise DataError(
                "started without inputs, the simulator can only be given spikes; give the events of the step"
            )
        if events is not None:
            self._check(events)
        self.t += 1
        given = None if events is None else events.at(self.t)
        fired = [item for sample in range(self.samples) for item in self._sample(sample, given)]
        return events_of_step(fired, self.t, self.senders, self.coding, self.t, self.samples)

    def _check(self, events: Events) -> None:
        """Refuse what is no events, and the events of another network; thresholds may differ."""
        both = self.senders, _events(events).senders
        own, theirs = ([(s.name, s.shape, s.num_levels, s.burst) for s in senders] for senders in both)
        if own != theirs or events.coding != self.coding:
            raise DataError("the events are of other layers or another coding; record them with this network")
        if events.samples != self.samples:
            raise DataError(f"the events are of {events.samples} samples, the simulator runs {self.samples}")

    def run(self, *args: Any, num_steps: int | None = None, events: Events | None = None, **kwargs: Any) -> Any:
        """The answer after each step, as `snn.run` gives it; with `events`, that of replaying them.

        Args:
            *args: What the model takes. With `events` it may be left out where the answer depends on spikes alone:
                the neurons do not look at it then, but it is sent and counted (column "analog").
            num_steps: T; what the network was converted for unless given.
            events: Recorded spikes, which the neurons send in place of their own.
            **kwargs: What the model takes, by name.

        Example:
            >>> tuple(hardware.Simulator(snn).run(x, num_steps=2).shape)
            (2, 2, 10)
        """
        total = self.network.config.steps_or(num_steps)
        self.start(*args, samples=None if events is None else _events(events).samples, **kwargs)
        answers = []
        for _ in range(total):
            self.step(events)
            leaves = replace_refs(list(self.program.outputs), in_order(self.outputs()))
            answers.append(unflatten(self.program.output_structure, leaves))
        return with_time(answers)

    def outputs(self) -> list[Tensor]:
        """The network's output tensors as they stand after the steps so far."""
        outputs = []
        for name in self.program.output_names:
            parts = [self._estimate(b, name) for b in range(self.samples)]
            axis = getattr(self.program.metas[name], "batch_axis", None)
            outputs.append(torch.cat(parts, axis) if axis is not None and self.program.batch_symbols else parts[0])
        return outputs

    def _estimate(self, sample: int, name: str) -> Tensor:
        """What a value stands for by what has arrived so far, in the middle of a step too."""
        held, form, t = self.held[sample][name], self.circuit.form(name), max(self.t, 1)
        arrived = sum(value for value, *_ in self.wires.get(name, ()))  # a constant has no wire
        total = (held + arrived) / t if self.coding == "rate" else held + arrived / t
        return torch.from_numpy(self.rest[name] + total).reshape(form.shape).to(form.dtype)

    def _sample(self, sample: int, given: Events | None) -> list[tuple[int, int, Any, Any]]:
        fired = []
        self._send_inputs(sample)
        for node in self.order:
            if node.target == NEURON:
                index = self.layers[node.name]
                pulses = self._fire(sample, index, node, given)
                for (places, levels), wire in zip(pulses, self.wires[node.name], strict=True):
                    _scatter.send(places, self.senders[index].values(places, levels), wire)
                    fired.append((index, sample, places, levels))
            elif node.name in self.passages:
                self._pass(node)
            else:
                self._ask_host(sample, node)
        for name in self.rest.keys() & self.wires.keys():
            factor = 1.0 if self.coding == "rate" else 1.0 / self.t
            for wire in self.wires[name]:
                _scatter.receive(wire, self.held[sample][name], factor)
        for wires in {id(w): w for w in self.wires.values()}.values():
            for wire in wires:
                _scatter.clear(wire)
        return fired

    def _fire(self, sample: int, index: int, node: Node, given: Events | None) -> list[tuple[Any, Any]]:
        if given is not None:
            pulses = given.pulses_of(index, sample)
        else:
            pulses, visited = self.states[sample][index].fire(self.t, self.wires[node.args[0].name])
            self._count(node, "visited", visited)
        self._count(node, "fired", sum(len(places) for places, _ in pulses))
        return pulses

    def _pass(self, node: Node) -> None:
        """What an op makes of what has arrived, pulse by pulse; where all of them are one signal, on its one wire."""
        own = self.wires[node.name]
        for passage in self.passages[node.name]:
            for j, source in enumerate(self.wires[passage.source]):
                self._pass_on(passage, source, own[min(j, len(own) - 1)])

    def _pass_on(self, passage: Passage, source: Wire, wire: Wire) -> None:
        node, how, analog = passage.node, passage.how, not passage.is_spikes
        if isinstance(how, Table):
            if source is not wire:
                _scatter.carry(how.start, how.targets, how.weights, how.once, source, wire)
            return
        if isinstance(how, Linear):
            events, spikes = _scatter.scatter_linear(how.weights, analog, source, wire)
        else:
            settings = (how.weights, how.geometry, how.transposed, analog)
            events, spikes = _scatter.scatter_conv(*settings, source, wire)
        self._count(node, "analog" if analog else "events", events)
        if not analog:
            self._count(node, "spikes", spikes)

    def _count(self, node: Node, column: str, number: int) -> None:
        own = self.counts.setdefault(node.name, {}).setdefault(column, [])
        own += [0] * (self.t - len(own))
        own[-1] += int(number)

    # -- what is no spikes

    def _send_inputs(self, sample: int) -> None:
        if self.inputs is None or (self.t > 1 and self.coding != "rate"):
            return
        for spec, value in zip(self.program.inputs, self.inputs[sample], strict=True):
            self.host[sample][spec.name] = value
            self._send_dense(spec.name, value)

    def _send_dense(self, name: str, value: Any) -> None:
        """A value that is settled is sent once, or at every step where rates are."""
        if isinstance(value, Tensor) and value.is_floating_point():
            flat = value.double().flatten().cpu().numpy()
            (places,) = np.nonzero(flat)
            _scatter.send(places, flat[places], self.wires[name][0])

    def _ask_host(self, sample: int, node: Node) -> None:
        """An op that is not linear, on what has arrived; it sends what its receivers lack (Thm 4.2)."""
        env, moves = self.host[sample], node.name in self.program.flow.moving()
        if self.inputs is None or (self.t > 1 and not moves and self.coding != "rate"):
            return
        if self.t > 1 and not moves:
            self._send_dense(node.name, env[node.name])
            return
        known = {**self.circuit.frame().values, **env}
        values = [known[name] if name in known else self._estimate(sample, name) for name in node.inputs]
        before, now = env.get(node.name), node.call(in_order(values), self.circuit.device)
        env[node.name] = now
        if isinstance(now, Tensor) and now.is_floating_point():
            old = torch.zeros_like(now) if before is None else before
            self._send_dense(node.name, signal_between(old.double(), now.double(), self.t, self.coding))


def _events(given: Any) -> Events:
    """Events, and no name of a file."""
    if not isinstance(given, Events):
        said = " ".join(repr(given).split())[:80]
        raise DataError(f"events={said} are no Events but {type(given).__name__}; give load_events(path)")
    return given


def totals(counts: Mapping[str, Mapping[str, list[int]]], column: str) -> list[int]:
    """The sum of a column over all ops, step by step; [] where nothing was counted in it."""
    if column not in COLUMNS:
        raise ConfigError(f"column={column!r} must be one of {', '.join(map(repr, COLUMNS))}")
    rows = [columns[column] for columns in counts.values() if column in columns]
    length = max(map(len, rows), default=0)
    return [sum(row[t] for row in rows if t < len(row)) for t in range(length)]
