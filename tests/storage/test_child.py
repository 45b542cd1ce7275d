"""The child process that reads HDF5 files: what it hands over, what it leaves out, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from spikecast.errors import ArtifactError
from spikecast.storage.child import read_hdf5


def written(folder: Path) -> Path:
    path = folder / "x.h5"
    with h5py.File(path, "w") as file:
        file["group/numbers"] = np.arange(6, dtype="<u2").reshape(2, 3)
        file.create_dataset("packed", data=np.ones(100), compression="gzip")
        file["text"] = "é, a text"
        file["texts"] = ["a", "list"]
        file["index"] = json.dumps([{"at": "packed"}, {"at": "group/numbers"}, {"at": "packed"}])
        file["soft"] = h5py.SoftLink("/packed")
        file["elsewhere"] = h5py.ExternalLink("/etc/passwd", "/x")
        file["complex"] = np.zeros(3, complex)
        file["lost"] = json.dumps([{"at": "nothing"}])
    return path


def test_names_and_an_index(tmp_path: Path) -> None:
    names = ["group/numbers", "text", "index", "none", "soft", "elsewhere", "group/none"]
    arrays = read_hdf5(written(tmp_path), names, 2000, "index")
    assert set(arrays) == {"group/numbers", "text", "index", "0", "1", "2"}  # over hard links only
    assert arrays["group/numbers"].dtype == np.dtype("<u2")
    assert arrays["text"].tobytes().decode() == "é, a text"
    assert arrays["1"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert all(np.array_equal(arrays[name], np.ones(100)) for name in ("0", "2"))


@pytest.mark.parametrize(
    ("names", "index", "complaint"),
    [
        (["index"], "index", "its arrays take more than 1000 bytes"),  # one array of 800 bytes, named twice
        (["texts"], "", "texts is of a type that is not read"),
        (["complex"], "", "complex is of a type that is not read"),
        (["group"], "", "group is no plain data"),
        (["lost"], "lost", "it has no nothing"),
        (["text"], "text", "JSONDecodeError"),
        (["/".join("abcdefghijklmn")], "", "it is nested too deep"),
    ],
)
def test_refusals(names: list[str], index: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=complaint) as caught:
        read_hdf5(written(tmp_path), names, 1000, index)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_hdf5(tmp_path: Path) -> None:
    (tmp_path / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99))
    with pytest.raises(ArtifactError, match=r"^OSError: "):
        read_hdf5(tmp_path / "x.h5", ["t"], 1000)
