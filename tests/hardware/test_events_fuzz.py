"""Files of events that were damaged, or written by a liar, in thousands of ways: refused in one line, or read as is.

The files are those of `make fuzz`. Here also what is read must keep every rule. SPIKECAST_FUZZ=10000 sets how many of
each kind; the default is small.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzz.edits import damaged
from benchmarks.fuzz.events import lying, sample
from spikecast.errors import ArtifactError
from spikecast.hardware.events.files import load_events
from spikecast.hardware.events.stream import COLUMNS, Events, occurrences

COUNT = int(os.environ.get("SPIKECAST_FUZZ", "300"))
MEBIBYTE = 2**20


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
        found = attempt(path, damaged(draw, original), seed)
        refused += found is None
        assert found is None or same(found), seed
    assert refused > (0.9 if suffix == "npz" else 0.5) * count


def test_liars(tmp_path: Path) -> None:
    """A sound zip whose header, columns or names were changed on purpose: what is read then keeps every rule."""
    draw, path = random.Random(1), tmp_path / "x.npz"
    for seed in range(COUNT):
        found = attempt(path, lying(draw), seed)
        if found is not None:
            _check_rules(found, seed)


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
