"""NIR files: written whole or not at all, and read in a process of their own."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from spikecast.errors import ArtifactError
from spikecast.hardware.nir.builder import nir_package
from spikecast.storage.files import replacing

MAX_FILE = 8 * 2**30
TIMEOUT = 600
_CHILD = Path(__file__).with_name("_child.py")
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def write_graph(path: str | os.PathLike[str], graph: Any, *, drop_reset: bool) -> None:
    """Write a graph as HDF5; an older file of that name stays as it was if that fails.

    `drop_reset` leaves the IF's v_reset out: nir 1.0.4, which Sinabs is bound to, does not know it, and later
    versions take it for 0.
    """
    nir = nir_package()
    import h5py

    try:
        with replacing(path) as temporary:
            nir.write(temporary, graph)
            if drop_reset:
                with h5py.File(temporary, "a") as file:
                    for node in file["node/nodes"].values():
                        if node["type"][()] == b"IF":
                            del node["v_reset"]
    except OSError as error:
        raise ArtifactError(f"{path} is not written: {_line(error)}; nothing was changed") from None


def read_extended(path: str | os.PathLike[str]) -> dict[str, bytes | np.ndarray[Any, Any]]:
    """Texts (bytes) and tensors ("t0", "t1", …) of a NIR file that spikecast wrote with profile "extended"."""
    size = _checked_size(path)
    limit = max(256 * 2**20, 32 * size)
    nir_package()
    with tempfile.TemporaryDirectory(prefix="spikecast-") as folder:
        out = Path(folder) / "tree.npz"
        command = [sys.executable, "-P", str(_CHILD), os.fspath(path), str(out), str(limit)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise ArtifactError(f"{path} takes more than {TIMEOUT} s to read; it is damaged or not ours") from None
        if done.returncode:
            crashed = f"reading it ended the reader with signal {-done.returncode}"
            said = crashed if done.returncode < 0 else (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ArtifactError(
                f"{path} is damaged or no NIR file of profile 'extended' ({said[:300]}); export it again"
            )
        with np.load(out, allow_pickle=False) as tree:
            return {k: tree[k] if k[:1] == "t" and k[1:].isdigit() else tree[k].tobytes() for k in tree.files}


def _checked_size(path: str | os.PathLike[str]) -> int:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ArtifactError(f"{path} is a folder or a device; give a NIR file")
        with open(path, "rb") as file:
            size, signature = os.fstat(file.fileno()).st_size, file.read(8)
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {path}; check the name") from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be opened ({_line(error)}); check the name") from None
    if signature != _SIGNATURE:
        raise ArtifactError(f"{path} is no HDF5 file, which NIR files are; give one that export_nir wrote")
    if size > MAX_FILE:
        raise ArtifactError(f"{path} has {size} bytes, the bound is {MAX_FILE}; it is not read")
    return size


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
