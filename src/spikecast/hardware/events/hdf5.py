"""Events as HDF5, for tools that read nothing else; needs h5py (the extra `nir`).

One dataset for each array, and "sha256", a checksum of them all: it tells damage that the library would not notice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spikecast.errors import ArtifactError, MissingExtraError
from spikecast.hardware.events.files import MAX_HEADER, Header
from spikecast.hardware.events.stream import COLUMNS, Events
from spikecast.storage.child import read_hdf5

_NAMES = ("header", *COLUMNS, "thresholds")


def write_hdf5(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write datasets, and their checksum."""
    with _h5py().File(path, "w", libver=("earliest", "v110"), track_order=False) as file:
        for name, array in {**arrays, "sha256": _checksum(arrays)}.items():
            packed = {"compression": "gzip", "shuffle": True} if len(array) else {}
            file.create_dataset(name, data=array, track_times=False, **packed)


def load_hdf5(path: str | os.PathLike[str], max_bytes: int) -> Events:
    """The events of a file that is as it was written; the library reads it in a process of its own."""
    _h5py()
    arrays = read_hdf5(path, [*_NAMES, "sha256"], max_bytes + MAX_HEADER)
    missing = [name for name in (*_NAMES, "sha256") if name not in arrays]
    if missing:
        raise ArtifactError(f"it lacks {missing[0]!r}")
    if not np.array_equal(arrays.pop("sha256"), _checksum(arrays)):
        raise ArtifactError("its checksum does not match; copy or write it again")
    header = Header(arrays["header"].tobytes())
    header.check_total(max_bytes)
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
