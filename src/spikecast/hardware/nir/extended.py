"""Profile "extended": a graph that stock NIR tools read, and beside it all that restores the network to the bit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spikecast._version import __version__
from spikecast.errors import ArtifactError
from spikecast.hardware.circuit.parts import Layer
from spikecast.hardware.nir.builder import Built
from spikecast.hardware.nir.file import read_extended
from spikecast.hardware.nir.neurons import neuron_graph
from spikecast.storage import artifact
from spikecast.storage.codec import DTYPES, Json, fields, items, short, typed, whole

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork

FORMAT = 1


def neuron_with_settings(layer: Layer) -> Any:
    """The nested graph of a layer with its own thresholds, and in its metadata what stock primitives cannot say."""
    threshold = layer.threshold.detach().cpu().float().expand(layer.shape).contiguous().numpy()
    graph = neuron_graph(layer, threshold)
    neuron = layer.neuron
    settings = {
        "site": layer.name,
        "coding": neuron.coding,  # differential: what arrives and what is sent weighs 1/t
        "num_levels": neuron.num_levels,
        "signed": neuron.signed,
        "firing_boundary": neuron.firing_boundary,
        "initial_potential": neuron.initial_potential,
        "interval": [str(neuron.lower), str(neuron.upper)],
    }
    graph.metadata = {"spikecast.neuron": json.dumps(settings)}
    return graph


def network_metadata(network: SpikingNetwork, built: Built) -> dict[str, Any]:
    """The network as `artifact` writes it; a weight that is a node's own is not written twice."""
    store = artifact.TensorStore()
    body = artifact.network_to_document(network, store)
    versions = {"spikecast": __version__, "torch": torch.__version__}
    text = artifact._written({"format": artifact.FORMAT, "kind": "network", "versions": versions, "network": body})
    index: list[Json] = []
    data: dict[str, Any] = {}
    for number, (key, tensor) in enumerate(store.tensors.items()):
        place = built.placed.get(key.removeprefix("weights/"))
        if place is not None and tensor.dtype == torch.float32:
            at = f"node/nodes/{place[0]}/{place[1]}"
        else:
            at, data[f"t{number}"] = f"node/metadata/spikecast.data/t{number}", _bytes(tensor)
        kind = str(tensor.dtype).removeprefix("torch.")
        index.append({"key": key, "at": at, "dtype": kind, "shape": list(tensor.shape)})
    return {
        "spikecast.document": artifact.sealed(text, store.digests),
        "spikecast.tensors": json.dumps(index),
        "spikecast.data": data,
    }


def load(path: str | os.PathLike[str], device: str | torch.device | None = None) -> SpikingNetwork:
    """The network in a file of profile "extended"; its numbers are those of the network that was exported."""
    place = artifact._usable(device)
    return restored(path, read_extended(path), place)


def restored(path: str | os.PathLike[str], tree: Mapping[str, Any], place: torch.device) -> SpikingNetwork:
    """The network out of a file's texts and tensors, none of which is believed."""
    with artifact._blaming(f"{path} cannot be loaded", "export it again"):
        if tree.get("profile") != b"extended":
            raise ArtifactError("it is a NIR graph without its network; only profile='extended' can be loaded")
        if tree.get("format") != str(FORMAT).encode():
            raise ArtifactError(f"its format is {tree.get('format')!r}, this spikecast reads {FORMAT}")
        for name in ("document", "tensors"):
            if name not in tree:
                raise ArtifactError(f"it has no {name}, or one that lies elsewhere")
        document = typed(artifact._parsed(_text(tree["document"])), dict, "its document")
        *_, body = fields(document, "its document", "sha256", "format", "kind", "versions", "network")
        tensors = _tensors(artifact._parsed(_text(tree["tensors"])), tree, _layouts(body))
        digests = {name: artifact._digest(tensor) for name, tensor in tensors.items()}
        sealed = _text(tree["document"])
        if sealed != artifact.sealed("{" + sealed.partition(",")[2], digests):
            raise ArtifactError("its checksum does not match: it is damaged")
        return artifact.network_from_document(body, {n: t.to(place) for n, t in tensors.items()}, place)


def _layouts(body: Any) -> dict[str, list[int]]:
    """The strides of the weights that do not lie in memory in the usual order, by key."""
    found: dict[str, list[int]] = {}
    for plan in typed(typed(body, dict, "a network").get("plans"), list, "plans"):
        program = typed(typed(plan, dict, "a plan").get("program"), dict, "a program")
        for entry in typed(program.get("tensors"), dict, "tensors").values():
            if isinstance(entry, dict):
                key, _, strides = fields(entry, "a tensor", "key", "shape", "strides")
                found[typed(key, str, "a tensor")] = items(strides, "the strides of a tensor", int)
    return found


def _tensors(index: Any, tree: Mapping[str, Any], layouts: Mapping[str, list[int]]) -> dict[str, Tensor]:
    """Every tensor as `artifact` stores it: without gaps, in the order of its strides."""
    found: dict[str, Tensor] = {}
    for number, entry in enumerate(typed(index, list, "its index of tensors")):
        key, at, kind, shape = fields(entry, "a tensor", "key", "at", "dtype", "shape")
        if typed(kind, str, "a dtype") not in DTYPES or typed(key, str, "a tensor") in found:
            raise ArtifactError(f"a tensor is of the type {short(kind)}, or is there twice")
        sizes = [whole(size, "a size") for size in items(shape, "a shape", int)]
        raw = np.ascontiguousarray(tree[str(number)])
        if typed(at, str, "a place").startswith("node/nodes/"):
            value = torch.from_numpy(raw.astype(np.float32, copy=False))
            strides = layouts.get(key)
            if strides is not None and len(strides) == value.dim():
                value = value.permute(sorted(range(value.dim()), key=lambda axis: -strides[axis])).contiguous()
        else:
            flat = torch.from_numpy(raw.reshape(-1).view(np.uint8).copy())
            if flat.numel() % DTYPES[kind].itemsize:
                raise ArtifactError(f"the tensor {short(key)} has half a number")
            value = flat.view(DTYPES[kind])
        if value.numel() != int(np.prod(sizes, dtype=np.float64)):
            raise ArtifactError(f"the tensor {short(key)} has another size than its shape")
        found[key] = value.reshape(sizes)
    return found


def _bytes(tensor: Tensor) -> Any:
    """A tensor's own bytes; empty ones keep one byte, since an empty HDF5 dataset cannot be compressed."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().copy()


def _text(value: Any) -> str:
    try:
        return bytes(value).decode("utf8")
    except UnicodeDecodeError:
        raise ArtifactError("its document is no text") from None
