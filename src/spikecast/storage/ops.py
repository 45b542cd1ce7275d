"""What a saved network may call: an op is a name, and no name that is not allowed is ever looked up in torch.

It may be an op of the list of savable ones, in an overload that changes none of its inputs, or one of our own few.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

from spikecast.errors import ArtifactError
from spikecast.graph.extent import named
from spikecast.graph.faults import fault
from spikecast.graph.program import GETITEM, NEURON, SIZE, SIZE_OPS, Node, Ref
from spikecast.graph.roles import BUILT_IN, ROLES, SAVABLE, Role
from spikecast.storage.schema import short

# Overloads that crash, or whose results are as many as a tensor says.
_ODD = {"aten.to.prim_Device", "aten.to.prim_dtype", "aten.to.prim_other", "aten.einsum.sublist"} | {
    "aten.tensor_split.tensor_indices_or_sections",
    "aten.where.default",
}
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
_UNARY = {"size.neg", "size.int", "size.float", "size.sqrt", "size.ceil", "size.floor"}


def schema_of(target: str) -> Any:
    """The schema of an op that a saved network may hold; any other name is an error."""
    if target.count(".") != 2 or target.rpartition(".")[0] not in SAVABLE:
        raise ArtifactError(
            f"the op {short(target)} is not on the list of those that a saved network may hold; "
            "if you trust it, spikecast.register_op(..., savable=True) puts it there"
        )
    return _schema(target)


@cache
def _schema(target: str) -> Any:
    space, name, overload = target.split(".")
    packet = getattr(getattr(torch.ops, space), name, None)
    if packet is None or overload not in packet.overloads() or target in _ODD:
        raise ArtifactError(f"this torch ({torch.__version__}) has no op {short(target)}")
    schema = getattr(packet, overload)._schema
    if schema.is_mutable:
        raise ArtifactError(f"the op {short(target)} changes its inputs, which no op of a saved network may do")
    if target not in _ANSWER_NUMBERS and not all("Tensor" in str(answer.type) for answer in schema.returns):
        raise ArtifactError(f"the op {short(target)} answers no tensor, which no op of a saved network may do")
    return schema


def check_call(node: Node) -> None:
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
        wrong = fault(node, named(node, node.args, node.kwargs)) if fits else None
        if wrong:
            raise ArtifactError(f"the op {node.target!r} is asked for {wrong}")
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


def taught(nodes: Iterable[Node]) -> dict[str, Role]:
    """The ops of a program that are known only because a user registered them, and what they were registered as."""
    return {op: ROLES[op] for op in sorted({node.op for node in nodes} - BUILT_IN) if op in ROLES}
