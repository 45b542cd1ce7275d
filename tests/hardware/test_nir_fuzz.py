"""NIR files that were damaged, or written by a liar: each is refused in one line, or loads; the reader may crash.

SPIKECAST_FUZZ sets how many mutations are tried of each kind (100 unless given).
"""

from __future__ import annotations

import collections
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import spikecast
from spikecast.errors import ArtifactError
from spikecast.hardware import export_nir, load_nir
from spikecast.hardware.nir import extended, file
from spikecast.storage import child

COUNT = int(os.environ.get("SPIKECAST_FUZZ", "100"))
LIMIT = 256 * 2**20
SECONDS = 20
# A light process that has the HDF5 library loaded, and forks one reader for each file: as `load_nir` does, but faster;
# a file of a few kilobytes is read in milliseconds, and one that makes the library loop need not do so for long.
WORKER = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("child", sys.argv[1])
child = importlib.util.module_from_spec(spec)
spec.loader.exec_module(child)
for line in sys.stdin:
    path, out, limit = line.rstrip("\\n").split("\\t")
    pid = os.fork()
    if pid == 0:
        try:
            child.main(path, out, int(limit), sys.argv[2], sys.argv[3:], seconds=2)
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Readers:
    """Reads files and counts what became of them."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-P", "-c", WORKER, child.__file__, file.TEXTS["tensors"], *file.TEXTS.values()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.path, self.out = folder / "net.nir", folder / "out.npz"
        self.loaded: list[dict[str, bytes]] = []
        self.count: collections.Counter[str] = collections.Counter()

    def attempt(self, content: bytes | None = None) -> str:
        """What becomes of a file: "loaded", "refused", or "crashed" where a limit ended the reader."""
        if content is not None:
            self.path.write_bytes(content)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{self.path}\t{self.out}\t{LIMIT}\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        outcome = "refused" if code > 0 else "crashed" if code < 0 else self._restored()
        self.count[outcome] += 1
        return outcome

    def _restored(self) -> str:
        with np.load(self.out, allow_pickle=False) as arrays:
            tree = dict(arrays)
        content = {key: bytes(value) for key, value in tree.items() if key.endswith("document") or key.isdigit()}
        if content in self.loaded:  # the damage is elsewhere in the file
            return "loaded"
        start = time.perf_counter()
        try:
            extended.restored(self.path, file.tree_of(tree), torch.device("cpu"))
            complaint = ""
        except ArtifactError as error:
            complaint = str(error)
        assert time.perf_counter() - start < SECONDS
        assert "\n" not in complaint
        assert len(complaint) < 1000
        if complaint:
            return "refused"
        self.loaded.append(content)
        return "loaded"


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    before, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    found = Readers(tmp_path)
    yield found
    found.process.communicate(timeout=60)
    print(dict(found.count))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 * 1024  # KiB
    # Children of tests before this one may have been larger.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(children, 3 * 2**20)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)).eval()
    snn = spikecast.convert(net, [torch.rand(4, 1, 6, 6)], spikecast.Config(num_steps=2, num_levels=2))
    path = tmp_path_factory.mktemp("nir") / "net.nir"
    export_nir(snn, path, "extended")
    return path.read_bytes()


def test_damage_is_survived(original: bytes, readers: Readers) -> None:
    """Flipped bits, cuts, insertions, holes and swapped blocks; what loads is what a checksum vouches for."""
    assert readers.attempt(original) == "loaded"
    for seed in range(COUNT):
        readers.attempt(damaged(original, seed))
    assert readers.count["refused"] > COUNT // 8
    assert len(readers.loaded) == 1  # one network, and no other


def damaged(original: bytes, seed: int) -> bytes:
    draw, content = random.Random(seed), bytearray(original)
    at, size = draw.randrange(len(content)), draw.choice([1, 4, 8, 64, 512])
    match draw.choice(["bits", "bits", "byte", "cut", "insert", "hole", "swap", "ones"]):
        case "bits":
            for _ in range(draw.choice([1, 1, 4, 32])):
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        case "byte":
            content[at] = draw.randrange(256)
        case "cut":
            del content[at:]
        case "insert":
            content[at:at] = draw.randbytes(size)
        case "hole":
            content[at : at + size] = bytes(len(content[at : at + size]))
        case "ones":
            content[at : at + size] = b"\xff" * len(content[at : at + size])
        case "swap":
            other = draw.randrange(len(content))
            block = bytes(content[other : other + size])
            content[at : at + len(block)] = block
    return bytes(content)


LIES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    1e300,
    "",
    "x",
    [],
    {},
    [[]],
    {"key": 3},
    "../../etc/passwd",
    [2**40],
    [0],
    [[1, 2]] * 9,
]


def lie(draw: random.Random, text: str) -> str:
    """A JSON text with one thing changed."""
    document = json.loads(text)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in keys:
            places.append((value, key))
            walk(value[key])

    walk(document)
    container, key = draw.choice(places)
    if draw.random() < 0.3 and isinstance(container, dict):
        del container[key]
    else:
        container[key] = draw.choice(LIES)
    return json.dumps(document)


def test_lies_are_refused_or_harmless(original: bytes, readers: Readers) -> None:
    """The HDF5 is sound, what it says is not."""
    for seed in range(COUNT):
        draw = random.Random(seed)
        readers.path.write_bytes(original)
        with h5py.File(readers.path, "a") as nir_file:
            meta = nir_file["node/metadata"]
            name = draw.choice(["document", "tensors", "tensors", "format", "profile", "data"])
            key = f"spikecast.{name}"
            if name == "data":
                tensor = meta[key][draw.choice(list(meta[key]))]
                tensor[...] = np.frombuffer(draw.randbytes(tensor.size), np.uint8)
            elif draw.random() < 0.2:
                del meta[key]
                if draw.random() < 0.5:
                    meta[key] = draw.choice([np.zeros(4), "0", "x" * 100_000, 3, np.zeros((0, 2))])
            else:
                text = meta[key][()].decode()
                del meta[key]
                meta[key] = lie(draw, text) if name in ("document", "tensors") else draw.choice(["1", "", "portable"])
        assert readers.attempt() == "refused"


def links_out(root: Any) -> None:
    del root["node/metadata/spikecast.document"]
    root["node/metadata/spikecast.document"] = h5py.ExternalLink("/etc/passwd", "/x")


def soft_loop(root: Any) -> None:
    del root["node/metadata/spikecast.tensors"]
    root["node/metadata/spikecast.tensors"] = h5py.SoftLink("/node/metadata/spikecast.tensors")


def emptied(root: Any) -> tuple[Any, str]:
    """The group of the tensors without one of them, and its name."""
    data = root["node/metadata/spikecast.data"]
    name = next(iter(data))
    del data[name]
    return data, name


def elsewhere(root: Any) -> None:
    data, name = emptied(root)
    data.create_dataset(name, (8,), np.uint8, external=[("/etc/passwd", 0, 8)])


def made_up(root: Any) -> None:
    data, name = emptied(root)
    data.create_virtual_dataset(name, h5py.VirtualLayout((8,), np.uint8))


def bomb(root: Any) -> None:
    """A tebibyte of zeros that takes no room in the file."""
    data, name = emptied(root)
    data.create_dataset(name, (2**40,), np.uint8, compression="gzip")


def many(root: Any) -> None:
    """One array under ten thousand names."""
    data, name = emptied(root)
    data.create_dataset(name, (2**20,), np.uint8, compression="gzip")
    entry = {"key": "x", "at": f"node/metadata/spikecast.data/{name}", "dtype": "float32", "shape": [1]}
    del root["node/metadata/spikecast.tensors"]
    root["node/metadata/spikecast.tensors"] = json.dumps([entry] * 10_000)


def deep(root: Any) -> None:
    entry = {"key": "x", "at": "node/metadata/" + "/".join("d" * 5000), "dtype": "float32", "shape": [1]}
    del root["node/metadata/spikecast.tensors"]
    root["node/metadata/spikecast.tensors"] = json.dumps([entry])


def other_version(root: Any) -> None:
    del root["node/metadata/spikecast.format"]
    root["node/metadata/spikecast.format"] = "999"


def portable_file(root: Any) -> None:
    del root["node/metadata/spikecast.profile"]
    root["node/metadata/spikecast.profile"] = "portable"


ATTACKS: list[tuple[Callable[[Any], None], str]] = [
    (links_out, "it has no document, or one that lies elsewhere"),
    (soft_loop, "it has no tensors, or one that lies elsewhere"),
    (elsewhere, "is no plain data"),
    (made_up, "is no plain data"),
    (bomb, "its arrays take more than"),
    (many, "its arrays take more than"),
    (deep, "it is nested too deep"),
    (other_version, "its format is b'999', this spikecast reads 3"),
    (portable_file, "only profile='extended' can be loaded"),
]


@pytest.mark.parametrize(("attack", "words"), ATTACKS, ids=[a.__name__ for a, _ in ATTACKS])
def test_attacks_are_refused(attack: Callable[[Any], None], words: str, original: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.nir"
    path.write_bytes(original)
    with h5py.File(path, "a") as nir_file:
        attack(nir_file)
    with pytest.raises(ArtifactError) as error:
        load_nir(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04" * 9, b"\x89HDF\r\n\x1a\n" + b"\x00" * 99])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.nir"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"net\.nir is (no HDF5 file|damaged)"):
        load_nir(path)


def test_no_file_and_no_room(original: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtifactError, match="there is no file"):
        load_nir(tmp_path / "none.nir")
    with pytest.raises(ArtifactError, match="folder or a device"):
        load_nir(tmp_path)
    (tmp_path / "net.nir").write_bytes(original)
    monkeypatch.setattr(file, "MAX_FILE", 1000)
    with pytest.raises(ArtifactError, match="the bound is 1000"):
        load_nir(tmp_path / "net.nir")
