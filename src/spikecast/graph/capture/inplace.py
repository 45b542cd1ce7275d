"""In-place ops made functional by renaming, where nothing else can see what they write.

torch.export can do this for any graph, but traces the whole of it once more, and that takes longer than the first
time. Most models write in place only into a tensor that was made for it, as in relu(conv(x), inplace=True): from
there on, readers of the old value are readers of the new one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from spikecast.graph.roles import BUILT_IN, ROLES, Role

DROPOUTS = {"aten.dropout", "aten.feature_dropout", "aten.alpha_dropout"}
_VIEWS = {"aten.reshape", "aten.flatten", "aten.contiguous", "aten.to"}  # composite, but we read them as they are
_RECURRENT = {f"aten.{name}{end}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu") for end in ("", "_cell")}
_KNOWN = {*DROPOUTS, *_RECURRENT, "aten.alias", "aten.detach", "aten.scaled_dot_product_attention"}
_MAKERS = {Role.SYNAPSE, Role.SUM, Role.PRODUCT, Role.NONLINEAR, Role.RECTIFIER}
_FRESH = {op for op in BUILT_IN if ROLES[op] in _MAKERS} | {
    "aten.linear", "aten.matmul", "aten.bmm", "aten.batch_norm", "aten.cat", "aten.avg_pool2d",
    "aten.adaptive_avg_pool2d", "aten.adaptive_avg_pool1d", "aten.mean",
}  # fmt: skip


def twin(target: Any) -> torch._ops.OpOverload | None:
    """The functional op of one that writes into its first argument; None where it does anything else."""
    schema = target._schema
    written = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    packet, _, overload = str(target).removeprefix("aten.").partition(".")
    if not str(target).startswith("aten.") or written != [0] or not packet.endswith("_"):
        return None
    found = getattr(getattr(torch.ops.aten, packet.removesuffix("_"), None), overload, None)
    if found is None or [a.name for a in found._schema.arguments] != [a.name for a in schema.arguments]:
        return None
    return found  # type: ignore[no-any-return]


def is_plain(exported: ExportedProgram) -> bool:
    """Whether every op can be read as it is, those that write in place through their twins."""
    owner: dict[fx.Node, fx.Node] = {}  # value -> the op that made its memory, for memory that is the graph's own
    shared: set[fx.Node] = set()  # memory that may be seen through another value too
    for node in exported.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
            return False
        if not isinstance(node.target, torch._ops.OpOverload):
            continue  # a size, or one of several results: never the graph's own memory
        mutates = node.target._schema.is_mutable
        op = twin(node.target) if mutates else node.target
        if op is None or not _is_readable(op, node):
            return False
        if mutates:
            source = owner.get(node.args[0]) if node.args else None
            if source is None or source in shared or not _keeps_type(node):
                return False
            owner[node] = source
        elif _name(op) in _FRESH:
            owner[node] = node
        else:
            shared.update(owner[a] for a in node.all_input_nodes if a in owner)
    return True


def _name(op: torch._ops.OpOverload) -> str:
    return str(op).rsplit(".", 1)[0]


def _is_readable(op: torch._ops.OpOverload, node: fx.Node) -> bool:
    """Whether the rest of this package knows the op; composite views are better taken apart by torch."""
    name = _name(op)
    if name not in _KNOWN and name not in ROLES:
        return "_assert" in name
    if (name == "aten.batch_norm" and node.args[5:6] != (False,)) or (name in DROPOUTS and node.args[2:3] != (False,)):
        return False  # as in training
    is_view = any(a.alias_info is not None for a in op._schema.arguments)
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    return not (is_view and composite) or name in _VIEWS


def _keeps_type(node: fx.Node) -> bool:
    """Whether the functional op would answer in the same type: in place, the first argument's type wins."""
    values = [node.meta.get("val"), *(a.meta.get("val") for a in node.all_input_nodes)]
    types = {v.dtype for v in values if isinstance(v, Tensor)}
    return len(types) == 1 and all(t.is_floating_point for t in types)
