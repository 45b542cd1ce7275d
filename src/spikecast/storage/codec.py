"""A program as plain JSON data, and back again: whatever is read is checked, and nothing of it is executed.

An op is a name. It may be an aten op of the roles table, in an overload that changes none of its inputs, or one of our
own few; no other name is ever looked up in torch.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from spikecast.errors import ArtifactError
from spikecast.graph.calls import TENSOR
from spikecast.graph.guards import OPS as GUARD_OPS
from spikecast.graph.guards import Guard
from spikecast.graph.program import GETITEM, NEURON, SIZE, SIZE_OPS, Input, Meta, Node, Program, Ref, refs
from spikecast.graph.roles import SAVABLE
from spikecast.graph.structure import Structure

T = TypeVar("T")
Json = dict[str, Any]

MAX_DEPTH = 100  # of the whole document; Python's own recursion limit is ten times that
MAX_STRING = 10_000
MAX_RANK = 64  # torch's own

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32),
        *(torch.int64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32),
        *(torch.float64, torch.complex64, torch.complex128),
    )
}
# Objects of torch that stand among the arguments of ops, by the name they are saved under.
_NAMED: dict[str, dict[str, Any]] = {
    "dtype": DTYPES,
    "layout": {"strided": torch.strided},
    "memory_format": {
        str(form).removeprefix("torch."): form
        for form in (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
    },
}
_NAME_OF = {value: (kind, name) for kind, names in _NAMED.items() for name, value in names.items()}
_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# They answer a number instead of a tensor. Other overloads that do are TorchScript's, on strings and lists.
_ANSWER_NUMBERS = {SIZE, "aten.is_nonzero.default"}
# Their schemas keep silent about the running statistics that they update when told to.
_NORMS = {"aten.batch_norm": "training", "aten.instance_norm": "use_input_stats"}
# What stands for an argument of a type: a size may be computed, and torch makes a tensor of a number.
_KINDS: dict[str, tuple[type, ...]] = {
    "Tensor": (Ref, bool, int, float),
    "List[Tensor]": (Ref,),
    "int": (Ref, int),
    "float": (Ref, int, float),
    "number": (Ref, bool, int, float),
    **{"bool": (bool,), "str": (str,), "ScalarType": (torch.dtype,), "Device": (torch.device,)},
    **{"Layout": (torch.layout,), "MemoryFormat": (torch.memory_format,)},
}
_UNARY = {"size.neg", "size.int", "size.float", "size.sqrt"}


def check_bounds(document: Any) -> None:
    """Refuse what no network needs: deep nesting, long strings, numbers beyond 64 bits or not finite."""
    waiting: list[Iterator[Any]] = [iter((document,))]  # iterators: the walk itself takes no memory
    while waiting:
        item = next(waiting[-1], waiting)
        if item is waiting:
            waiting.pop()
        elif isinstance(item, dict):
            waiting.append(itertools.chain(item, item.values()))
        elif isinstance(item, list):
            waiting.append(iter(item))
        elif isinstance(item, str) and len(item) > MAX_STRING:
            raise ArtifactError(f"it holds a string of {len(item)} characters; {MAX_STRING} are the limit")
        elif isinstance(item, int | float) and not abs(item) < 2**64:
            raise ArtifactError("it holds a number beyond 64 bits")
        if len(waiting) > MAX_DEPTH:
            raise ArtifactError(f"its document is nested deeper than {MAX_DEPTH}")


def fields(data: Any, what: str, *names: str) -> list[Any]:
    """The values of an object that has just these keys."""
    typed(data, dict, what)
    for key in data:
        if key not in names:
            raise ArtifactError(f"{what} has the key {short(key)}, which this version of spikecast does not know")
    for name in names:
        if name not in data:
            raise ArtifactError(f"{what} lacks {name!r}")
    return [data[name] for name in names]


def typed(value: Any, kind: type[T], what: str) -> T:
    """The value, if it is of just this type: True is no int."""
    if type(value) is not kind:
        raise ArtifactError(f"{what} is {short(value)}, where {kind.__name__} is due")
    return value


def whole(value: Any, what: str, low: int = 0, high: int = 2**63 - 1) -> int:
    """The value, if it is an int in a range."""
    if not low <= typed(value, int, what) <= high:
        raise ArtifactError(f"{what} is {value}, not from {low} to {high}")
    return int(value)


def items(value: Any, what: str, kind: type[T]) -> list[T]:
    """The value, if it is a list of things of one type."""
    return [typed(item, kind, what) for item in typed(value, list, what)]


def short(value: Any) -> str:
    """A value as a message can hold it."""
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."


def schema_of(target: str) -> Any:
    """The schema of an op that a saved network may hold; any other name is an error."""
    if target.count(".") != 2 or target.rpartition(".")[0] not in SAVABLE:
        raise ArtifactError(f"the op {short(target)} is not on the list of those that a saved network may hold")
    return _schema(target)


@functools.lru_cache(maxsize=4096)
def _schema(target: str) -> Any:
    parts = target.split(".")
    packet = getattr(getattr(torch.ops, parts[0]), parts[1], None)
    if packet is None or parts[2] not in packet.overloads():
        raise ArtifactError(f"this torch ({torch.__version__}) has no op {short(target)}")
    schema = getattr(packet, parts[2])._schema
    if schema.is_mutable:
        raise ArtifactError(f"the op {short(target)} changes its inputs, which no op of a saved network may do")
    if target not in _ANSWER_NUMBERS and not all("Tensor" in str(answer.type) for answer in schema.returns):
        raise ArtifactError(f"the op {short(target)} answers no tensor, which no op of a saved network may do")
    return schema


def _check_call(node: Node) -> None:
    """See that an op is called with arguments it has."""
    kinds = [type(argument) for argument in node.args]
    if node.target in SIZE_OPS:
        fits = len(kinds) == (1 if node.target in _UNARY else 2) and {*kinds} <= {Ref, int, float} and not node.kwargs
    elif node.target in (GETITEM, SIZE):
        fits = kinds == [Ref, int] and not node.kwargs
    elif node.target == NEURON:
        fits = kinds == [Ref] and type(node.kwargs.get("site")) is str and len(node.kwargs) == 1
    else:
        fits = _fits_schema(node, schema_of(node.target)) and not _updates_statistics(node)
    if not fits:
        raise ArtifactError(f"the op {node.target!r} cannot take the arguments it is given")


def _fits_schema(node: Node, schema: Any) -> bool:
    """Whether each argument is there once and of its type; torch itself takes a number for a dtype, and crashes."""
    names = [a.name for a in schema.arguments if not a.kwarg_only][: len(node.args)]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return (
        len(given) == len(node.args) + len(node.kwargs)
        and given.keys() <= {a.name for a in schema.arguments}
        and all(
            _suits(given[a.name], str(a.real_type)) if a.name in given else a.has_default_value()
            for a in schema.arguments
        )
    )


def _suits(value: Any, kind: str) -> bool:
    if kind.startswith("Optional["):
        return value is None or _suits(value, kind.removeprefix("Optional[")[:-1])
    if kind.startswith("List[") and isinstance(value, list | tuple):
        return all(_suits(item, kind.removeprefix("List[")[:-1]) for item in value)
    return type(value) in _KINDS.get(kind, ())


def _updates_statistics(node: Node) -> bool:
    if node.op not in _NORMS or node.argument(5, _NORMS[node.op]) is False:
        return False
    return node.argument(3, "running_mean") is not None or node.argument(4, "running_var") is not None


def encode(value: Any) -> Any:
    """One argument as JSON data; None, True, 1, 1.5 and strings are themselves, a list is a tuple."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Ref):
        return {"ref": value.name}
    if type(value) in (tuple, torch.Size):
        return [encode(item) for item in value]
    if type(value) is list:
        return {"list": [encode(item) for item in value]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format) and value in _NAME_OF:
        kind, name = _NAME_OF[value]
        return {kind: name}
    raise ArtifactError(f"an argument of type {type(value).__name__} ({short(str(value))}) cannot be saved")


