"""A case as the file of a saved network, with a checksum that is right and metas as a careful liar would find them."""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from benchmarks.fuzz import values
from spikecast.config import Config
from spikecast.graph.program import Node
from spikecast.storage import codec, schema
from spikecast.storage.ops import check_call, schema_of
from spikecast.storage.tensors import digest, sealed

INPUT = (2, 3, 4, 4)
_CPU, _META = torch.device("cpu"), torch.device("meta")
_LEAF = {"kind": "leaf"}
_CALL = {"kind": "tuple", "items": [{"kind": "tuple", "items": [_LEAF]}, {"kind": "dict", "items": []}]}
_NEURON = {"threshold": "theta", "coding": "differential", "num_levels": 4, "burst": 1, "signed": True}
_NEURON |= {"firing_boundary": 0.75, "initial_potential": 0.0, "leak": 0.0}


def signed(document: Any, tensors: dict[str, Tensor]) -> bytes:
    """A file whose checksum is right."""
    digests = {name: digest(value) for name, value in tensors.items()}
    return to_bytes(tensors, {"spikecast": sealed(json.dumps(document), digests)})


def file_of(case: dict[str, Any]) -> bytes:
    """The file of a graph: its tensors, its ops, and at times neurons behind them."""
    stored = {name: _realised(spec) for name, spec in case["tensors"].items()}
    seen = {name: _seen(stored[name], spec) for name, spec in case["tensors"].items()}
    entries = {
        name: {"key": name, "shape": spec["view"], "strides": spec["strides"]} if spec.get("strides") else name
        for name, spec in case["tensors"].items()
    }
    nodes = _nodes(case, {**seen, "x": torch.empty(INPUT, device=_META)})
    sites, neurons = {}, {}
    if case["neuron"] and isinstance(meta := nodes[-1]["meta"], dict):
        name = nodes[-1]["name"]
        neuron = {"op": "spikecast.neuron", "args": [["ref", name]], "kwargs": {"site": "s"}}
        nodes.append({**neuron, "name": "s", "scope": "", "meta": meta})
        sites["s"] = {"source": name, "lower": 0.0, "upper": ["float", "inf"], "axis": None, "meta": meta}
        neurons["s"], stored["theta"] = _NEURON, torch.full([1] * len(meta["shape"]), 0.5)
    return signed(_document(nodes, entries, sites, neurons), stored)


def _realised(spec: dict[str, Any]) -> Tensor:
    """The numbers of a tensor, as the file stores them."""
    shape, fill = spec["shape"], spec["fill"]
    if fill == "randn":
        made = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    elif fill == "index":
        made = torch.arange(math.prod(shape)).reshape(shape) % 3
    elif isinstance(fill, list):
        made = torch.tensor(fill).reshape(shape)
    else:
        is_whole = isinstance(fill, int)
        made = torch.full(shape, fill if is_whole else float(fill), dtype=torch.int64 if is_whole else torch.float64)
    return made.to(codec.DTYPES[spec["dtype"]]).contiguous()


def _seen(stored: Tensor, spec: dict[str, Any]) -> Tensor:
    """The tensor as the ops meet it, without its numbers."""
    if spec.get("strides") and math.prod(spec["view"]) < 2**60:  # of more torch knows no number
        return torch.empty_strided(spec["view"], spec["strides"], dtype=stored.dtype, device=_META)
    return stored.to(_META)


def _nodes(case: dict[str, Any], seen: dict[str, Any]) -> list[dict[str, Any]]:
    nodes = []
    for number, given in enumerate(case["nodes"]):
        name = f"n{number}"
        seen[name] = _answer(given, seen)
        meta = None if _is_size(given["op"]) else _meta(seen[name])
        if case["lie"] and meta is not None:
            meta = {"shape": [2, 3], "dtype": "float32", "batch_axis": 0}
        nodes.append({**given, "name": name, "scope": "", "meta": meta})
    return nodes


def _is_size(op: str) -> bool:
    return op.startswith("size.") or op == "aten.sym_size.int"


def _answer(given: dict[str, Any], seen: dict[str, Any]) -> Any:
    """What an op would answer, on tensors without numbers."""
    if _is_size(given["op"]):
        return 2
    try:
        args, kwargs = tuple(map(_argument, given["args"])), {k: _argument(v) for k, v in given["kwargs"].items()}
        check_call(Node("n", given["op"], args, kwargs))
        if any(argument.name == "device" for argument in schema_of(given["op"]).arguments):
            kwargs["device"] = _META  # else it would make the numbers, all of them
        node = Node("n", given["op"], args, kwargs)
        with torch.no_grad():
            return node.call(lambda ref: seen[ref.name], _META)
    except Exception:  # whatever torch raises for arguments that cannot be
        return seen["x"]


def _argument(value: Any) -> Any:
    return codec.decode(schema.decoded(json.dumps(value), schema.Argument), _CPU)  # type: ignore[arg-type]


def _meta(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_meta(item) for item in value]
    if not isinstance(value, Tensor):
        return None
    name = str(value.dtype).removeprefix("torch.")
    dtype = name if name in values.DTYPES else "float32"
    batch_axis = 0 if value.dim() and value.shape[0] == INPUT[0] else None
    return {"shape": list(value.shape), "dtype": dtype, "batch_axis": batch_axis}


def _document(nodes: Any, entries: Any, sites: Any, neurons: Any) -> dict[str, Any]:
    last = next((node["name"] for node in reversed(nodes) if isinstance(node["meta"], dict)), "x")
    program = {
        "inputs": [{"name": "x", "dims": ["s0", *INPUT[1:]], "meta": _meta(torch.empty(INPUT, device=_META))}],
        "tensors": entries,
        "nodes": nodes,
        "outputs": [["ref", last]],
        "call": _CALL,
        "constants": ["<tensor>"],
        "answer": _LEAF,
        "guards": [],
        "batch_symbols": ["s0"],
        "registered": {},
        "parameters": ["x"],
    }
    body = {
        "kind": "network",
        "about": {},
        "config": Config(num_steps=2).to_json(),
        "report": {"rows": [], "num_sites": len(sites), "foldable": True, "notes": [], "prices": {}},
        "neurons": neurons,
        "plans": [{"program": program, "sites": sites, "fed": {}, "moved": {}}],
    }
    return {"format": schema.FORMAT, "versions": {}, "body": body}
