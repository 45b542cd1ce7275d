"""Synapses in whole numbers: weights of a few bits with one power of two per output channel, for thresholds of 1.

A path from neurons to a target is W·θ_in/θ_out in units of the thresholds at both ends. Spikes are ±2**-k, so what
arrives is made by adding, subtracting and shifting weights. Shortcuts and averages are diagonal synapses; their weight
θ_in/θ_out (times 1/k for a mean of k) is not a power of two, hence as fixed-point as any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spikecast.graph.program import Node
from spikecast.graph.roles import Role
from spikecast.hardware.affine import in_order
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Link, Path
from spikecast.hardware.implementations import by_input
from spikecast.theory.neuron import Neuron

UNUSED = -(2**20)  # exponent of a target's entry that a path does not reach
_PROBES = 24


class FoldError(Exception):
    """Why a path has no fixed-point weights; the host takes it then, and the report says so."""


@dataclass(frozen=True)
class Moves:
    """Ops that move, pick, pad or average: `multiple` times their result is whole where their input is."""

    circuit: Circuit
    links: tuple[Link, ...]
    multiple: int

    def __call__(self, value: Tensor) -> Tensor:
        moved: Tensor = self.circuit.walk(self.links, value)
        return moved

    def whole(self, value: Tensor, batch: int) -> Tensor:
        return (self.circuit.walk(self.links, value, batch) * self.multiple).round() if self.links else value


@dataclass(frozen=True)
class SynapseWeights:
    """The whole weights on one way from neurons to a target.

    Attributes:
        source: The site that sends.
        num_levels: n of that site.
        ops: The names of the ops on the way. A mean of k is a sum of k there; its 1/k is in the weights.
        op: The one that has weights; None for a shortcut or a mean, with one weight for each entry of the target.
        weight: Whole numbers (int64) in the shape of the op's own weights, or one that broadcasts against the target.
        exponent: The weights stand for weight·2**-exponent, in units of the thresholds at both ends.
        shift: By how much what arrives is shifted left: the target's fraction - exponent - (num_levels - 1), with the
            levels of the sender.

    Example:
        >>> (synapse,) = hardware.IntegerNetwork(snn).weights()["linear read-out"].synapses
        >>> synapse.source, synapse.op, int(synapse.weight.abs().max()) <= 127
        ('1', 'linear', True)
    """

    source: str
    num_levels: int
    ops: tuple[str, ...]
    op: str | None
    weight: Tensor
    exponent: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Synapse:
    """Whole weights between a layer of neurons and a target.

    What arrives is in units of 2**-(exponent + n - 1) of the target's threshold, with the n levels of the source;
    `exponent` broadcasts against the target. Without an op the weights are diagonal, one for each entry of the target.
    """

    path: Path
    before: Moves
    node: Node | None
    after: Moves
    weight: Tensor
    exponent: Tensor
    num_levels: int

    def currents(self, spikes: Tensor, batch: int) -> Tensor:
        """What spikes ±2**(n-1-k), or sums of them in a burst, add to the target: whole numbers.

        The sums are done in floats, which hold every whole number up to 2**24 or 2**53 and have fast convolutions.
        """
        moved = self.before.whole(spikes.to(self.weight.dtype), batch)
        if self.node is None:
            return (moved * self.weight).long()
        return self.after.whole(_weighted(self.node, self.before.circuit, moved, self.weight), batch).long()

    def shift(self, fraction: Tensor) -> Tensor:
        """By how much what arrives is shifted left to be in units of 2**-fraction; 0 where nothing arrives."""
        return (fraction - self.exponent - (self.num_levels - 1)).clamp(0, 62).masked_fill(self.exponent == UNUSED, 0)

    def plain(self, fraction: Tensor) -> SynapseWeights:
        exponent = self.exponent.masked_fill(self.exponent == UNUSED, 0)
        return SynapseWeights(
            source=str(self.path.source.site),
            num_levels=self.num_levels,
            ops=tuple(node.name for node in self.path.nodes),
            op=None if self.node is None else self.node.name,
            weight=self.weight.long(),
            exponent=exponent,
            shift=slim(self.shift(fraction)),
        )


def synapse(
    circuit: Circuit,
    path: Path,
    threshold_in: Tensor,
    threshold_out: Tensor,
    neuron: Neuron,
    axis: int | None,
    bits: int,
) -> Synapse:
    """The path in whole numbers, or `FoldError` with the reason.

    Thresholds broadcast against one sample with its batch axis; `neuron` is the source's, `axis` that of the target's
    channels.
    """
    at = [i for i, link in enumerate(path.links) if link.role is Role.SYNAPSE]
    others = [link for link in path.links if link.role not in (Role.SYNAPSE, Role.SHAPE, Role.SUM)]
    if len(at) > 1 or others:
        raise FoldError("two weighted ops in a row" if len(at) > 1 else f"{others[0].node.op} scales on the way")
    first = at[0] if at else len(path.links)
    source = circuit.blank(path.source.value).double()
    before = _moves(circuit, path.links[:first], source)
    fan_in = _carried(before, threshold_in.double().expand(source.shape))
    target = circuit.blank(path.target).double()
    goal = threshold_out.double().expand(target.shape)
    if not at:
        dims = tuple(i for i in range(target.dim()) if i != axis)
        weight, exponent = _fixed(fan_in / goal / before.multiple, dims, bits)
        exponent = exponent.expand(target.shape).masked_fill(fan_in == 0, UNUSED)
        return Synapse(path, before, None, Moves(circuit, (), 1), slim(weight), slim(exponent), neuron.num_levels)
    node = path.links[first].node
    weight = _weight_of(circuit, node)
    out = _weighted(node, circuit, before(source), weight)
    after = _moves(circuit, path.links[first + 1 :], out)
    back = _per_channel(_pulled_back(after, out, goal), node, out)
    normal = weight * by_input(_per_channel(fan_in, node, before(source)), weight)
    normal = normal / back.reshape(-1, *[1] * (weight.dim() - 1)) / (before.multiple * after.multiple)
    whole, power = _fixed(normal, tuple(range(1, weight.dim())), bits, rounded=_keeping_sums)
    spread = power.double().reshape(_channel_shape(node, out)).expand(out.shape)
    reached = after(torch.ones_like(out)) != 0
    exponent = torch.where(reached, _carried(after, spread + 4096) - 4096, UNUSED).round().long()
    most = neuron.burst << neuron.num_levels  # more than a neuron sends in a step
    largest = whole.flatten(1).abs().sum(1).max() * (before.multiple * after.multiple * most)
    whole = whole.float() if largest < 2**24 else whole
    return Synapse(path, before, node, after, whole, slim(exponent), neuron.num_levels)


def slim(value: Tensor) -> Tensor:
    """One entry for all along an axis where they are equal: a batch, merged with whatever, may then have any size."""
    for axis in range(value.dim()):
        first = value.narrow(axis, 0, min(1, value.shape[axis]))
        value = first if bool((value == first).all()) else value
    return value


def _moves(circuit: Circuit, links: tuple[Link, ...], blank: Tensor) -> Moves:
    """The ops as moves; refused where they are something else."""
    multiple = 1
    with torch.enable_grad():
        x = blank.detach().requires_grad_()
        y = circuit.walk(links, x)
        if not isinstance(y, Tensor):
            raise FoldError("an op on the way has several results")
        if bool(y.detach().any()):
            raise FoldError("a constant is put in on the way")
        for i in {round(k * (y.numel() - 1) / (_PROBES - 1)) for k in range(_PROBES)} if links else ():
            (taps,) = torch.autograd.grad(y.flatten()[i], x, retain_graph=True)
            used = taps[taps != 0]
            if used.numel():
                if bool((used < 0).any()):
                    raise FoldError("a sign changes on the way")
                multiple = max(multiple, round(1 / float(used.min())))
    probe = torch.randint(-99, 100, blank.shape, generator=torch.Generator().manual_seed(0)).to(blank)
    result = circuit.walk(links, probe) * multiple
    if not torch.allclose(result, result.round(), rtol=0, atol=1e-4):
        raise FoldError("its averages have no common divisor")
    return Moves(circuit, links, multiple)


def _carried(moves: Callable[[Tensor], Tensor], scale: Tensor) -> Tensor:
    """The scale of each entry behind some moves; 0 where nothing arrives. Entries of different scale may not meet."""
    share = moves(torch.ones_like(scale))
    mean = moves(scale) / share.masked_fill(share == 0, 1)
    square = moves(scale.square()) / share.masked_fill(share == 0, 1)
    if not torch.allclose(square, mean.square(), rtol=1e-5):
        raise FoldError("neurons of different thresholds meet in one sum; convert with granularity='layer'")
    return mean


def _pulled_back(after: Moves, out: Tensor, goal: Tensor) -> Tensor:
    """The threshold that each entry of a weighted op's result meets behind the moves after it."""
    with torch.enable_grad():
        x = torch.zeros_like(out).requires_grad_()
        y = after(x)
        return _carried(lambda value: torch.autograd.grad(y, x, value, retain_graph=True)[0], goal)


