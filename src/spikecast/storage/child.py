"""Reads HDF5 files of strangers in a process of its own, which may die.

The HDF5 library was not made for damaged files: they can crash it, make it loop for ever, or ask for any amount of
memory. So this file is also run as a script, with limits of time and memory; it copies plain arrays to an npz, over
hard links only. Nothing of spikecast is imported at its top: torch alone would not fit into the limits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
TIMEOUT = 600
MAX_ARRAYS = 100_000
MAX_TEXT = 32 * 2**20


def read_hdf5(path: str | os.PathLike[str], names: Sequence[str], limit: int, index: str = "") -> dict[str, Any]:
    """Those datasets of the given names that a file has, and as "0", "1", … those that its text `index` lists.

    The index is JSON, a list of objects whose "at" names a dataset. Texts come as bytes in arrays; all arrays take
    `limit` bytes at most. An ArtifactError does not name the file: the caller knows what it should have been.
    """
    from spikecast.errors import ArtifactError

    with tempfile.TemporaryDirectory(prefix="spikecast-") as folder:
        out = Path(folder) / "arrays.npz"
        command = [sys.executable, "-P", __file__, os.fspath(path), str(out), str(limit), index, *names]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise ArtifactError(f"it takes more than {TIMEOUT} s to read") from None
        if done.returncode < 0:
            raise ArtifactError(f"reading it ended the reader with signal {-done.returncode}")
        if done.returncode:
            raise ArtifactError((done.stderr.strip().splitlines() or ["the reader gave no reason"])[-1][:300])
        with np.load(out, allow_pickle=False) as arrays:
            return dict(arrays)


# -- in the child


def main(path: str, out: str, limit: int, index: str, names: Sequence[str], seconds: int | None = None) -> None:
    """Copy datasets of a file to an npz, under limits."""
    import h5py

    # a damaged heap of strings can make the library loop for ever
    bound(limit + 2**31, 10 + limit // 2**26 if seconds is None else seconds)
    with h5py.File(path, "r", libver="latest", swmr=False) as file:
        np.savez(out, allow_pickle=False, **_collect(file, limit, index, names))


def bound(size: int, seconds: int | None) -> None:
    """Limit the memory of this process, and its time unless somebody else does."""
    try:
        import resource
    except ImportError:  # not on Windows, where only the parent's clock is left
        return
    limits = {resource.RLIMIT_AS: size, resource.RLIMIT_CORE: 0}
    for kind, most in (limits if seconds is None else limits | {resource.RLIMIT_CPU: seconds}).items():
        resource.setrlimit(kind, (most, most))


def _collect(file: Any, limit: int, index: str, names: Sequence[str]) -> dict[str, Any]:
    """The arrays of the npz; their sizes are added up before any of them is read."""
    items = {name: item for name in names if (item := _dataset(file, name)) is not None}
    listed = json.loads(_read(items[index], index).tobytes()) if index in items else []
    if not isinstance(listed, list) or len(listed) > MAX_ARRAYS:
        raise ValueError(f"{index} is no list, or too long")
    for number, entry in enumerate(listed):
        items[str(number)] = _dataset(file, entry["at"])
        if items[str(number)] is None:
            raise ValueError(f"it has no {entry['at'][:80]}")
    if sum(item.size * item.dtype.itemsize for item in items.values()) > limit:
        raise ValueError(f"its arrays take more than {limit} bytes")
    return {name: _read(item, name) for name, item in items.items()}


def _dataset(file: Any, path: str) -> Any:
    """A plain dataset inside the file, reached over hard links only: no other file, no made-up data, no filter."""
    import h5py

    parts = path.split("/")
    if len(parts) > 12:
        raise ValueError("it is nested too deep")
    item = file
    for part in parts:
        if not isinstance(item, h5py.Group) or not isinstance(item.get(part, getlink=True), h5py.HardLink):
            return None
        item = item[part]
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external:
        raise ValueError(f"{path[:80]} is no plain data")
    is_text = item.shape == () and h5py.check_string_dtype(item.dtype) is not None
    if item.compression not in (None, "gzip") or item.scaleoffset is not None:
        raise ValueError(f"{path[:80]} is packed in a way that is not read")
    if item.dtype.kind not in ("O" if is_text else "fiub"):
        raise ValueError(f"{path[:80]} is of a type that is not read")
    return item


def _read(item: Any, name: str) -> Any:
    """What a dataset holds; a text as its bytes."""
    value = item[()]
    if item.dtype.kind != "O":
        return value
    if len(value) > MAX_TEXT:
        raise ValueError(f"{name[:80]} is too long")
    return np.frombuffer(value, np.uint8)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5:])
    except Exception as error:  # one line for the parent, whatever the library said
        line = (str(error).strip().splitlines() or [""])[0]
        sys.exit(f"{type(error).__name__}: {line}"[:300])
