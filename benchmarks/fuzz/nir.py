"""NIR files by liars: damaged ones, and sound HDF5 around a document that was changed and sealed again."""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import torch
from torch import Tensor

from benchmarks.fuzz import artifacts, hdf5
from benchmarks.fuzz.edits import LIES, bases, damaged, edited
from spikecast.hardware import load_nir
from spikecast.hardware.nir.extended import FORMAT
from spikecast.storage.tensors import digest, sealed


def warm_up() -> None:
    hdf5.use()
    artifacts.warm_up()
    _sound()


@cache
def _sound() -> bytes:
    document, tensors = bases()[0]
    return _written(random.Random(0), document, tensors, lies=False)


def content(seed: int) -> bytes:
    """The file of a case."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        return damaged(draw, _sound())
    document, tensors = edited(draw)
    return _written(draw, document, tensors, lies=draw.random() < 0.5)


def _written(draw: random.Random, document: Any, tensors: dict[str, Tensor], *, lies: bool) -> bytes:
    """A document and tensors as HDF5; with `lies`, one thing about the tensors, or one dataset, is another."""
    index = [
        {"key": key, "at": f"node/metadata/spikecast.data/t{number}", "dtype": str(value.dtype)[6:],
         "shape": list(value.shape)}
        for number, (key, value) in enumerate(tensors.items())
    ]  # fmt: skip
    if lies:
        index[draw.randrange(len(index))][draw.choice(["key", "at", "dtype", "shape"])] = draw.choice(LIES)
    text = sealed(json.dumps(document), {name: digest(value) for name, value in tensors.items()})
    texts = {"document": text, "tensors": json.dumps(index), "format": str(FORMAT), "profile": "extended"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.nir"
        with h5py.File(path, "w") as file:
            file["node/type"] = "NIRGraph"
            for name, value in texts.items():
                file[f"node/metadata/spikecast.{name}"] = value
            for number, tensor in enumerate(tensors.values()):
                flat: Any = tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else []
                file[f"node/metadata/spikecast.data/t{number}"] = flat
            if lies and draw.random() < 0.3:
                name = f"node/metadata/spikecast.{draw.choice(list(texts))}"
                del file[name]
                file[name] = draw.choice([3, "x" * 100_000, "0", h5py.SoftLink(f"/{name}")])
        return path.read_bytes()


def attempt(path: Path) -> bool:
    """Load and run a file; whether it was refused."""
    return artifacts.attempt(path, load_nir)
