"""NIR files: written whole or not at all, and read in a process of their own."""

from __future__ import annotations

import io
import os
from typing import Any

from spikecast.errors import ArtifactError
from spikecast.hardware.nir.builder import nir_package
from spikecast.storage.child import HDF5_SIGNATURE, read_hdf5
from spikecast.storage.files import file_start, replacing

MAX_FILE = 8 * 2**30
TEXTS = {  # by name, where they lie in the file
    "type": "node/type",
    **{name: f"node/metadata/spikecast.{name}" for name in ("profile", "format", "document", "tensors")},
}


def write_graph(path: str | os.PathLike[str], graph: Any, *, drop_reset: bool) -> None:
    """Write a graph as HDF5; an older file of that name stays as it was if that fails.

    `drop_reset` leaves the IF's v_reset out: nir 1.0.4, which Sinabs is bound to, does not know it, and later
    versions take it for 0.
    """
    nir = nir_package()
    import h5py

    made = io.BytesIO()  # the HDF5 library ends the process where a disk is full
    nir.write(made, graph)
    if drop_reset:
        with h5py.File(made, "a") as file:
            for node in file["node/nodes"].values():
                if node["type"][()] == b"IF":
                    del node["v_reset"]
    with replacing(path) as out:
        out.write(made.getbuffer())


def read_extended(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Texts (bytes) and tensors ("0", "1", …) of a NIR file that spikecast wrote with profile "extended"."""
    size, start = file_start(path, "a NIR file")
    if start != HDF5_SIGNATURE:
        raise ArtifactError(f"{path} is no HDF5 file, which NIR files are; give one that export_nir wrote")
    if size > MAX_FILE:
        raise ArtifactError(f"{path} has {size} bytes, the bound is {MAX_FILE}; it is not read")
    nir_package()
    try:
        return tree_of(read_hdf5(path, list(TEXTS.values()), max(256 * 2**20, 32 * size), TEXTS["tensors"]))
    except ArtifactError as error:
        said = f"{path} is damaged or no NIR file of profile 'extended' ({error}); export it again"
        raise ArtifactError(said) from None


def tree_of(arrays: dict[str, Any]) -> dict[str, Any]:
    """What `read_hdf5` answers, with the texts by their own names and as bytes."""
    tree = {name: arrays.pop(place).tobytes() for name, place in TEXTS.items() if place in arrays}
    if tree.get("type") != b"NIRGraph":
        raise ArtifactError("its root is no NIRGraph")
    return {**tree, **arrays}
