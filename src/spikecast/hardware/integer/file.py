"""The whole weights of a network as a file that any reader of npz takes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from spikecast.hardware.endings import check_ending
from spikecast.hardware.integer.receiver import LayerWeights
from spikecast.storage.files import replacing

FORMAT, VERSION = "spikecast-integers", 1


def save_weights(layers: Mapping[str, LayerWeights], settings: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write an npz, whole or not at all: arrays of int64 named by layer, and a header of JSON as bytes."""
    check_ending(path, ".npz")
    arrays, described = {}, []
    for name, layer in layers.items():
        arrays[f"{name}/fraction"] = layer.fraction
        if layer.bias is not None:
            arrays[f"{name}/bias"] = layer.bias
        for i, synapse in enumerate(layer.synapses):
            for part in ("weight", "exponent", "shift"):
                arrays[f"{name}/{i}/{part}"] = getattr(synapse, part)
        ways = [{"source": s.source, "num_levels": s.num_levels, "ops": s.ops, "op": s.op} for s in layer.synapses]
        described.append({"name": name, "synapses": ways})
    header = json.dumps({"format": FORMAT, "version": VERSION, **settings, "layers": described})
    whole = {name: array.cpu().numpy() for name, array in arrays.items()}
    with replacing(path) as file:
        np.savez(file, **{"header": np.frombuffer(header.encode(), np.uint8), **whole})  # type: ignore[arg-type]