def _weight_of(circuit: Circuit, node: Node) -> Tensor:
    known = circuit.frame().values
    plain = ("aten.linear", "aten.conv1d", "aten.conv2d", "aten.conv3d")
    if node.op not in plain or node.inputs[1] not in known:
        raise FoldError(f"{node.op} is none of linear, conv1d, conv2d and conv3d with fixed weights")
    weight: Tensor = known[node.inputs[1]]
    return weight.double()


def _weighted(node: Node, circuit: Circuit, value: Tensor, weight: Tensor) -> Tensor:
    """The op without its bias on other weights."""
    known = circuit.frame().values
    rest = [torch.zeros_like(known[n], dtype=weight.dtype) for n in node.inputs[2:]]
    weighted: Tensor = node.call(in_order([value, weight, *rest]))
    return weighted


def _channel_shape(node: Node, value: Tensor) -> list[int]:
    axis = value.dim() - 1 if node.op == "aten.linear" else value.dim() - (int(node.op[-2]) + 1)
    return [-1 if i == axis else 1 for i in range(value.dim())]


def _per_channel(scale: Tensor, node: Node, value: Tensor) -> Tensor:
    """One number per channel of a weighted op's input or output; refused where they differ inside a channel."""
    axis = _channel_shape(node, value).index(-1)
    flat = scale.movedim(axis, 0).flatten(1)
    high = flat.amax(1)
    low = flat.masked_fill(flat == 0, math.inf).amin(1)
    if bool(((high > 0) & ((high - low) > 1e-5 * high)).any()):
        raise FoldError("one channel has several thresholds; convert with granularity='channel' or 'layer'")
    return high.masked_fill(high == 0, 1.0)