def decode(value: Any, device: torch.device) -> Any:
    """The argument again; wherever it names a device, that is the one the network is loaded to."""
    if isinstance(value, list):
        return tuple(decode(item, device) for item in value)
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ArtifactError("an argument is neither a plain value nor an object with one key")
    ((kind, content),) = value.items()
    if kind == "list":
        return [decode(item, device) for item in typed(content, list, "an argument")]
    if isinstance(content, str):
        if kind == "ref":
            return Ref(content)
        if kind == "device":
            return device
        table = _FLOATS if kind == "float" else _NAMED.get(kind, {})
        if content in table:
            return table[content]
    raise ArtifactError(f"an argument is of a kind that this version of spikecast does not know: {short(kind)}")


def encode_meta(meta: Any) -> Any:
    """The form of a value: of one tensor, of several, or of none."""
    if isinstance(meta, tuple):
        return [encode_meta(item) for item in meta]
    if meta is None:
        return None
    return {"shape": list(meta.shape), **encode(meta.dtype), "batch_axis": meta.batch_axis}


def _metas(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_metas(item) for item in data)
    return None if data is None else decode_meta(data)


def decode_meta(data: Any) -> Meta:
    """The form of one tensor."""
    shape, dtype, axis = fields(data, "the form of a value", "shape", "dtype", "batch_axis")
    sizes = tuple(whole(size, "a size") for size in items(shape, "a shape", int))
    if len(sizes) > MAX_RANK:
        raise ArtifactError(f"a value has {len(sizes)} axes; {MAX_RANK} are the limit")
    if axis is not None:
        whole(axis, "a batch axis", 0, len(sizes) - 1)
    if typed(dtype, str, "a dtype") not in DTYPES:
        raise ArtifactError(f"the dtype {short(dtype)} is unknown")
    return Meta(sizes, DTYPES[dtype], axis)


