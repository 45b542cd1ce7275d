"""Counting what a run does, op by op and step by step, in whole numbers; the run itself is not changed.

Spikes that a weighted op reads straight from a neuron are counted by the kernel that makes them. Spikes that are moved
or averaged on the way are followed: the same ops move a tensor that says how many spikes each entry came from, one for
the first spikes of a burst, one for the second ones, and so on. What any of those reach is one event for each, so an
averaged entry costs as many events as the fullest neuron of its window has spikes. No convolution is run to count, and
no matrix product but one of a kind that `graph.fanout` does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from spikecast.batches import Call, samples_in
from spikecast.graph.execute.run import Execution
from spikecast.graph.fanout import UNIFORM, all_arguments
from spikecast.graph.flow import Operand
from spikecast.graph.program import NEURON, Node, Ref, resolve
from spikecast.graph.roles import ADDED
from spikecast.graph.spread import spread
from spikecast.kernels import Count, Counts, Encoded, encode
from spikecast.network.base import Network
from spikecast.network.counting.tally import Column, Tally
from spikecast.network.counting.wiring import summed_axis, wiring
from spikecast.network.frames import split
from spikecast.network.states import NeuronStates
from spikecast.theory.coding import signal_between

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork

LookUp = Callable[[Ref], Any]
_WITHOUT_BIAS = {"aten.einsum", "aten.tensordot"}


class Meter(NeuronStates):
    """The neurons of a run, which also looks on at all other ops."""

    def __init__(self, network: SpikingNetwork, execution: Execution, tally: Tally) -> None:
        super().__init__(network)
        self.prefix = f"{network.name}." if network.name else ""  # of the region, where there are several
        self.execution, self.tally = execution, tally
        self.flow, self.wires = execution.program.flow, wiring(execution.program)
        self.watched = {*self.wires.weighted, *self.wires.moving, *self.wires.graded, *self.wires.followed}
        self.counts: dict[str, Counts] = {}  # by neuron, what its kernel counted in this pass
        self.levels: dict[str, Tensor] = {}
        # by value and number in the burst, how many spikes each entry came from; steps in the batch
        self.followed: dict[str, list[Tensor]] = {}
        self.held: dict[tuple[str, int], Tensor] = {}  # by op and operand, what it held after the pass before
        tally.note_uncounted(self.prefix, [self.flow.by_name[name] for name in self.flow.uncounted])

    def encode(self, site: str, steps: Tensor, threshold: Tensor, *, want_levels: bool, overwrite: bool) -> Encoded:
        node, axis, taps = self.flow.neurons[site], None, None
        if node.name in self.wires.paired:
            axis = summed_axis(*self.wires.paired[node.name], steps.dim() - 1)
        if node.name in self.wires.mapped:
            taps = self._taps(*self.wires.mapped[node.name], steps.shape[1:]).to(steps.device)
        out = encode(
            steps,
            threshold,
            self.network.neurons[site],
            count=Count(taps, axis),
            **self.state_of(site),
            want_levels=want_levels or node.name in self.watched,
            overwrite=overwrite,
        )
        assert out.counts is not None
        self.counts[node.name] = out.counts
        first, *further = out.counts.fired.unbind(1)
        fired, neurons = sum(further, first), torch.full_like(first, steps[0].numel())
        self._add(node, "fired", self.t, fired)
        self._add(node, "neurons", self.t, neurons)
        self._add(node, "updates", self.t, neurons + fired - first)
        if out.levels is not None:
            self.levels[node.name] = out.levels
        return out

    def _taps(self, node: Node, operand: Operand, shape: torch.Size) -> Tensor:
        tensors = self.execution.tensors
        return self.flow.fan_out(node, lambda ref: shape if ref.name == operand.name else tensors[ref.name]).taps

    def see(self, node: Node, value: Any, look_up: LookUp) -> None:
        """Count what an op has done."""
        if node.target == NEURON:
            fired = (self.levels.pop(node.name) != 0).float().unbind(1)
            self.followed[node.name] = [self.execution.refold(node.name, pulses) for pulses in fired]
        elif node.name in self.wires.moving:
            burst = max(len(self.followed.get(name, ())) for name in node.inputs)
            self.followed[node.name] = [spread(node, partial(self._followed, look_up, j)) for j in range(burst)]
        elif node.name in self.wires.graded:
            self._add_outputs(node, "graded", value, always=True)
        else:
            if _has_bias(node):
                self._add_outputs(node, "biases", value, always=False)
            operands = self.wires.weighted[node.name]
            (self._synapse if len(operands) == 1 else self._product)(node, operands, look_up)

    def _add(self, node: Node, column: Column, t: int, counts: Tensor | list[int]) -> None:
        self.tally.add(self.prefix + node.name, node, column, t, counts)

    def forget(self, name: str) -> None:
        self.followed.pop(name, None)
        self.counts.pop(name, None)

    # -- what an op reads

    def _moves(self, node: Node) -> bool:
        return node.name in self.execution.moving

    def _steps(self, name: str, value: Tensor) -> Tensor:
        """The steps of a value in front."""
        return self.execution.unfold(name, value, self.execution.fold)

    def _followed(self, look_up: LookUp, j: int, ref: Ref) -> Any:
        """How many spikes number j a value came from; what is no spikes is sent once, at the first step."""
        if ref.name in self.followed:
            own = self.followed[ref.name]
            return own[j] if j < len(own) else torch.zeros_like(own[0])
        value = look_up(ref)
        if not _is_float(value):
            return value
        changes = self._changes(self._steps(ref.name, value), None).float()
        return self.execution.refold(ref.name, changes if j == 0 else torch.zeros_like(changes))

    def _changes(self, steps: Tensor, before: Tensor | None) -> Tensor:
        """Where a value [t, ...] that is no spikes sends something: where it moves from what the receiver predicts."""
        before = torch.zeros_like(steps[0]) if before is None and self.t == 1 else before
        before = steps[0] if before is None else before
        pairs = zip([before, *steps[:-1]], steps, strict=True)
        coding = self.network.config.coding
        return torch.stack([signal_between(old, new, self.t + k, coding) != 0 for k, (old, new) in enumerate(pairs)])

    def _add_outputs(self, node: Node, column: Column, value: Any, *, always: bool) -> None:
        """Count the outputs of an op at each step it works at; a bias that is sent once works at the first."""
        outputs = [v for v in (value if isinstance(value, list | tuple) else (value,)) if isinstance(v, Tensor)]
        number = sum(v.numel() for v in outputs) // (self.execution.fold if self._moves(node) else 1)
        is_rate = self.network.config.coding == "rate"
        if always and self._moves(node):
            self._add(node, column, self.t, [number] * self.execution.fold)
        elif self.t == 1:
            self._add(node, column, 1, [number] * (self.tally.num_steps if is_rate else 1))

    # -- weighted ops

    def _synapse(self, node: Node, operands: tuple[Operand, ...], look_up: LookUp) -> None:
        """Entries that are sent, times their fan-out."""
        (operand,) = operands
        value: Tensor = look_up(Ref(operand.name))
        fold = self.execution.fold if self._moves(node) else 1
        out = self.flow.fan_out(node, look_up)
        if self.t == 1:
            self._add(node, "dense", 1, [out.products // fold])
        if (node.name, operand) in self.wires.served:
            counts = self.counts[operand.name]
            events = out.factor * (counts.fired.sum(1) if node.op == "aten.linear" else counts.weighted)
            self._add(node, "events", self.t, events)
            self._add(node, "spikes", self.t, events)
            return
        taps = out.taps.to(value.device)
        if taps.shape == value.shape and self._moves(node):
            taps = self._steps(operand.name, taps)[0]  # those of one step, which are those of all
        total = partial(_total, taps, out.factor)
        if operand.name in self.followed:
            for pulses in self.followed[operand.name]:
                steps = self._steps(operand.name, pulses)
                spikes = total(steps)
                self._add(node, "spikes", self.t, spikes)
                is_neuron = operand.name in self.wires.followed  # each entry is one spike at most
                self._add(node, "events", self.t, spikes if is_neuron else total(steps != 0))
        elif self._moves(node):
            steps = self._steps(operand.name, value)
            self._add(node, "analog", self.t, total(self._changes(steps, self.held.get((node.name, 0)))))
            self.held[node.name, 0] = steps[-1].clone()
        else:  # the input itself: sent once, or at every step where rates are
            repeats = self.tally.num_steps if self.network.config.coding == "rate" else 1
            self._add(node, "analog", 1, total((value != 0).unsqueeze(0)).expand(repeats))

    def _product(self, node: Node, operands: tuple[Operand, ...], look_up: LookUp) -> None:
        """Pairs of factors that are not zero, of the three products of Thm 4.3 and of the two that would do."""
        if self.t == 1:
            self._add(node, "dense", 1, [self.flow.fan_out(node, look_up).products // self.execution.fold])
        (sent, _, before), (sent_right, now_right, before_right) = (
            self._factor(node, i, operand, look_up) for i, operand in enumerate(operands)
        )
        pairs = _pairs if node.op in UNIFORM else partial(self._pairs_by_op, node, operands, look_up)
        new = pairs(before, sent_right)
        self._add(node, "events", self.t, pairs(sent, sent_right) + pairs(sent, before_right) + new)
        self._add(node, "two", self.t, pairs(sent, now_right) + new)

    def _factor(self, node: Node, index: int, operand: Operand, look_up: LookUp) -> tuple[Tensor, Tensor, Tensor]:
        """What a factor sends, what it holds now, and what it held before: how many along the summed axis."""
        if (node.name, operand) in self.wires.served:
            counts = self.counts[operand.name]
            assert counts.along is not None and counts.held is not None
            sent, now = counts.along, counts.held
        else:
            steps = self._steps(operand.name, look_up(Ref(operand.name)))
            held = self.held.get((node.name, index + 2))
            followed = [self._steps(operand.name, pulses) != 0 for pulses in self.followed.get(operand.name, ())]
            sent = torch.stack(followed).sum(0) if followed else self._changes(steps, held)
            self.held[node.name, index + 2] = steps[-1].clone()
            now = steps != 0
            if node.op in UNIFORM and (axis := summed_axis(node, operand, steps.dim() - 1)) is not None:
                sent, now = sent.sum(1 + axis), now.sum(1 + axis)
        first = self.held.get((node.name, index))
        before = torch.cat([torch.zeros_like(now[:1]) if first is None else first.unsqueeze(0), now[:-1]])
        self.held[node.name, index] = now[-1].clone()
        return sent, now, before

    def _pairs_by_op(
        self, node: Node, operands: tuple[Operand, ...], look_up: LookUp, left: Tensor, right: Tensor
    ) -> Tensor:
        """Pairs of a product of any kind: the op itself on ones and zeros."""
        both = zip(operands, (left, right), strict=True)
        factors = {o.position: self.execution.refold(o.name, x.float()) for o, x in both}
        places = count()

        def ones(ref: Ref) -> Any:
            place, value = next(places), look_up(ref)
            return factors[place] if place in factors else torch.ones_like(value) if _is_float(value) else value

        out = self._steps(node.name, resolve(node.target)(*all_arguments(node, ones)))
        return out.double().reshape(len(out), -1).sum(1).round().long()


@torch.no_grad()
def metered_run(network: Network, call: Call, tally: Tally, time_axis: int | None = None) -> Any:
    """The answers after each step, as `run` gives them; what was done is added to the tally."""

    def meter(part: SpikingNetwork, execution: Execution) -> Meter:
        return Meter(part, execution, tally)

    if time_axis is None:
        answers, image = network.run_with(call, tally.num_steps, meter), call
    else:
        answers, image = network.run_frames(call, time_axis, tally.num_steps, meter), split(call, time_axis)[:2]
    tally.samples += samples_in(image, network.batch_axis)
    return answers


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _has_bias(node: Node) -> bool:
    place = 3 if node.op == "aten.bilinear" else 2
    return node.op in ADDED or (node.op not in _WITHOUT_BIAS and node.argument(place, "bias") is not None)


def _total(taps: Tensor, factor: int, steps: Tensor) -> Tensor:
    """Entries [t, ...] times their fan-out, int64 [t]."""
    alike = [d for d in range(1, steps.dim()) if taps.dim() < steps.dim() - d or taps.shape[d - steps.dim()] == 1]
    summed = steps.sum(alike, keepdim=True, dtype=torch.float64) if alike else steps.double()
    return factor * (summed * taps).reshape(len(steps), -1).sum(1).round().long()


def _pairs(left: Tensor, right: Tensor) -> Tensor:
    """Counts along the axes that the factors do not share, multiplied and summed: int64 [t]."""
    rank = max(left.dim(), right.dim())
    left, right = (x.reshape(len(x), *(1,) * (rank - x.dim()), *x.shape[1:]) for x in (left, right))
    return (left.double() * right.double()).reshape(len(left), -1).sum(1).round().long()