def _fixed(
    value: Tensor, dims: tuple[int, ...], bits: int, rounded: Callable[[Tensor], Tensor] = torch.round
) -> tuple[Tensor, Tensor]:
    """Whole numbers of so many bits, and the power of two they were multiplied by: one for each channel."""
    largest = value.abs().amax(dims, keepdim=True)
    exponent = ((2 ** (bits - 1) - 1) / largest.masked_fill(largest == 0, 1.0)).log2().floor()
    return rounded(value * torch.exp2(exponent)), exponent.long()


def _keeping_sums(value: Tensor) -> Tensor:
    """Each number up or down, so that the sum of each filter, and of its part for each input channel, is kept.

    Activations behind a rectifier have a mean, and neighbours are alike: errors of weights that read them must not add
    up. A filter's sum stays to half a unit, a channel's to one.
    """
    by_channel = value.flatten(2) if value.dim() > 2 else value.unsqueeze(-1)
    sums = by_channel.sum(-1)
    sums = _shared_out(sums, sums.sum(-1, keepdim=True).round())
    return _shared_out(by_channel, sums.unsqueeze(-1)).reshape(value.shape)


def _shared_out(value: Tensor, total: Tensor) -> Tensor:
    """Each number along the last axis up or down to make up a whole total; those nearest to the next go up.

    Of equal ones the first go up, on every machine.
    """
    low = value.floor()
    order = (value - low).argsort(dim=-1, descending=True, stable=True).argsort(-1)
    return low + (order < total - low.sum(-1, keepdim=True))
