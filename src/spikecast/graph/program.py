"""A captured network as plain data: named values, functional ops on them, constant tensors.

Nothing here knows of spikes. A program can be written as JSON and safetensors, and read back without
running any code: an op is a name, looked up in torch only when it is executed.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from spikecast.errors import ModelError
from spikecast.graph.guards import Guard, bounded
from spikecast.graph.structure import Structure
from spikecast.graph.turns import computing

if TYPE_CHECKING:
    from spikecast.graph.execute.watch import Limits
    from spikecast.graph.flow import Flow

NEURON = "spikecast.neuron"  # the one op that is ours: args (input,), kwargs {"site": name}

# Ops on sizes. They are Python functions, not aten ops, so each one is named here.
Kind = TypeVar("Kind")
SIZE_OPS: dict[str, Callable[..., Any]] = {
    "size.add": operator.add,
    "size.sub": operator.sub,
    "size.mul": operator.mul,
    "size.floordiv": operator.floordiv,
    "size.mod": operator.mod,
    "size.truediv": operator.truediv,
    "size.pow": operator.pow,
    "size.neg": operator.neg,
    "size.int": int,
    "size.float": float,
    "size.max": max,
    "size.min": min,
    "size.sqrt": lambda x: float(x) ** 0.5,
    "size.ceil": math.ceil,
    "size.floor": math.floor,
}
GETITEM = "getitem"
SIZE = "aten.sym_size.int"


@dataclass(frozen=True)
class Ref:
    """A use of a value: an input, a constant tensor, or the result of an op."""

    name: str


@dataclass(frozen=True)
class Meta:
    """What is known of a tensor value: its shape at capture, its type, and which axis is the batch."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    batch_axis: int | None

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Node:
    """One op. `meta` is a Meta, a tuple of them where the op has several results, or None for a size."""

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""
    meta: Meta | tuple[Meta | None, ...] | None = None

    @cached_property
    def inputs(self) -> list[str]:
        """Names of all values used, in order, each as often as it is used."""
        return [ref.name for ref in refs((self.args, dict(self.kwargs)))]

    @property
    def is_size(self) -> bool:
        """Whether the op answers a size rather than a tensor."""
        return self.target == SIZE or self.target.startswith(("size.", "python."))

    @property
    def op(self) -> str:
        """The op without its overload: aten.add for aten.add.Tensor."""
        return self.target.rsplit(".", 1)[0] if self.target.count(".") == 2 else self.target

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """One argument, wherever it was given."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def arguments(
        self, look_up: Callable[[Ref], Any], device: torch.device | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the op is called with: a value for each reference, and `device` wherever a device is named."""
        args, kwargs = replace_refs(self.args, look_up), replace_refs(dict(self.kwargs), look_up)
        if device is None:
            return args, kwargs
        args = tuple(device if isinstance(a, torch.device) else a for a in args)
        return args, kwargs | {"device": device} if "device" in kwargs else kwargs

    def swapped(self, swap: Callable[[Ref], Any]) -> Node:
        """The op with every reference put through `swap`."""
        args, kwargs = self.arguments(swap)
        return dataclasses.replace(self, args=args, kwargs=kwargs)

    def call(self, look_up: Callable[[Ref], Any], device: torch.device | None = None) -> Any:
        """The op's result on what `look_up` answers for its references, in their order."""
        args, kwargs = self.arguments(look_up, device)
        with computing():
            return resolve(self.target)(*args, **kwargs)


@dataclass(frozen=True)
class Input:
    """A tensor the program is called with: sizes that are fixed, or the name of the symbol that stands for them."""

    name: str
    dims: tuple[int | str, ...]
    meta: Meta


@dataclass(frozen=True)
class Program:
    """Inputs, constants, ops in order, and outputs; a leaf of the outputs is a Ref or a plain constant."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    tensors: Mapping[str, Tensor]
    input_structure: Structure
    output_structure: Structure
    guards: tuple[Guard, ...] = ()
    batch_symbols: tuple[str, ...] = ()  # empty: the batch size is pinned
    dropped: tuple[str, ...] = ()  # what the model answers besides: caches and losses
    written: tuple[str, ...] = ()  # buffers that the model's forward writes to, and the program does not
    parameters: tuple[str, ...] = ()  # names of the model's positional arguments, in order
    limits: Limits | None = field(default=None, compare=False)  # of a program from a file, which is watched

    def with_nodes(self, nodes: Iterable[Node], **changes: Any) -> Program:
        return dataclasses.replace(self, nodes=tuple(nodes), **changes)

    @cached_property
    def metas(self) -> dict[str, Meta | tuple[Meta | None, ...] | None]:
        """Meta of every value by name."""
        found: dict[str, Meta | tuple[Meta | None, ...] | None] = {i.name: i.meta for i in self.inputs}
        for name, tensor in self.tensors.items():
            found[name] = Meta(tuple(tensor.shape), tensor.dtype, None)
        found.update((node.name, node.meta) for node in self.nodes)
        return found

    @cached_property
    def batch_axes(self) -> dict[str, int]:
        """Where each tensor has its batch, of those that have one."""
        metas = ((name, meta) for name, meta in self.metas.items() if isinstance(meta, Meta))
        return {name: meta.batch_axis for name, meta in metas if meta.batch_axis is not None}

    @cached_property
    def users(self) -> dict[str, list[Node]]:
        """Ops that use each value, each op once."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(node)
        return found

    @property
    def output_names(self) -> list[str]:
        return [ref.name for ref in refs(self.outputs)]

    @cached_property
    def flow(self) -> Flow:
        """What can be said of the program before any tensor is there, found once."""
        from spikecast.graph.flow import Flow

        return Flow(self)


def refs(value: Any) -> Iterator[Ref]:
    """All references inside nested arguments, in order."""
    return inside(value, Ref)


def inside(value: Any, kind: type[Kind]) -> Iterator[Kind]:
    """Everything of a kind inside nested arguments, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from inside(item, kind)
    elif isinstance(value, dict):
        for item in value.values():
            yield from inside(item, kind)


def replace_refs(value: Any, swap: Callable[[Ref], Any]) -> Any:
    """The same nested arguments with every reference put through `swap`."""
    if isinstance(value, Ref):
        return swap(value)
    if isinstance(value, list | tuple):
        return type(value)(replace_refs(item, swap) for item in value)
    if isinstance(value, dict):
        return {key: replace_refs(item, swap) for key, item in value.items()}
    return value


@cache
def resolve(target: str) -> Callable[..., Any]:
    """The function behind an op's name."""
    if target in SIZE_OPS:
        return bounded(SIZE_OPS[target])
    if target == GETITEM:
        return operator.getitem
    parts = target.split(".")
    if len(parts) == 3:
        packet = getattr(getattr(torch.ops, parts[0], None), parts[1], None)
        overload = getattr(packet, parts[2], None)
        if isinstance(overload, torch._ops.OpOverload):
            return overload
    raise ModelError(
        f"this torch ({torch.__version__}) has no op {target!r}; install the version the network was made with"
    )
