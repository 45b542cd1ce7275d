"""Each linear op as an event sees it: where an entry of the input goes, and with what weight, for one sample."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spikecast.errors import ModelError
from spikecast.graph.fanout import is_convolution
from spikecast.graph.program import Node, Ref, resolve
from spikecast.graph.roles import matmul_operands
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Link
from spikecast.hardware.events._scatter import CHANNELS, DILATION, KERNEL, OUT, PADDING, SIZE, STRIDE

_POOLS = re.compile(r"aten\._?(?:(?:adaptive_)?avg_pool|upsample_[a-z_]+)(\d)d\w*")  # with the number of dimensions
_DIGIT = 4096  # indices are sent through an op digit by digit, so that float32 holds them
_MOST = 2**24  # numbers that a probe may take
_MOST_COLUMNS = 2048


@dataclass(frozen=True)
class Table:
    """Entry i goes to targets[start[i]:start[i+1]] with these weights."""

    start: NDArray[np.int64]
    targets: NDArray[np.int32]
    weights: NDArray[np.float64]
    size: int  # entries of the result
    once: bool = False  # an entry that is reached is one event, however many spikes reach it

    @property
    def is_identity(self) -> bool:
        size = self.size  # the first part of a concat goes to the same places, among others
        in_place = np.array_equal(self.start, np.arange(size + 1)) and np.array_equal(self.targets, np.arange(size))
        return in_place and bool((self.weights == 1).all())


def table_of(circuit: Circuit, links: Sequence[Link], source: str) -> Table:
    """The table of ops that move, average, scale or add; anything else is refused by name."""
    form, node = circuit.form(source), links[-1].node
    if form.dtype not in (torch.float32, torch.float64):
        raise ModelError(f"{node.name} ({node.op}) computes in {form.dtype}; convert the model in float32")
    triples = _selection(circuit, links, form)
    if triples is None and node.op in ("aten.mean", "aten.sum"):
        triples = _reduction(circuit, links, form)
    elif triples is None and (pool := _POOLS.fullmatch(node.op)):
        triples = _by_channel(circuit, links, form, int(pool[1]))
    origin, target, weight = _columns(circuit, links, source) if triples is None else triples
    once = "upsample" in node.op and "nearest" not in node.op
    order = np.lexsort([target, origin])
    start = np.concatenate([[0], np.cumsum(np.bincount(origin, minlength=form.numel()))]).astype(np.int64)
    size = circuit.form(node.name).numel()
    return Table(start, target[order].astype(np.int32), weight[order].astype(np.float64), size, once)


Triples = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]  # from, to, weight


def _selection(circuit: Circuit, links: Sequence[Link], form: Tensor) -> Triples | None:
    """Where each entry of the result is one of the input, scaled: known from a few signals sent through."""

    def sent(signal: Tensor) -> NDArray[np.float64]:
        out = circuit.along(links, signal.to(form.dtype).reshape(form.shape))
        return out.double().flatten().numpy()

    index = torch.arange(form.numel())
    random = torch.rand(form.numel(), generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    weight = sent(torch.ones(form.numel()))
    reached = weight != 0
    digits = [sent(index % _DIGIT), sent(index // _DIGIT)]
    exact = [np.divide(d, weight, out=np.zeros_like(weight), where=reached) for d in digits]
    low, high = (np.rint(d).astype(np.int64) for d in exact)
    origin = low + _DIGIT * high
    whole = all(np.abs(d - np.rint(d)).max(initial=0) < 0.01 for d in exact)
    if not whole or origin.min(initial=0) < 0 or origin.max(initial=0) >= max(form.numel(), 1):
        return None
    expected = weight * random.to(form.dtype).double().numpy()[origin]
    if np.abs(sent(random) - expected).max(initial=0) > 1e-5 * np.abs(weight).max(initial=0):
        return None
    return origin[reached], np.flatnonzero(reached), weight[reached]


def _reduction(circuit: Circuit, links: Sequence[Link], form: Tensor) -> Triples:
    """A mean or a sum over axes: every entry goes to one result."""
    kept = list(form.shape)
    for axis in links[-1].node.argument(1, "dim") or range(form.dim()):
        kept[axis] = 1
    results = math.prod(kept)
    target = torch.arange(results).reshape(kept).expand(form.shape).flatten().numpy()
    total = circuit.along(links, torch.ones(form.shape, dtype=form.dtype)).double().flatten().numpy()
    weight = total[target] / (form.numel() // max(results, 1))
    return np.arange(form.numel()), target, weight


def _by_channel(circuit: Circuit, links: Sequence[Link], form: Tensor, dims: int) -> Triples:
    """A pool or an interpolation treats all channels alike: one is probed, an entry at a time."""
    space, lead = form.shape[-dims:], form.shape[:-dims].numel()
    size = space.numel()
    parts, step, places = [], max(1, _MOST // size), 0
    for first in range(0, size, step):
        units = torch.eye(size, dtype=form.dtype)[first : first + step].reshape(-1, 1, *space)
        out = circuit.walk(links, units).reshape(len(units), -1)
        places = out.shape[1]
        rows, columns = out.nonzero(as_tuple=True)
        parts.append((rows.numpy() + first, columns.numpy(), out[rows, columns].double().numpy()))
    origin, target, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    channel = np.arange(lead).repeat(len(origin))
    return (
        np.tile(origin, lead) + channel * size,
        np.tile(target, lead) + channel * places,
        np.tile(weight, lead),
    )


def _columns(circuit: Circuit, links: Sequence[Link], source: str) -> Triples:
    """Anything linear that is small enough: one entry after the other."""
    node, number = links[-1].node, circuit.form(source).numel()
    if number > _MOST_COLUMNS:
        raise ModelError(
            f"{node.name} ({node.op} in {node.scope!r}) mixes {number} entries in a way the event simulator "
            "has no table for; it takes averages, interpolation, and ops that move or scale"
        )
    origin, target, weight = [], [], []
    for i, column in enumerate(circuit.columns(links, source)):
        (reached,) = column.nonzero(as_tuple=True)
        origin.append(np.full(len(reached), i))
        target.append(reached.numpy())
        weight.append(column[reached].double().numpy())
    return np.concatenate(origin), np.concatenate(target), np.concatenate(weight)


# -- weighted ops


@dataclass(frozen=True)
class Convolution:
    """Weights [channel in, filter of its group, tap], and the geometry as `_scatter` reads it."""

    weights: NDArray[Any]
    geometry: NDArray[np.int64]
    transposed: bool


@dataclass(frozen=True)
class Linear:
    """Weights [in, out] on the last axis."""

    weights: NDArray[Any]


def synapse_of(circuit: Circuit, node: Node, source: str) -> Convolution | Linear:
    """A weighted op with constant weights that reads its signal first; any other is refused by name."""
    known = circuit.frame().values
    if is_convolution(node) and node.args[0] == Ref(source) and node.args[1].name in known:
        return _convolution(circuit, node, known[node.args[1].name].detach().cpu())
    operands = matmul_operands(node)
    if len(operands) == 2 and operands[0] == Ref(source) and operands[1].name in known:
        weights: Tensor = known[operands[1].name]
        added = [r for r in node.inputs if r not in (source, operands[1].name) and r not in known]
        plain = node.op in ("aten.linear", "aten.matmul", "aten.mm", "aten.addmm") and weights.dim() == 2 and not added
        if plain and node.kwargs.get("alpha", 1) == 1:
            matrix = weights.detach().cpu()
            return Linear(np.ascontiguousarray((matrix.T if node.op == "aten.linear" else matrix).numpy()))
    raise ModelError(
        f"{node.name} ({node.op} in {node.scope!r}) has a form that the event simulator does not know; it takes "
        "convolutions, linear layers, and matrix products with a constant matrix on the right"
    )


def _convolution(circuit: Circuit, node: Node, weight: Tensor) -> Convolution:
    schema = resolve(node.target)._schema.arguments  # type: ignore[attr-defined]
    given = {a.name: node.argument(i, a.name, a.default_value) for i, a in enumerate(schema)}
    transposed, groups = bool(given.get("transposed", "transpose" in node.op)), given["groups"]
    dims = weight.dim() - 2
    geometry = np.ones((7, 3), np.int64)
    geometry[SIZE, -dims:] = circuit.form(node.args[0].name).shape[-dims:]
    geometry[OUT, -dims:] = circuit.form(node.name).shape[-dims:]
    geometry[KERNEL, -dims:] = weight.shape[2:]
    geometry[STRIDE, -dims:] = given["stride"]
    geometry[DILATION, -dims:] = given["dilation"]
    geometry[PADDING] = 0
    if given["padding"] == "same":
        geometry[PADDING] = geometry[DILATION] * (geometry[KERNEL] - 1) // 2
    elif given["padding"] != "valid":
        geometry[PADDING, -dims:] = given["padding"]
    if transposed:  # [in, filters per group, ...]
        arranged = weight.flatten(2)
        geometry[CHANNELS] = weight.shape[0], weight.shape[1], weight.shape[0] // groups
    else:  # [filters, channels per group, ...] -> [in, filters per group, taps]
        arranged = weight.flatten(2).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        geometry[CHANNELS] = weight.shape[1] * groups, weight.shape[0] // groups, weight.shape[1]
    return Convolution(np.ascontiguousarray(arranged.numpy()), geometry, transposed)
