"""Files of events that were damaged, or written by a liar, in thousands of ways: refused in one line, or read as is.

SPIKECAST_FUZZ=10000 sets how many of each kind; the default is small.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spikecast.errors import ArtifactError
from spikecast.hardware.events.files import arrays_of, load_events
from spikecast.hardware.events.stream import COLUMNS, Events, Sender, occurrences
from tests.strategies import NASTY

COUNT = int(os.environ.get("SPIKECAST_FUZZ", "300"))
MEBIBYTE = 2**20


def sample() -> Events:
    """Some events, made by hand: this test needs no network."""
    draw = np.random.default_rng(0)
    senders = (
        Sender("conv", (3, 5, 4), 0, 4, 3, np.array([0.5, 1.0, 2.0]).reshape(3, 1, 1)),
        Sender("tokens", (6, 8), 1, 2, 1, np.ones((1, 1))),
    )
    parts: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for t in (1, 2, 3):
        for layer, sender in enumerate(senders):
            for b in (0, 1):
                number = draw.integers(0, sender.burst + 1, int(np.prod(sender.shape)))  # of pulses of each neuron
                flat = np.concatenate([np.flatnonzero(number > pulse) for pulse in range(sender.burst)])
                level = draw.integers(1, sender.num_levels + 1, len(flat)) * draw.choice([-1, 1], len(flat))
                address = dict(zip(("channel", "y", "x"), sender.address(flat), strict=True))
                found = {"t": t, "layer": layer, "sample": b, "level": level, **address}
                for name in COLUMNS:
                    parts[name].append(np.broadcast_to(found[name], flat.shape))
    columns = {name: np.concatenate(parts[name]).astype(kind) for name, kind in COLUMNS.items()}
    return Events(columns, senders, "differential", 3, 2)


EVENTS = sample()


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * MEBIBYTE // 1024


def attempt(path: Path, content: bytes, seed: object) -> Events | None:
    """What a file holds; where it is refused, the complaint must be ours, and one line."""
    path.write_bytes(content)
    start = time.process_time()
    try:
        return load_events(path, max_bytes=64 * MEBIBYTE)
    except ArtifactError as error:
        complaint = str(error)
        assert str(path) in complaint, seed
        assert "\n" not in complaint, seed
        assert len(complaint) < 1000, seed
        return None
    except BaseException as error:
        raise AssertionError(f"mutation {seed}: {type(error).__name__}: {error}") from error
    finally:
        assert time.process_time() - start < 5, seed


def written(path: Path) -> bytes:
    EVENTS.save(path)
    return path.read_bytes()


def same(found: Events) -> bool:
    return all(np.array_equal(found.columns[n], EVENTS.columns[n]) for n in COLUMNS)


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_damage(tmp_path: Path, suffix: str) -> None:
    """Bits flipped, bytes cut out, repeated or put in: it is refused, or nothing that counts was touched."""
    draw, path = random.Random(0), tmp_path / f"x.{suffix}"
    original = written(path)
    assert attempt(path, original, "none") is not None
    refused = 0
    count = COUNT if suffix == "npz" else COUNT // 10  # each HDF5 file is read in a process of its own
    for seed in range(count):
        content = bytearray(original)
        for _ in range(draw.choice([1, 1, 2, 8])):
            at = draw.randrange(len(content))
            kind = draw.randrange(5)
            if kind == 0:
                content[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del content[at : at + draw.choice([1, 10, 1000])]
            elif kind == 2:
                content[at:at] = draw.randbytes(draw.choice([1, 10, 100]))
            elif kind == 3:
                content[at : at + 4] = draw.choice([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f"])
            else:
                del content[at:]
            content = content or bytearray(b"P")
        found = attempt(path, bytes(content), seed)
        refused += found is None
        assert found is None or same(found), seed
    assert refused > (0.9 if suffix == "npz" else 0.5) * count


def test_liars(tmp_path: Path) -> None:
    """A sound zip whose header, columns or names were changed on purpose: what is read then keeps every rule."""
    draw, path = random.Random(1), tmp_path / "x.npz"
    for seed in range(COUNT):
        arrays = {name: array.copy() for name, array in arrays_of(EVENTS).items()}
        header = json.loads(arrays["header"].tobytes())
        for _ in range(draw.choice([1, 1, 2])):
            _lie(draw, header, arrays)
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        found = attempt(path, _packed(draw, arrays), seed)
        if found is not None:
            _check_rules(found, seed)


def _lie(draw: random.Random, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    kind = draw.randrange(5)
    if kind == 0:
        header[draw.choice([*header, "more"])] = draw.choice(NASTY)
    elif kind == 1:
        layer = draw.choice(header["layers"]) if isinstance(header.get("layers"), list) and header["layers"] else {}
        if isinstance(layer, dict):
            layer[draw.choice(["name", "shape", "axis", "num_levels", "burst", "threshold", "x"])] = draw.choice(NASTY)
    elif kind == 2:
        name = draw.choice([n for n in arrays if n != "header"])
        if arrays[name].ndim and len(arrays[name]):
            info = np.iinfo(arrays[name].dtype) if arrays[name].dtype.kind in "iu" else np.finfo(arrays[name].dtype)
            arrays[name][draw.randrange(len(arrays[name]))] = draw.choice([info.min, info.max, 0, 1])
    elif kind == 3:
        name = draw.choice(list(arrays))
        flat = arrays[name].reshape(-1)
        arrays[name] = draw.choice([flat[:-1], flat.astype("<f4"), flat.reshape(1, -1), np.zeros(0), np.zeros(())])
    else:
        arrays[draw.choice(["../../x", "a" * 5000, "t", "é", "level ", "x.npy"])] = np.ones(2)


def _packed(draw: random.Random, arrays: dict[str, Any]) -> bytes:
    """As a zip; at times one that declares other sizes than it holds, or a preamble that does."""
    out = io.BytesIO()
    huge = draw.random() < 0.2
    with zipfile.ZipFile(out, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])) as file:
        for name, array in arrays.items():
            plain = io.BytesIO()
            np.lib.format.write_array(plain, np.ascontiguousarray(array), allow_pickle=False)
            content = plain.getvalue()
            if huge and draw.random() < 0.3:
                content = content.replace(b"(%d,)" % len(np.atleast_1d(array)), b"(%d,)" % draw.choice([10**9, 10**18]))
            if huge and draw.random() < 0.2:
                content += b"\0" * draw.choice([1, 8 * MEBIBYTE])
            file.writestr(f"{name}.npy", content)
    return out.getvalue()


def _check_rules(found: Events, seed: object) -> None:
    c = found.columns
    assert all(len(c[n]) == len(found) and c[n].dtype.str == kind for n, kind in COLUMNS.items()), seed
    if len(found):
        assert c["t"].min() >= 1
        assert c["t"].max() <= found.num_steps
        assert c["sample"].max() < found.samples
    for i, sender in enumerate(found.senders):
        mine = c["layer"] == i
        flat = sender.flat(c["channel"][mine], c["y"][mine], c["x"][mine])
        assert occurrences(flat, c["sample"][mine], c["t"][mine]).max(initial=0) < sender.burst, seed
        assert not len(flat) or 0 <= flat.min() <= flat.max() < np.prod(sender.shape), seed
        assert np.isfinite(sender.values(flat, c["level"][mine])).all() if len(flat) else True, seed
