"""The address-event stream of a run: who fired which level when.

An event is (t, layer, sample, channel, y, x, level): t counts from 1, the level is the signed index of `theory.firing`
(±1 the largest, ±n the smallest, never 0). Events are in order of t, layer, sample, number of the pulse in its neuron's
burst, and place in the layer's tensor: what a layer sends in a step is the first pulses of all its neurons, then the
second ones, and so on. The number itself is not stored: it is 1 plus how often the neuron has fired before in
the step (`Events.pulses`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spikecast.config import Coding
from spikecast.errors import DataError
from spikecast.graph.calls import batch_size, take
from spikecast.graph.program import Program
from spikecast.hardware.circuit.parts import Layer
from spikecast.storage.files import replacing

COLUMNS = {"t": "<u2", "layer": "<u2", "sample": "<u4", "channel": "<u4", "y": "<u4", "x": "<u4", "level": "|i1"}
Column = NDArray[Any]


@dataclass(frozen=True)
class Sender:
    """A layer of neurons as its receivers know it: where its neurons lie, and what its levels stand for."""

    name: str
    shape: tuple[int, ...]
    axis: int | None  # of the channels
    num_levels: int
    burst: int  # events of one neuron in one step, at most
    threshold: NDArray[np.float64]  # broadcasts against the shape

    @property
    def extents(self) -> tuple[int, int, int]:
        """How many channels, y and x there are: of the other axes the last is x, and y runs over the rest."""
        rest = [size for i, size in enumerate(self.shape) if i != self.axis]
        channels = 1 if self.axis is None else self.shape[self.axis]
        return channels, math.prod(rest[:-1]), math.prod(rest[-1:])

    @property
    def inner(self) -> int:
        """Neurons between one channel and the next."""
        return math.prod(self.shape if self.axis is None else self.shape[self.axis + 1 :])

    def address(self, flat: Column) -> tuple[Column, Column, Column]:
        """(channel, y, x) of places in the flattened tensor."""
        channels, _, width = self.extents
        outer, rest = np.divmod(flat, channels * self.inner)
        channel, inside = np.divmod(rest, self.inner)
        y, x = np.divmod(outer * self.inner + inside, width)
        return channel, y, x

    def flat(self, channel: Column, y: Column, x: Column) -> Column:
        """The inverse of `address`."""
        channels, _, width = self.extents
        outer, inside = np.divmod(y.astype(np.int64) * width + x, self.inner)
        flat: Column = (outer * channels + channel) * self.inner + inside
        return flat

    def values(self, flat: Column, level: Column) -> NDArray[np.float64]:
        """What spikes stand for: ±θ/2**(i-1)."""
        # Looked up, not laid out: a file may speak of a layer that is larger than memory.
        threshold = np.broadcast_to(self.threshold, self.shape)[np.unravel_index(flat, self.shape)]
        values: NDArray[np.float64] = np.sign(level) * np.ldexp(threshold, 1 - np.abs(level.astype(np.int32)))
        return values


@dataclass(frozen=True)
class Events:
    """Who fired which level when, and what is needed to read it; `record_events` and `load_events` make it.

    Attributes:
        columns: t, layer, sample, channel, y, x and level, of equal length.
        senders: The layers: names, shapes, thresholds, bursts.
        coding: "differential" or "rate".
        num_steps: Steps that were recorded.
        samples: Samples of the batch.

    Example:
        >>> events = hardware.record_events(snn, x)
        >>> events.samples, len(events) == sum(len(events.at(t)) for t in (1, 2, 3, 4))
        (2, True)
    """

    columns: dict[str, Column]
    senders: tuple[Sender, ...]
    coding: Coding
    num_steps: int
    samples: int

    def __len__(self) -> int:
        return len(self.columns["t"])

    def select(self, rows: Any) -> Events:
        """Some of the events: a mask, an index or a slice."""
        return replace(self, columns={n: c[rows] for n, c in self.columns.items()})

    def at(self, t: int) -> Events:
        """The events of one step."""
        low, high = np.searchsorted(self.columns["t"], [t, t + 1])
        return self.select(slice(low, high))

    def pulses(self) -> NDArray[np.int64]:
        """For each event which pulse of its neuron's burst it is, from 1."""
        return occurrences(*(self.columns[name] for name in COLUMNS if name != "level")) + 1

    def pulses_of(self, layer: int, sample: int) -> list[tuple[Column, Column]]:
        """Places in a layer's flattened tensor and signed levels, pulse by pulse; of one sample, in one step."""
        c, sender = self.columns, self.senders[layer]
        own = self.select((c["layer"] == layer) & (c["sample"] == sample)).columns
        flat, level = sender.flat(own["channel"], own["y"], own["x"]), own["level"]
        pulse = occurrences(flat)
        if pulse.max(initial=0) >= sender.burst:
            raise DataError(f"a neuron of {sender.name!r} fires more than {sender.burst} times in a step, its burst")
        return [(flat[pulse == j], level[pulse == j]) for j in range(sender.burst)]

    def records(self) -> NDArray[np.void]:
        """One structured array, a field for each column."""
        return _structured(self.columns, COLUMNS)

    def tonic(self, layer: int | str | None = None) -> NDArray[np.void]:
        """Fields x, y, t, p as event-camera tools (tonic) read them, and layer, sample, channel, level besides.

        p is 1 for a positive spike and 0 for a negative one; t stays the step, from 1.
        """
        events = self if layer is None else self.select(self.columns["layer"] == self._index(layer))
        columns = {**events.columns, "p": events.columns["level"] > 0}
        others = {k: COLUMNS[k] for k in ("layer", "sample", "channel", "level")}
        return _structured(columns, {"x": "<i4", "y": "<i4", "t": "<i8", "p": "|i1", **others})

    def _index(self, layer: int | str) -> int:
        names = [sender.name for sender in self.senders]
        if layer in names:
            return names.index(str(layer))
        if isinstance(layer, int) and 0 <= layer < len(names):
            return layer
        raise DataError(f"no layer is called {layer!r}; layers are {', '.join(names[:6])}, …")

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the columns and the number of the pulse as text, a line for each event; whole or not at all."""
        columns = {**self.columns, "pulse": self.pulses()}
        with replacing(path) as file:
            file.write(f"{','.join(columns)}\n".encode())
            np.savetxt(file, np.stack([c.astype(np.int64) for c in columns.values()], 1), "%d", ",")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file: compressed npz where the name ends in .npz, HDF5 where it ends in .h5 or .hdf5."""
        from spikecast.hardware.events.files import save_events

        save_events(self, path)


