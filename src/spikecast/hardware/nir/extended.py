"""Profile "extended": a graph that stock NIR tools read, and beside it all that restores the network to the bit."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spikecast.errors import ArtifactError, enough_to_read
from spikecast.hardware.circuit.parts import Layer
from spikecast.hardware.nir.builder import Built
from spikecast.hardware.nir.file import read_extended
from spikecast.hardware.nir.neurons import neuron_graph
from spikecast.storage import artifact
from spikecast.storage.codec import DTYPES
from spikecast.storage.files import blaming
from spikecast.storage.schema import Document, Dtype, Network, Record, Sizes, Strided, decoded, known, short
from spikecast.storage.tensors import TensorStore, is_whole

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork

FORMAT = 3


class Place(Record, frozen=True):
    """Where a tensor is: a node's own weight, or bytes beside the graph."""

    key: str
    at: str
    dtype: Dtype
    shape: Sizes


known(list[Place])


def neuron_with_settings(layer: Layer) -> Any:
    """The nested graph of a layer with its own thresholds, and in its metadata what stock primitives cannot say."""
    threshold = layer.threshold.detach().cpu().float().expand(layer.shape).contiguous().numpy()
    graph = neuron_graph(layer, threshold)
    settings = dataclasses.asdict(layer.neuron)  # differential: all signals weigh 1/t; burst: levels fire so often
    settings["interval"] = [str(settings.pop("lower")), str(settings.pop("upper"))]
    graph.metadata = {"spikecast.neuron": json.dumps({"site": layer.name, **settings})}
    return graph


def network_metadata(network: SpikingNetwork, built: Built) -> dict[str, Any]:
    """The network as `artifact` writes it; a weight that is a node's own is not written twice."""
    store = TensorStore()
    text = artifact.document_of(artifact.network_to_record(network, store), store)
    index: list[Any] = []
    data: dict[str, Any] = {}
    for number, (key, tensor) in enumerate(store.tensors.items()):
        node = built.placed.get(key.removeprefix("weights/"))
        if node is not None and tensor.dtype == torch.float32:
            at = f"node/nodes/{node}/weight"
        else:
            at = f"node/metadata/spikecast.data/t{number}"
            data[f"t{number}"] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().copy()
        kind = str(tensor.dtype).removeprefix("torch.")
        index.append({"key": key, "at": at, "dtype": kind, "shape": list(tensor.shape)})
    return {"spikecast.document": text, "spikecast.tensors": json.dumps(index), "spikecast.data": data}


def load_nir(path: str | os.PathLike[str], device: str | torch.device | None = None) -> SpikingNetwork:
    """The network in a NIR file of profile "extended"; it answers bit for bit what the exported one does.

    Args:
        path: A file that `export_nir` wrote; it may be a stranger's.
        device: Where its tensors go; the CPU unless given.

    Example:
        >>> _ = hardware.export_nir(snn, "net.nir", profile="extended")
        >>> torch.equal(hardware.load_nir("net.nir").run(x), snn.run(x))
        True
    """
    place = artifact.usable_device(device)
    with enough_to_read(path):
        return restored(path, read_extended(path), place)


def restored(path: str | os.PathLike[str], tree: Mapping[str, Any], place: torch.device) -> SpikingNetwork:
    """The network out of a file's texts and tensors, none of which is believed."""
    with blaming(f"{path} cannot be loaded", "export it again"):
        if tree.get("profile") != b"extended":
            raise ArtifactError("it is a NIR graph without its network; only profile='extended' can be loaded")
        if tree.get("format") != str(FORMAT).encode():
            raise ArtifactError(f"its format is {tree.get('format')!r}, this spikecast reads {FORMAT}")
        for name in ("document", "tensors"):
            if name not in tree:
                raise ArtifactError(f"it has no {name}, or one that lies elsewhere")
        text = _text(tree["document"])
        body = decoded(text, Document).body
        if not isinstance(body, Network):
            raise ArtifactError("its document is not that of one network")
        tensors = _tensors(decoded(_text(tree["tensors"]), list[Place]), tree, _layouts(body))
        if not is_whole(text, tensors):
            raise ArtifactError("its checksum does not match: it is damaged")
        return artifact.network_from_record(body, {n: t.to(place) for n, t in tensors.items()}, place)


def _layouts(body: Network) -> dict[str, tuple[int, ...]]:
    """The strides of the weights that do not lie in memory in the usual order, by key."""
    entries = (entry for plan in body.plans for entry in plan.program.tensors.values())
    return {entry.key: entry.strides for entry in entries if isinstance(entry, Strided)}


def _tensors(index: list[Place], tree: Mapping[str, Any], layouts: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Every tensor as `storage` stores it: without gaps, in the order of its strides."""
    tensors: dict[str, Tensor] = {}
    for number, entry in enumerate(index):
        key, dtype = entry.key, DTYPES[entry.dtype]
        if key in tensors:
            raise ArtifactError(f"the tensor {short(key)} is there twice")
        raw = np.ascontiguousarray(tree[str(number)])
        if entry.at.startswith("node/nodes/"):
            value = torch.from_numpy(raw.astype(np.float32, copy=False))
            strides = layouts.get(key)
            if strides is not None and len(strides) == value.dim():
                value = value.permute(sorted(range(value.dim()), key=lambda axis: -strides[axis])).contiguous()
        else:
            flat = torch.from_numpy(raw.reshape(-1).view(np.uint8).copy())
            if flat.numel() % dtype.itemsize:
                raise ArtifactError(f"the tensor {short(key)} has half a number")
            value = flat.view(dtype) if flat.numel() else torch.empty(0, dtype=dtype)  # nothing has no stride to view
        if value.numel() != int(np.prod(entry.shape, dtype=np.float64)):
            raise ArtifactError(f"the tensor {short(key)} has another size than its shape")
        tensors[key] = value.reshape(entry.shape).clone()  # NumPy's own lies at odd addresses, which cost the last bits
    return tensors


def _text(value: Any) -> str:
    try:
        return bytes(value).decode("utf8")
    except UnicodeDecodeError:
        raise ArtifactError("its document is no text") from None
