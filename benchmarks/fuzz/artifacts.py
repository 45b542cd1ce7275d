"""Saved networks by liars: every op of the list with hostile arguments, growing graphs, and changed documents."""

from __future__ import annotations

import copy
import math
import random
import re
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import spikecast
from benchmarks.fuzz import values
from benchmarks.fuzz.calls import KEYWORDS, VALID
from benchmarks.fuzz.edits import bases, damaged, edited
from benchmarks.fuzz.worker import MEMORY, came_of, is_out_of_memory, said
from benchmarks.fuzz.written import file_of, signed
from spikecast.errors import ArtifactError, SpikecastError
from spikecast.graph.calls import TENSOR
from spikecast.graph.program import SIZE_OPS, Program
from spikecast.graph.roles import SAVABLE
from spikecast.graph.structure import unflatten
from spikecast.storage.ops import schema_of

Case = dict[str, Any]
LOAD = partial(spikecast.load, max_memory=MEMORY // 2)  # the bound is for each op and what is held beside it
_TENSOR = re.compile(r"[fdhibu]\d+")
GROWTH = ["cat", "mul", "pow", "full", "expand", "repeat", "matmul", "einsum", "add", "stack", "outer", "pad"]


@cache
def targets() -> list[str]:
    """Every overload of every op that a file may name."""
    found = []
    for op in sorted(SAVABLE):
        packet = getattr(torch.ops.aten, op.removeprefix("aten."), None)
        for overload in packet.overloads() if packet is not None else ():
            try:
                schema_of(f"{op}.{overload}")
            except ArtifactError:
                continue
            found.append(f"{op}.{overload}")
    return found


@cache
def _valid() -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for name, args in VALID.items():
        found.setdefault(f"aten.{name.partition('#')[0]}", []).append(args)
    return found


# -- cases


def case_of(seed: int) -> Case:
    """What a seed stands for; a case is plain JSON."""
    draw = random.Random(seed)
    kind = draw.choices(["op", "grow", "edit", "bytes"], [75, 3, 20, 2])[0]
    if kind == "op":
        return {"kind": kind, **_hostile_call(draw)}
    if kind == "grow":
        return {"kind": kind, **_growing(draw)}
    return {"kind": kind, "seed": seed}


def content_of(case: Case) -> bytes:
    """The file of a case."""
    if case["kind"] in ("op", "grow"):
        return file_of(case)
    draw = random.Random(case["seed"])
    document, tensors = edited(draw) if case["kind"] == "edit" else draw.choice(bases())
    content = signed(document, tensors)
    return content if case["kind"] == "edit" else damaged(draw, content)


def warm_up() -> None:
    """What every process would else do anew: make sound files, and load the kernels by running them."""
    targets()
    files = [signed(document, tensors) for document, tensors in bases()]
    for dtype in ("float32", "float16", "bfloat16"):  # the types there are kernels for
        node = {"op": "aten.to.dtype", "args": [["ref", "x"], ["torch", dtype]], "kwargs": {}}
        files.append(file_of({"tensors": {}, "nodes": [node], "lie": False, "neuron": True}))
    with tempfile.TemporaryDirectory() as folder:
        for content in files:
            path = Path(folder) / "net"
            path.write_bytes(content)
            assert not attempt(path)


def attempt(path: Path, load: Callable[..., spikecast.SpikingNetwork] = LOAD) -> bool:
    """Load a file and run it twice, on numbers that the file does not choose; whether it was refused."""
    try:
        network = load(path)
        inputs = [_input(spec) for spec in network.plan.program.inputs]
        args, kwargs = _call(network.plan.program, inputs)
        network.run(*args, num_steps=2, **kwargs)
        network.analog(*args, **kwargs)
    except SpikecastError as error:
        for cause in came_of(error):
            if is_out_of_memory(said(cause)):
                raise
        return True
    return False


def _input(spec: Any) -> Tensor:
    """An input of the form that a file asks for, if it is no larger than a caller's would be."""
    shape = spec.meta.shape
    if math.prod(shape) > 10**6:
        raise ArtifactError("nobody gives it so large an input")
    return torch.full(shape, int(spec.meta.dtype.is_floating_point), dtype=spec.meta.dtype)


def _call(program: Program, inputs: list[Tensor]) -> Any:
    """The arguments of a call."""
    rest, structure = iter(inputs), program.input_structure
    leaves = [next(rest) if leaf == TENSOR else leaf for leaf in structure["constants"]]
    return unflatten(structure["form"], leaves)


def _hostile_call(draw: random.Random) -> Case:
    target = draw.choice(targets())
    known = _valid().get(target)
    arguments = [a for a in schema_of(target).arguments if not a.kwarg_only]
    if known:
        args = copy.deepcopy(draw.choice(known))
        hostile = 0.0
    else:
        hostile = draw.choice([0.0, 0.2, 0.5])
        args = [values.argument(draw, str(a.real_type), hostile=hostile) for a in arguments]
        if draw.random() < 0.5:  # ops on one tensor, or on several of one form
            args = ["f2344" if _is_tensor(a) else a for a in args]
    kwargs = copy.deepcopy(KEYWORDS.get(target.removeprefix("aten."), {}))
    for a in schema_of(target).arguments:
        if a.kwarg_only and a.name not in kwargs and (draw.random() < 0.2 or not a.has_default_value()):
            kwargs[a.name] = values.argument(draw, str(a.real_type), hostile=0.5)
    tensors: dict[str, Any] = {}
    args = [_named(arg, tensors) for arg in args]
    kwargs = {name: _named(arg, tensors) for name, arg in kwargs.items()}
    for _ in range(draw.choice([0, 1, 1, 1, 2, 3])):
        places = [("arg", i) for i in range(len(args))] + [("tensor", name) for name in tensors]
        where, key = draw.choice(places) if places else ("", "")
        if where == "tensor":
            tensors[str(key)] = values.hostile_tensor(draw, tensors[str(key)])
        elif where == "arg" and not _is_ref(args[int(key)]):
            args[int(key)] = values.changed(draw, args[int(key)])
    nodes = [{"op": target, "args": args, "kwargs": kwargs}]
    return {"tensors": tensors, "nodes": nodes, "lie": draw.random() < 0.1, "neuron": draw.random() < 0.3}


def _is_tensor(value: Any) -> bool:
    return isinstance(value, str) and _TENSOR.fullmatch(value) is not None


def _is_ref(value: Any) -> bool:
    return isinstance(value, list) and value[:1] == ["ref"]


def _named(value: Any, tensors: dict[str, Any]) -> Any:
    """An argument with references in place of tensors, which go to `tensors`; the first that fits is the input."""
    if isinstance(value, list) and value[:1] == ["list"]:
        return ["list", [_named(item, tensors) for item in value[1]]]
    if not _is_tensor(value):
        return value
    if value == "f2344" and not tensors:
        return ["ref", "x"]
    name = f"t{len(tensors)}"
    tensors[name] = values.tensor(value)
    return ["ref", name]


def _growing(draw: random.Random) -> Case:
    """Short graphs whose values or sizes get out of hand."""
    nodes: list[Any] = [{"op": "aten.sym_size.int", "args": [["ref", "x"], 0], "kwargs": {}}]
    sizes, tensors = ["n0"], ["x", "t0"]
    node: dict[str, Any]
    for _ in range(draw.choice([2, 4, 8, 16, 40])):
        name, size, one, two = f"n{len(nodes)}", *(["ref", draw.choice(v)] for v in (sizes, tensors, tensors))
        match draw.choice(GROWTH):
            case "mul" | "pow" as word:
                other = draw.choice([size, ["ref", draw.choice(sizes)], draw.choice(values.INTS)])
                op = draw.choice([f"size.{word}", *SIZE_OPS])
                unary = op in ("size.neg", "size.int", "size.float", "size.sqrt", "size.ceil", "size.floor")
                node = {"op": op, "args": [size] if unary else [size, other]}
            case "full":
                node = {"op": "aten.full.default", "args": [["list", [size, draw.choice([1, 2**10, 2**31])]], 1.0]}
            case "expand":
                node = {"op": "aten.expand.default", "args": [two, ["list", [size, 2**20, 2, 3, 4, 4]]]}
            case "repeat":
                node = {"op": "aten.repeat.default", "args": [one, ["list", [draw.choice([2, 64, 2**20]), 1, 1, 1]]]}
            case "matmul":
                node = {"op": "aten.matmul.default", "args": [one, two]}
            case "einsum":
                node = {"op": "aten.einsum.default", "args": ["abcd,efgh->abcdefgh", ["list", [one, two]]]}
            case "outer":
                node = {"op": "aten.einsum.default", "args": ["...a,...b->...ab", ["list", [one, two]]]}
            case "stack":
                node = {"op": "aten.stack.default", "args": [["list", [one] * draw.choice([2, 100])]]}
            case "add":
                node = {"op": "aten.add.Tensor", "args": [one, two]}
            case "pad":
                node = {"op": "aten.constant_pad_nd.default", "args": [one, ["list", [0, draw.choice(values.INTS)]]]}
            case _:
                node = {"op": "aten.cat.default", "args": [["list", [one, one]], 0]}
        nodes.append({"kwargs": {}, **node})
        (sizes if node["op"].startswith("size.") else tensors).append(name)
    return {"tensors": {"t0": values.tensor("f1344")}, "nodes": nodes, "lie": draw.random() < 0.3, "neuron": False}
