"""Events as HDF5, for tools that read nothing else; needs h5py (the extra `nir`).

The HDF5 library is not made for files that somebody damaged. So a block of 512 bytes stands in front, as the format
allows, with a checksum of all that follows; only a file that is as it was written is given to the library.
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
from spikecast.hardware.events.stream import Events

BLOCK = 512
MAGIC = b"spikecast-events sha256 "


def is_hdf5(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as ours do."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("HDF5 needs h5py; install spikecast[nir], or write npz") from None
    return h5py


def _checksum(path: str | os.PathLike[str]) -> bytes:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        file.seek(BLOCK)
        while part := file.read(2**20):
            found.update(part)
    return found.hexdigest().encode()


def write_hdf5(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write datasets, and the checksum in front of them."""
    with _h5py().File(path, "w", userblock_size=BLOCK, libver=("earliest", "v110"), track_order=False) as file:
        for name, array in arrays.items():
            packed = {"compression": "gzip", "shuffle": True} if len(array) else {}
            file.create_dataset(name, data=array, track_times=False, **packed)
    checksum = _checksum(path)
    with path.open("r+b") as raw:
        raw.write(MAGIC + checksum)


def load_hdf5(path: str | os.PathLike[str], max_bytes: int) -> Events:
    """The events of a file whose checksum is right; sizes are compared with the header before anything is read."""
    h5py = _h5py()
    with open(path, "rb") as raw:
        block = raw.read(BLOCK)
    if block[len(MAGIC) :].rstrip(b"\0") != _checksum(path):
        raise ArtifactError("its checksum does not match; copy or write it again")
    with h5py.File(path, "r") as file:
        text = _dataset(h5py, file, "header", None, "|u1", MAX_HEADER)
        header = Header(text.tobytes())
        header.check_total(max_bytes)
        if set(file) != {*header.lengths, "header"}:
            raise ArtifactError("its datasets are not those of a file of events")
        arrays = {
            name: _dataset(h5py, file, name, length, kind, max_bytes) for name, (length, kind) in header.lengths.items()
        }
    return header.events_of(arrays)


def _dataset(h5py: Any, file: Any, name: str, length: int | None, kind: str, limit: int) -> NDArray[Any]:
    """A plain dataset of the form that is due: no link, nothing that lies in other files, no filter but gzip."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise ArtifactError(f"it lacks {name!r}, or only points to it")
    found = file[name]
    is_plain = isinstance(found, h5py.Dataset) and not found.is_virtual and not found.external
    if not is_plain or found.compression not in (None, "gzip") or found.dtype.str != kind or found.ndim != 1:
        raise ArtifactError(f"{name!r} is no plain dataset of the type {kind}")
    size = len(found) * found.dtype.itemsize
    chunk = int(np.prod(found.chunks or (0,))) * found.dtype.itemsize
    if (length is not None and len(found) != length) or size > limit or chunk > 2 * limit:
        raise ArtifactError(f"{name!r} holds {len(found)} numbers, where {length} are due")
    read: NDArray[Any] = found[...]
    return read