def _count_leaves(form: Any) -> int:
    """How many leaves a structure holds, once it has been seen to be one."""
    kind = form.get("kind") if isinstance(form, dict) else None
    if kind == "leaf":
        fields(form, "a structure", "kind")
        return 1
    if kind in ("list", "tuple"):
        _, parts = fields(form, "a structure", "kind", "items")
        return sum(_count_leaves(part) for part in typed(parts, list, "a structure"))
    if kind in ("dict", "ordered"):
        _, pairs = fields(form, "a structure", "kind", "items")
    elif kind in ("namedtuple", "dataclass"):
        _, name, pairs = fields(form, "a structure", "kind", "class", "items")
        typed(name, str, "the class of a structure")
    else:
        raise ArtifactError(f"a structure is of the kind {short(kind)}, which this version of spikecast does not know")
    total = 0
    for pair in items(pairs, "a structure", list):
        if len(pair) != 2 or not isinstance(pair[0], str if "class" in form else str | int):
            raise ArtifactError("a structure has a field without a name")
        total += _count_leaves(pair[1])
    return total


def _encode_guard(guard: Guard) -> Any:
    return [guard[0], *map(_encode_guard, guard[1:])] if isinstance(guard, list) else encode(guard)


def _decode_guard(data: Any, symbols: set[str], device: torch.device) -> Guard:
    if not isinstance(data, list):
        value = decode(data, device)
        if type(value) not in (int, float) and not (type(value) is str and value in symbols):
            raise ArtifactError(f"a condition on sizes speaks of {short(value)}, which is no size of an input")
        return value  # type: ignore[no-any-return]
    if len(data) < 2 or not isinstance(data[0], str) or data[0] not in GUARD_OPS:
        raise ArtifactError("a condition on sizes uses an operation that this version of spikecast does not know")
    return [data[0], *(_decode_guard(part, symbols, device) for part in data[1:])]


def program_to_json(program: Program, store: Callable[[str, Tensor], Any]) -> Json:
    """A program as JSON data; `store` takes each tensor and answers what finds it again."""
    call = program.input_structure
    return {
        "inputs": [{"name": i.name, "dims": list(i.dims), "meta": encode_meta(i.meta)} for i in program.inputs],
        "tensors": {name: store(name, tensor) for name, tensor in program.tensors.items()},
        "nodes": [
            {
                "name": node.name,
                "op": node.target,
                "args": encode(tuple(node.args)),
                "kwargs": {name: encode(value) for name, value in node.kwargs.items()},
                "scope": node.scope,
                "meta": encode_meta(node.meta),
            }
            for node in program.nodes
        ],
        "outputs": encode(program.outputs),
        "call": {"form": call["form"], "constants": [encode(constant) for constant in call["constants"]]},
        "answer": program.output_structure,
        "guards": [_encode_guard(guard) for guard in program.guards],
        "batch_symbols": list(program.batch_symbols),
    }


