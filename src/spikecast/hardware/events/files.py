"""Events in a file: compressed npz, or HDF5 with the extra `nir`.

Both hold a JSON header (format, version, coding, steps, samples, layers), a column for each field of an event, and the
thresholds of each layer; HDF5 also "sha256", a checksum, which tells damage that the library would not notice. A
reader believes nothing: sizes that a file declares are compared with what the header needs and with `max_bytes` before
anything is unpacked, and every number with the range it must lie in.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from spikecast.config import MAX_BURST, MAX_LEVELS, MAX_STEPS, Coding
from spikecast.errors import ArtifactError, MissingExtraError, SpikecastError, enough_to_read, first_line
from spikecast.hardware.endings import check_ending
from spikecast.hardware.events.stream import COLUMNS, Column, Events, Sender, occurrences
from spikecast.storage.child import HDF5_SIGNATURE, read_hdf5
from spikecast.storage.files import file_start, replacing
from spikecast.storage.schema import MAX_RANK, Record, decoded, known, short

FORMAT, VERSION = "spikecast-events", 2
MAX_BYTES = 2**30
MAX_HEADER = 2**22
MAX_LAYERS = 2**14
_NPY = 128  # bytes of the preamble of a one-dimensional array
HDF5_SUFFIXES = (".h5", ".hdf5")
_NAMES = ("header", *COLUMNS, "thresholds")


def save_events(events: Events, path: str | os.PathLike[str]) -> None:
    """Write a file, whole or not at all: npz, or HDF5 where the name ends in .h5 or .hdf5."""
    check_ending(path, ".npz", *HDF5_SUFFIXES)
    arrays: dict[str, Any] = arrays_of(events)
    made = _hdf5(arrays) if Path(path).suffix in HDF5_SUFFIXES else None
    with replacing(path) as file:
        if made is None:
            np.savez_compressed(file, **arrays)
        else:
            file.write(made)


def load_events(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Events:
    """The events in a file that `Events.save` wrote; it may be a stranger's.

    Args:
        path: A file that is whole and of a known version, npz or HDF5.
        max_bytes: How large it may be when it is unpacked.

    Example:
        >>> hardware.record_events(snn, x).save("events.npz")
        >>> len(hardware.load_events("events.npz")) == len(hardware.record_events(snn, x))
        True
    """
    size, start = file_start(path, "a file of events")
    if size > max_bytes + MAX_HEADER:
        raise ArtifactError(f"{path} has {size} bytes, the limit is {max_bytes}; give a larger max_bytes")
    with enough_to_read(path):
        return _load(path, start, max_bytes)


def _load(path: str | os.PathLike[str], start: bytes, max_bytes: int) -> Events:
    try:
        if start[:2] == b"PK":
            return _load_npz(path, max_bytes)
        if start == HDF5_SIGNATURE:
            return _load_hdf5(path, max_bytes)
        raise ArtifactError("it is neither npz nor HDF5")
    except MemoryError:
        raise
    except SpikecastError as error:
        raise type(error)(f"{path} holds no events that can be read: {error}") from None
    except Exception as error:  # zipfile, zlib and numpy have a dozen types for a damaged file
        said = short(first_line(error))
        raise ArtifactError(f"{path} is cut short or damaged ({said}); copy or write it again") from None


# -- what a file holds


def arrays_of(events: Events) -> dict[str, NDArray[Any]]:
    """One-dimensional arrays by name, the header among them as bytes."""
    layers = tuple(
        LayerRecord(s.name, s.shape, s.axis, s.num_levels, s.burst, tuple(s.threshold.shape)) for s in events.senders
    )
    header = Header(FORMAT, VERSION, events.coding, events.num_steps, events.samples, len(events), layers)
    return {
        "header": np.frombuffer(msgspec.json.encode(header), np.uint8),
        **{name: np.ascontiguousarray(events.columns[name], kind) for name, kind in COLUMNS.items()},
        "thresholds": np.concatenate([np.empty(0), *(s.threshold.reshape(-1) for s in events.senders)]).astype("<f8"),
    }


Extents = Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=2**32)], ...], msgspec.Meta(max_length=MAX_RANK)]


class LayerRecord(Record, frozen=True):
    """A layer of senders as the header has it."""

    name: str
    shape: Extents
    axis: Annotated[int, msgspec.Meta(ge=0)] | None
    num_levels: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEVELS)]
    burst: Annotated[int, msgspec.Meta(ge=1, le=MAX_BURST)]
    threshold: Extents

    def check(self) -> None:
        """See that its sizes go together."""
        if math.prod(self.shape) > 2**40 or (self.axis is not None and self.axis >= len(self.shape)):
            raise ArtifactError(f"the layer {short(self.name)} is too large, or lacks its axis")
        pairs = zip(self.threshold[::-1], self.shape[::-1], strict=False)
        if len(self.threshold) > len(self.shape) or any(a not in (1, b) for a, b in pairs):
            raise ArtifactError(f"the thresholds of the layer {short(self.name)} do not fit its shape")


class Head(msgspec.Struct):
    """As much as a header of any version says."""

    format: str
    version: int


class Header(Record, frozen=True):
    """What the header holds; it says how large everything else must be."""

    format: str
    version: int
    coding: Coding
    num_steps: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)]
    samples: Annotated[int, msgspec.Meta(ge=0, le=2**32)]
    events: Annotated[int, msgspec.Meta(ge=0)]
    layers: Annotated[tuple[LayerRecord, ...], msgspec.Meta(max_length=MAX_LAYERS)]

    @property
    def lengths(self) -> dict[str, tuple[int, str]]:
        """How many numbers of which type each array holds."""
        thresholds = sum(math.prod(layer.threshold) for layer in self.layers)
        return {**{name: (self.events, kind) for name, kind in COLUMNS.items()}, "thresholds": (thresholds, "<f8")}

    def events_of(self, arrays: Mapping[str, NDArray[Any]]) -> Events:
        """The events, once every number has been seen to be in its range."""
        thresholds, senders, start = arrays["thresholds"], [], 0
        if not bool((np.isfinite(thresholds) & (thresholds > 0)).all()):
            raise ArtifactError("a threshold is not positive and finite")
        for layer in self.layers:
            stop = start + math.prod(layer.threshold)
            threshold = thresholds[start:stop].reshape(layer.threshold).astype(np.float64)
            senders.append(Sender(layer.name, layer.shape, layer.axis, layer.num_levels, layer.burst, threshold))
            start = stop
        columns = {name: arrays[name] for name in COLUMNS}
        check_columns(columns, senders, self.num_steps, self.samples)
        return Events(columns, tuple(senders), self.coding, self.num_steps, self.samples)


known(Head, Header)


def read_header(text: bytes, max_bytes: int) -> Header:
    """The header of a file, every entry checked, and that what it speaks of is not too large."""
    head = decoded(text, Head)
    if head.format != FORMAT:
        raise ArtifactError("its header is not that of spikecast events")
    if head.version != VERSION:
        raise ArtifactError(f"its version is {head.version}, this spikecast reads {VERSION}; write it again")
    header = decoded(text, Header)
    for layer in header.layers:
        layer.check()
    if len({layer.name for layer in header.layers}) < len(header.layers):
        raise ArtifactError("it has two layers of one name")
    slots = sum(math.prod(layer.shape) * layer.burst for layer in header.layers)
    if header.events > slots * header.samples * header.num_steps:
        raise ArtifactError(f"it says that it has {header.events} events, more than there can be")
    total = sum(length * np.dtype(kind).itemsize for length, kind in header.lengths.values())
    if total > max_bytes:
        raise ArtifactError(f"it takes {total} bytes unpacked, the limit is {max_bytes}; give a larger max_bytes")
    return header


def check_columns(columns: Mapping[str, Column], senders: list[Sender], num_steps: int, samples: int) -> None:
    """Refuse an event out of range or out of order, and a neuron that fires more often in a step than its burst."""
    if not len(columns["t"]):
        return
    t, layer, sample = (columns[name].astype(np.int64) for name in ("t", "layer", "sample"))
    if t.min() < 1 or t.max() > num_steps or layer.max() >= len(senders) or sample.max() >= samples:
        raise ArtifactError("an event has a step, a layer or a sample that there is not")
    flat = np.empty(len(t), np.int64)
    for index, sender in enumerate(senders):
        mine = layer == index
        channel, y, x, level = (columns[name][mine] for name in ("channel", "y", "x", "level"))
        for places, size in zip((channel, y, x), sender.extents, strict=True):
            if len(places) and places.max() >= size:
                raise ArtifactError(f"an event of the layer {short(sender.name)} lies outside of it")
        if bool((level == 0).any() or (np.abs(level.astype(np.int16)) > sender.num_levels).any()):
            raise ArtifactError(f"an event of the layer {short(sender.name)} has a level that there is not")
        flat[mine] = sender.flat(channel, y, x)
    pulse = occurrences(flat, sample, layer, t)
    for index, sender in enumerate(senders):
        if pulse[layer == index].max(initial=0) >= sender.burst:
            said = f"a neuron of the layer {short(sender.name)} fires more than {sender.burst} times in a step"
            raise ArtifactError(f"{said}, which is its burst")
    after = np.zeros(len(t) - 1, bool)
    for key in (flat, pulse, sample, layer, t):  # the last decides first
        after = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & after)
    if not bool(after.all()):
        raise ArtifactError("its events are out of order")


# -- npz


def _load_npz(path: str | os.PathLike[str], max_bytes: int) -> Events:
    with zipfile.ZipFile(path) as file:
        members = file.namelist()
        if len(set(members)) != len(members):
            raise ArtifactError("it holds two members of one name")
        if "header.npy" not in members:
            raise ArtifactError("it lacks 'header'")
        header = read_header(_member(file, "header", "|u1").tobytes(), max_bytes)
        lengths = header.lengths
        if set(members) != {f"{name}.npy" for name in (*lengths, "header")}:
            raise ArtifactError("its members are not those of a file of events")
        arrays = {name: _member(file, name, kind, length) for name, (length, kind) in lengths.items()}
    return header.events_of(arrays)


def _member(file: zipfile.ZipFile, name: str, kind: str, length: int | None = None) -> NDArray[Any]:
    """An array in a zip; no more is unpacked than its length takes, or than a header may."""
    limit = _NPY + (MAX_HEADER if length is None else length * np.dtype(kind).itemsize)
    info = file.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.file_size > limit:
        raise ArtifactError(f"{name!r} declares {info.file_size} bytes, or is packed in a way that is not ours")
    with file.open(info) as member:
        content = io.BytesIO(member.read(limit + 1))
    if np.lib.format.read_magic(content) != (1, 0):
        raise ArtifactError(f"{name!r} is not an array of the kind that is due")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(content, max_header_size=_NPY)
    rest = content.read()
    expected = (len(rest) if length is None else length, kind)
    if is_fortran or dtype.str != kind or shape != expected[:1] or len(rest) != expected[0] * dtype.itemsize:
        raise ArtifactError(f"{name!r} is {short(dtype.str)} {short(str(shape))}, where {expected} is due")
    return np.frombuffer(rest, kind)


# -- HDF5


def _hdf5(arrays: Mapping[str, NDArray[Any]]) -> memoryview:
    """A file of datasets, and their checksum; made in memory: the library ends the process where a disk is full."""
    made = io.BytesIO()
    with _h5py().File(made, "w", libver=("earliest", "v110"), track_order=False) as file:
        for name, array in {**arrays, "sha256": _checksum(arrays)}.items():
            packed = {"compression": "gzip", "shuffle": True} if len(array) else {}
            file.create_dataset(name, data=array, track_times=False, **packed)
    return made.getbuffer()


def _load_hdf5(path: str | os.PathLike[str], max_bytes: int) -> Events:
    """The events of a file that is as it was written; the library reads it in a process of its own."""
    _h5py()
    names = [*_NAMES, "sha256"]
    arrays = read_hdf5(path, names, max_bytes + MAX_HEADER)
    if missing := [name for name in names if name not in arrays]:
        raise ArtifactError(f"it lacks {missing[0]!r}")
    if not np.array_equal(arrays.pop("sha256"), _checksum(arrays)):
        raise ArtifactError("its checksum does not match; copy or write it again")
    header = read_header(arrays["header"].tobytes(), max_bytes)
    for name, (length, kind) in header.lengths.items():
        if arrays[name].dtype.str != kind or arrays[name].shape != (length,):
            raise ArtifactError(f"{name!r} holds {arrays[name].size} numbers, where {length} of {kind} are due")
    return header.events_of(arrays)


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    checksum = hashlib.sha256()
    for name in _NAMES:
        checksum.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}\n".encode())
        checksum.update(np.ascontiguousarray(arrays[name]).data)
    return np.frombuffer(checksum.digest(), np.uint8)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("HDF5 needs h5py; install spikecast[nir], or write npz") from None
    return h5py
