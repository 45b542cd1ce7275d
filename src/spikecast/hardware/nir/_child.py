"""Run as a script, alone: reads what `load_nir` needs out of a NIR file, under limits, and writes it as an npz.

The HDF5 library was not made for files from strangers: a damaged one can crash it, make it loop for ever, or ask for
any amount of memory. So it reads in this process, which may die; nothing of spikecast is imported here.
"""

import json
import resource
import sys

import h5py
import numpy as np

MAX_TENSORS = 100_000
MAX_DOCUMENT = 32 * 2**20
PREFIX = "node/metadata/spikecast."


def main(path: str, out: str, limit: int, seconds: int | None = None) -> None:
    """Copy the texts and tensors of a file to an npz; sizes are checked before anything is read."""
    resource.setrlimit(resource.RLIMIT_AS, (limit + 2**31, limit + 2**31))
    # a damaged heap of strings can make the library loop for ever
    seconds = 10 + limit // 2**26 if seconds is None else seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with h5py.File(path, "r", libver="latest", swmr=False) as file:
        np.savez(out, allow_pickle=False, **collect(file, limit))


def collect(file: h5py.File, limit: int) -> dict[str, np.ndarray]:
    """The arrays of the npz: the texts by name, and the tensors by number as the index lists them."""
    found = {"nir_version": text(file, "version"), "type": text(file, "node/type")}
    if found["type"].tobytes() != b"NIRGraph":
        raise ValueError("its root is no NIRGraph")
    for name in ("profile", "format", "document", "tensors"):
        if name in ("profile", "format") or found["profile"].tobytes() == b"extended":
            found[name] = text(file, PREFIX + name)
    index = json.loads(found.get("tensors", np.frombuffer(b"[]", np.uint8)).tobytes())
    if not isinstance(index, list) or len(index) > MAX_TENSORS:
        raise ValueError("its index of tensors is no list, or too long")
    used = 0
    for number, entry in enumerate(index):
        array = dataset(file, f"node/{entry['at']}")
        used += array.size * array.dtype.itemsize
        if used > limit:
            raise ValueError(f"its tensors take more than {limit} bytes")
        found[f"t{number}"] = array[()]
    return found


def dataset(file: h5py.File, path: str) -> h5py.Dataset:
    """A plain dataset inside the file, reached over hard links only: no other file, no made-up data, no filter."""
    parts = path.split("/")
    if len(parts) > 12:
        raise ValueError("it is nested too deep")
    item = file
    for part in parts:
        if not isinstance(item, h5py.Group) or not isinstance(item.get(part, getlink=True), h5py.HardLink):
            raise ValueError(f"it has no {path[:80]}")
        item = item[part]
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external:
        raise ValueError(f"{path[:80]} is no plain data")
    if item.compression not in (None, "gzip") or item.scaleoffset is not None or item.dtype.kind not in "fiubO":
        raise ValueError(f"{path[:80]} is of a kind that is not read")
    return item


def text(file: h5py.File, path: str) -> np.ndarray:
    """A string as bytes."""
    item = dataset(file, path)
    if item.shape != () or not h5py.check_string_dtype(item.dtype):
        raise ValueError(f"{path[:80]} is no text")
    value = item[()]
    if len(value) > MAX_DOCUMENT:
        raise ValueError(f"{path[:80]} is too long")
    return np.frombuffer(value, np.uint8)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    except Exception as error:  # one line for the parent, whatever the library said
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        sys.exit(f"{type(error).__name__}: {line}"[:300])
