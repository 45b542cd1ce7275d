"""A program as a record, and back again: whatever is read is checked, and nothing of it is executed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast, get_args

import msgspec
import torch
from torch import Tensor

from spikecast.errors import ArtifactError, first_line
from spikecast.graph.calls import TENSOR
from spikecast.graph.execute.watch import Limits
from spikecast.graph.guards import OPS as GUARD_OPS
from spikecast.graph.guards import Guard, evaluate
from spikecast.graph.program import GETITEM, Input, Meta, Node, Program, Ref, refs
from spikecast.graph.structure import Structure
from spikecast.storage import schema
from spikecast.storage.ops import check_call, taught
from spikecast.storage.schema import short

Find = Callable[[str | schema.Strided], Tensor]

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(schema.Dtype)}
_OBJECTS = {name: getattr(torch, name) for name in get_args(schema.TorchName)}
_NAMES = {value: name for name, value in _OBJECTS.items()}
MOST_PARTS = 64  # of one step of a condition on sizes
_DEVICE = schema.Torch("device")


def encode(value: Any) -> schema.Argument:
    """One argument as a record; None, True, 1, 1.5 and strings are themselves."""
    if type(value) is int and not -(2**63) <= value < 2**63 and float(value) == value:
        value = float(value)  # as a mask may hold it: the lowest float32 is a whole number
    if value is None or type(value) in (bool, int, str):
        return value  # type: ignore[no-any-return]
    if type(value) is float:
        return value if math.isfinite(value) else schema.Special(repr(value))  # type: ignore[arg-type]
    if isinstance(value, Ref):
        return schema.Use(value.name)
    if type(value) in (tuple, torch.Size):
        return schema.Tuple(tuple(map(encode, value)))
    if type(value) is list:
        return schema.List(tuple(map(encode, value)))
    if isinstance(value, torch.device):
        return _DEVICE
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format) and value in _NAMES:
        return schema.Torch(_NAMES[value])
    raise ArtifactError(f"an argument of type {type(value).__name__} ({short(str(value))}) cannot be saved")


def decode(value: schema.Argument, device: torch.device) -> Any:
    """The argument again; wherever it names a device, that is the one the network is loaded to."""
    match value:
        case schema.Use():
            return Ref(value.name)
        case schema.Tuple():
            return decode_all(value.items, device)
        case schema.List():
            return [*decode_all(value.items, device)]
        case schema.Special():
            return float(value.value)
        case schema.Torch():
            return device if value == _DEVICE else _OBJECTS[value.name]
    return value


def decode_all(values: tuple[schema.Argument, ...], device: torch.device) -> tuple[Any, ...]:
    return tuple(decode(value, device) for value in values)


def encode_meta(meta: Meta) -> schema.Meta:
    """The form of one tensor."""
    return schema.Meta(tuple(meta.shape), _NAMES.get(meta.dtype, str(meta.dtype)), meta.batch_axis)


def decode_meta(meta: schema.Meta) -> Meta:
    """The form of one tensor again."""
    if meta.batch_axis is not None and meta.batch_axis >= len(meta.shape):
        raise ArtifactError(f"a value of {len(meta.shape)} axes has the batch on axis {meta.batch_axis}")
    if math.prod(max(size, 1) for size in meta.shape) >= 2**62:  # also of one without entries: torch fails on strides
        raise ArtifactError(f"a value has the shape {meta.shape}; no tensor can be so large")
    return Meta(meta.shape, DTYPES[meta.dtype], meta.batch_axis)


def _each(meta: Any, change: Callable[[Any], Any]) -> Any:
    """What `change` makes of the form of one tensor, of several, or of none."""
    if isinstance(meta, tuple):
        return tuple(None if part is None else change(part) for part in meta)
    return None if meta is None else change(meta)


def _count_leaves(form: Structure) -> int:
    if form["kind"] == "leaf":
        return 1
    return sum(_count_leaves(item[1] if isinstance(item, list) else item) for item in form["items"])


def program_to_record(program: Program, store: Callable[[str, Tensor], Any]) -> schema.Program:
    """A program as a record, not yet checked; `store` takes each tensor and answers what finds it again."""
    return schema.Program(
        inputs=tuple(schema.Input(i.name, tuple(i.dims), encode_meta(i.meta)) for i in program.inputs),
        tensors={name: store(name, tensor) for name, tensor in program.tensors.items()},
        nodes=tuple(
            schema.Node(
                name=node.name,
                op=node.target,
                args=tuple(map(encode, node.args)),
                kwargs={name: encode(value) for name, value in node.kwargs.items()},
                scope=node.scope,
                meta=_each(node.meta, encode_meta),
            )
            for node in program.nodes
        ),
        outputs=tuple(map(encode, program.outputs)),
        call=program.input_structure["form"],
        constants=tuple(map(encode, program.input_structure["constants"])),
        answer=cast(Any, program.output_structure),
        guards=tuple(map(encode, program.guards)),
        batch_symbols=tuple(program.batch_symbols),
        parameters=tuple(program.parameters),
        registered=taught(program.nodes),
    )


class Reader:
    """Reads a program from the front: what an op uses must have been read before it; its runs get the limits."""

    def __init__(self, device: torch.device, limits: Limits | None = None) -> None:
        self.device, self.limits = device, limits
        self.values: dict[str, int | None] = {}  # name -> how many results it has, None for one

    def program(self, record: schema.Program, find: Find) -> Program:
        """The program again; `find` answers the tensor for what `store` of `program_to_record` answered."""
        inputs = tuple(self._input(item) for item in record.inputs)
        symbols = {dim for spec in inputs for dim in spec.dims if isinstance(dim, str)}
        tensors = {self._new(name): find(entry) for name, entry in record.tensors.items()}
        nodes = tuple(self._node(item) for item in record.nodes)
        if record.registered != (here := taught(nodes)):
            names = ", ".join(sorted({*record.registered, *here}))
            raise ArtifactError(f"it was made where register_op gave {short(names)} other roles than here")
        outputs = decode_all(record.outputs, self.device)
        self._check_refs(outputs)
        answer, form = msgspec.to_builtins(record.answer), msgspec.to_builtins(record.call)
        constants = [*decode_all(record.constants, self.device)]
        if _count_leaves(answer) != len(outputs):
            raise ArtifactError("its answer has another number of leaves than its outputs")
        if _count_leaves(form) != len(constants) or constants.count(TENSOR) != len(inputs) or any(refs(constants)):
            raise ArtifactError("the arguments of its call are not those of its inputs")
        if not _is_call(form):
            raise ArtifactError("its call is no list of arguments and dict of named ones")
        guards = decode_all(record.guards, self.device)
        for guard in guards:
            _check_guard(guard, symbols)
        program = Program(
            inputs=inputs,
            nodes=nodes,
            outputs=outputs,
            tensors=tensors,
            input_structure={"kind": "call", "form": form, "constants": constants},
            output_structure=answer,
            guards=guards,
            batch_symbols=record.batch_symbols,
            parameters=record.parameters,
            limits=self.limits,
        )
        _check_sizes(program)
        return program

    def _new(self, name: str, results: int | None = None) -> str:
        if name in self.values:
            raise ArtifactError(f"two values are called {short(name)}")
        self.values[name] = results
        return name

    def _check_refs(self, arguments: Any) -> None:
        for ref in refs(arguments):
            if ref.name not in self.values:
                raise ArtifactError(f"{short(ref.name)} is used before it is made")

    def _input(self, record: schema.Input) -> Input:
        pairs = [*zip(record.dims, record.meta.shape, strict=False)]
        if len(record.dims) != len(record.meta.shape) or any(type(d) is int and d != size for d, size in pairs):
            raise ArtifactError(f"the input {short(record.name)} has other sizes than its form")
        return Input(self._new(record.name), record.dims, decode_meta(record.meta))

    def _node(self, record: schema.Node) -> Node:
        node = Node(
            name=record.name,
            target=record.op,
            args=decode_all(record.args, self.device),
            kwargs={key: decode(value, self.device) for key, value in record.kwargs.items()},
            scope=record.scope,
            meta=_each(record.meta, decode_meta),
        )
        self._check_refs((node.args, dict(node.kwargs)))
        check_call(node)
        if node.target == GETITEM:
            results = self.values[node.args[0].name]
            if results is None or not -results <= node.args[1] < results:
                raise ArtifactError(f"the op {short(node.name)} takes a result that {node.inputs[0]!r} does not have")
        self._new(node.name, len(node.meta) if isinstance(node.meta, tuple) else None)
        return node


def _is_call(form: Structure) -> bool:
    """Whether it is a tuple of positional arguments and a dict of named ones."""
    parts = form["items"] if form["kind"] == "tuple" else []
    kinds = [part["kind"] for part in parts]
    return kinds == ["tuple", "dict"] and all(type(key) is str for key, _ in parts[1]["items"])


def _check_sizes(program: Program) -> None:
    """See that the sizes of the capture can be computed, and that it meets the conditions."""
    sizes: dict[str, int] = {}
    shapes = [pair for spec in program.inputs for pair in zip(spec.dims, spec.meta.shape, strict=True)]
    try:
        alike = all(sizes.setdefault(dim, size) == size for dim, size in shapes if isinstance(dim, str))
        met = all(evaluate(guard, sizes) for guard in program.guards)
        _ = program.flow.captured
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ArtifactError(f"its sizes cannot be computed ({first_line(error)})") from None
    if not (alike and met):
        raise ArtifactError("its inputs do not meet its own conditions on sizes")


def _check_guard(guard: Guard, symbols: set[str]) -> None:
    """See that a condition on sizes is a tree of known operations on sizes of the inputs."""
    if not isinstance(guard, list):
        if type(guard) not in (int, float) and not (type(guard) is str and guard in symbols):
            raise ArtifactError(f"a condition on sizes speaks of {short(guard)}, which is no size of an input")
        return
    if not 2 <= len(guard) <= MOST_PARTS or not isinstance(guard[0], str) or guard[0] not in GUARD_OPS:
        raise ArtifactError("a condition on sizes uses an operation that this version of spikecast does not know")
    for part in guard[1:]:
        _check_guard(part, symbols)
