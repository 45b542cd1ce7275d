"""Files of events by liars: sound ones that were damaged, and such as declare what they do not hold."""

from __future__ import annotations

import io
import json
import random
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fuzz import hdf5, values
from benchmarks.fuzz.edits import LIES, damaged
from spikecast.errors import ArtifactError
from spikecast.hardware.events.files import arrays_of, load_events
from spikecast.hardware.events.stream import COLUMNS, Events, Sender

LIMIT = 64 * 2**20
PACKINGS = [zipfile.ZIP_STORED] * 5 + [zipfile.ZIP_DEFLATED] * 10 + [zipfile.ZIP_BZIP2]  # the last is slow, and refused


@cache
def sample() -> Events:
    """Some events of two layers and two samples, with bursts."""
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


@cache
def sound() -> list[bytes]:
    """The same events as npz and as HDF5."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("x.npz", "x.h5"):
            path = Path(folder) / name
            sample().save(path)
            found.append(path.read_bytes())
    return found


def warm_up() -> None:
    hdf5.use()
    sound()


def content(seed: int) -> bytes:
    """The file of a case."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        return damaged(draw, sound()[draw.random() < 0.1])
    return lying(draw)


def lying(draw: random.Random) -> bytes:
    """A sound zip whose header, columns or names were changed on purpose."""
    arrays = {name: array.copy() for name, array in arrays_of(sample()).items()}
    header = json.loads(arrays["header"].tobytes())
    for _ in range(draw.choice([1, 1, 2, 4])):
        _lie(draw, header, arrays)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return _packed(draw, arrays)


def attempt(path: Path) -> bool:
    """Read a file, and look at all of it; whether it was refused."""
    try:
        events = load_events(path, max_bytes=LIMIT)
    except ArtifactError:
        return True
    for index, sender in enumerate(events.senders):
        mine = events.columns["layer"] == index
        flat = sender.flat(*(events.columns[name][mine] for name in ("channel", "y", "x")))
        sender.values(flat, events.columns["level"][mine])
    return False


def _lie(draw: random.Random, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    wrong = draw.choice([*LIES, *values.INTS, *values.FLOATS])
    name = draw.choice(list(arrays))
    match draw.choice(["header", "layer", "layer", "number", "number", "form", "name"]):
        case "header":
            header[draw.choice([*header, "more"])] = wrong
        case "layer" if isinstance(header.get("layers"), list) and header["layers"]:
            layer = draw.choice(header["layers"])
            if isinstance(layer, dict):
                layer[draw.choice(["name", "shape", "axis", "num_levels", "burst", "threshold", "x"])] = draw.choice(
                    [wrong, [draw.choice(values.INTS)], [3, draw.choice(values.INTS), 4]]
                )
        case "number" if arrays[name].ndim and len(arrays[name]):
            kind = arrays[name].dtype
            info = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
            arrays[name] = arrays[name].copy()
            arrays[name][draw.randrange(len(arrays[name]))] = draw.choice([info.min, info.max, 0, 1])
        case "form":
            flat = arrays[name].reshape(-1)
            arrays[name] = draw.choice([flat[:-1], flat.astype("<f4"), flat.reshape(1, -1), np.zeros(0), np.zeros(())])
        case "name":
            arrays[draw.choice(["../../x", "a" * 5000, "t", "é", "level ", "x.npy"])] = np.ones(2)


def _packed(draw: random.Random, arrays: dict[str, Any]) -> bytes:
    """As a zip; at times one whose arrays declare other sizes than they have, or go on with zeros."""
    out, wild = io.BytesIO(), draw.random() < 0.2
    with zipfile.ZipFile(out, "w", draw.choice(PACKINGS), compresslevel=1) as file:
        for name, array in arrays.items():
            plain = io.BytesIO()
            np.lib.format.write_array(plain, np.ascontiguousarray(array), allow_pickle=False)
            made = plain.getvalue()
            if wild and draw.random() < 0.3:
                made = made.replace(b"(%d,)" % len(np.atleast_1d(array)), b"(%d,)" % draw.choice([10**9, 10**18]))
            if wild and draw.random() < 0.2:
                made += bytes(draw.choice([1, 2**16, 2**21]))
            file.writestr(f"{name}.npy", made)
    return damaged(draw, out.getvalue()) if draw.random() < 0.05 else out.getvalue()