def program_from_json(data: Any, find: Callable[[Any], Tensor], device: torch.device) -> Program:
    """The program again; `find` answers the tensor for what `store` answered."""
    return _ProgramReader(find, device).read(data)


class _ProgramReader:
    """Reads a program from the front: what an op uses must have been read before it."""

    def __init__(self, find: Callable[[Any], Tensor], device: torch.device) -> None:
        self.find, self.device = find, device
        self.values: dict[str, Any] = {}  # name -> how many results it has, None for one

    def read(self, data: Any) -> Program:
        names = ("inputs", "tensors", "nodes", "outputs", "call", "answer", "guards", "batch_symbols")
        inputs, tensors, nodes, outputs, call, answer, guards, batch = fields(data, "a program", *names)
        specs = tuple(self._input(item) for item in typed(inputs, list, "inputs"))
        symbols = {dim for spec in specs for dim in spec.dims if isinstance(dim, str)}
        found = {self._new(name): self.find(entry) for name, entry in typed(tensors, dict, "tensors").items()}
        made = tuple(self._node(item) for item in typed(nodes, list, "nodes"))
        leaves = decode(typed(outputs, list, "outputs"), self.device)
        self._check_refs(leaves)
        if _count_leaves(answer) != len(leaves):
            raise ArtifactError("its answer has another number of leaves than its outputs")
        return Program(
            inputs=specs,
            nodes=made,
            outputs=leaves,
            tensors=found,
            input_structure=self._call(call, len(specs)),
            output_structure=answer,
            guards=tuple(_decode_guard(guard, symbols, self.device) for guard in typed(guards, list, "guards")),
            batch_symbols=tuple(items(batch, "batch symbols", str)),
        )

    def _new(self, name: Any, results: int | None = None) -> str:
        if typed(name, str, "the name of a value") in self.values:
            raise ArtifactError(f"two values are called {short(name)}")
        self.values[name] = results
        return str(name)

    def _check_refs(self, arguments: Any) -> None:
        for ref in refs(arguments):
            if ref.name not in self.values:
                raise ArtifactError(f"{short(ref.name)} is used before it is made")

    def _input(self, data: Any) -> Input:
        name, dims, form = fields(data, "an input", "name", "dims", "meta")
        meta = decode_meta(form)
        for dim in typed(dims, list, "the sizes of an input"):
            if not isinstance(dim, str):
                whole(dim, "the size of an input")
        if len(dims) != meta.rank:
            raise ArtifactError(f"the input {short(name)} has another number of sizes than axes")
        return Input(self._new(name), tuple(dims), meta)

    def _node(self, data: Any) -> Node:
        name, op, args, kwargs, scope, meta = fields(data, "an op", "name", "op", "args", "kwargs", "scope", "meta")
        node = Node(
            name=typed(name, str, "the name of an op"),
            target=typed(op, str, "an op"),
            args=decode(typed(args, list, "arguments"), self.device),
            kwargs={key: decode(value, self.device) for key, value in typed(kwargs, dict, "arguments").items()},
            scope=typed(scope, str, "the scope of an op"),
            meta=_metas(meta),
        )
        self._check_refs((node.args, dict(node.kwargs)))
        _check_call(node)
        if node.target == GETITEM:
            results = self.values[node.args[0].name]
            if results is None or not -results <= node.args[1] < results:
                raise ArtifactError(f"the op {short(name)} takes a result that {node.args[0].name!r} does not have")
        self._new(name, len(node.meta) if isinstance(node.meta, tuple) else None)
        return node

    def _call(self, data: Any, num_inputs: int) -> Structure:
        form, constants = fields(data, "a call", "form", "constants")
        decoded = list(decode(typed(constants, list, "constants"), self.device))
        if _count_leaves(form) != len(decoded) or decoded.count(TENSOR) != num_inputs or any(refs(decoded)):
            raise ArtifactError("the arguments of its call are not those of its inputs")
        return {"kind": "call", "form": form, "constants": decoded}