def _structured(columns: dict[str, Column], kinds: dict[str, str]) -> NDArray[np.void]:
    rows = np.empty(len(next(iter(columns.values()))), dtype=list(kinds.items()))
    for name in kinds:
        rows[name] = columns[name]
    return rows


def occurrences(*keys: Column) -> NDArray[np.int64]:
    """For each row how many before it have the same keys."""
    order, rows = np.lexsort(keys), np.arange(len(keys[0]))  # stable: rows of equal keys stay in order
    is_first = np.ones(len(rows), bool)
    is_first[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], 0)
    found = np.empty_like(rows)
    found[order] = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
    return found


def joined(parts: Sequence[Events]) -> Events:
    """Events of several steps or samples as one stream, in order."""
    columns = {n: np.concatenate([p.columns[n] for p in parts]) for n in COLUMNS}
    order = np.lexsort([columns["sample"], columns["layer"], columns["t"]])  # stable: pulses and places stay in order
    return replace(parts[0], columns=columns).select(order)


def senders_of(layers: Iterable[Layer]) -> tuple[Sender, ...]:
    return tuple(
        Sender(
            name=layer.name,
            shape=layer.shape,
            axis=layer.axis,
            num_levels=layer.neuron.num_levels,
            burst=layer.neuron.burst,
            threshold=layer.threshold.detach().double().cpu().numpy(),
        )
        for layer in layers
    )


def in_pieces(program: Program, tensors: list[Tensor], size: int) -> list[list[Tensor]]:
    """A call as calls of so many samples each; as one where the batch size is pinned."""
    total = batch_size(program, tensors) if program.batch_symbols else None
    if total is None:
        return [tensors]
    return [take(program, tensors, i, min(i + size, total)) for i in range(0, total, size)]


def events_of_step(
    levels: Sequence[tuple[int, int, Column, Column]], t: int, senders: tuple[Sender, ...], *rest: Any
) -> Events:
    """The events of step t, in order, out of (layer, sample, places in the flattened tensor, signed levels).

    There is one of these for each pulse of a burst, the first pulses first.
    """
    parts: dict[str, list[Column]] = {name: [np.empty(0, kind)] for name, kind in COLUMNS.items()}
    for layer, sample, flat, level in sorted(levels, key=lambda item: item[:2]):  # stable: pulses stay in order
        event: tuple[Any, ...] = (t, layer, sample, *senders[layer].address(flat), level)  # in the order of COLUMNS
        for (name, kind), value in zip(COLUMNS.items(), event, strict=True):
            parts[name].append(np.broadcast_to(value, len(flat)).astype(kind))
    return Events({name: np.concatenate(p) for name, p in parts.items()}, senders, *rest)
