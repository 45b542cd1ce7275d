"""Rewrites that keep the function but not its last bits: BatchNorm into weights, attention and LSTMs into products."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import CaptureError
from spikecast.graph.capture.clean import Rewriter, drop_dead
from spikecast.graph.capture.lowrank import merge_adapters
from spikecast.graph.capture.one_hot import open_one_hot
from spikecast.graph.capture.recurrent import open_recurrent
from spikecast.graph.program import Meta, Node, Program, Ref

_TRANSPOSED = ("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
_WEIGHTED = ("aten.conv1d", "aten.conv2d", "aten.conv3d", *_TRANSPOSED, "aten.linear")


def simplify(program: Program) -> Program:
    """Fold adapters, and per-channel affine ops, into the weighted op beside or before them, then open attention.

    Recurrent layers and one-hot codes are opened as well.
    """
    writer = Rewriter(open_recurrent(fold_affine(merge_adapters(open_one_hot(program)))))
    return drop_dead(writer.run(partial(_open_attention, writer)))


def fold_affine(program: Program) -> Program:
    """BatchNorm, and scales and shifts by a constant per channel, move into the conv or linear before them."""
    while True:
        writer = Rewriter(program)
        folded = drop_dead(writer.run(_Fold(writer)))
        if len(folded.nodes) == len(program.nodes):
            return folded
        program = folded


class _Fold:
    """One pass of folding: an affine op is taken into the op before it where nobody else reads that one."""

    def __init__(self, writer: Rewriter) -> None:
        self.writer, self.program = writer, writer.program
        self.outputs = set(self.program.output_names)
        self.done: set[str] = set()  # ops that took something in; what follows them waits for the next pass

    def __call__(self, node: Node) -> Node | None:
        found = _affine(node, self.program)
        if found is None:
            return None
        source, scale, shift = found
        made = self.program.flow.by_name.get(source)
        if made is None or source in self.done or made.op not in _WEIGHTED or source in self.outputs:
            return None
        if len(self.program.users[source]) > 1 or not all(_is_by_channel(made, value) for value in (scale, shift)):
            return None
        merged = _merged(self.writer, made, node, scale, shift)
        if merged is not None:
            self.done.add(node.name)
        return merged


def _affine(node: Node, program: Program) -> tuple[str, Tensor | None, Tensor | None] | None:
    """(input, scale, shift) in float64, shaped to broadcast against the op's result."""
    tensors = program.tensors
    if node.op == "aten.batch_norm" and not node.args[5]:
        x, weight, bias, mean, var, _, _, eps, _ = node.args
        if any(isinstance(a, Ref) and a.name not in tensors for a in (weight, bias, mean, var)):
            return None
        m, v = tensors[mean.name].double(), tensors[var.name].double()
        scale = (1.0 if weight is None else tensors[weight.name].double()) / torch.sqrt(v + eps)
        shift = (0.0 if bias is None else tensors[bias.name].double()) - m * scale
        rank = node.meta.rank if isinstance(node.meta, Meta) else 4
        form = (1, -1, *(1,) * (rank - 2))
        return x.name, scale.reshape(form), shift.reshape(form)
    if node.target in ("aten.mul.Tensor", "aten.add.Tensor", "aten.sub.Tensor") and not node.kwargs:
        a, b = node.args
        if isinstance(a, Ref) and a.name in tensors and node.op != "aten.sub":
            a, b = b, a
        if isinstance(a, Ref) and isinstance(b, Ref) and a.name not in tensors and b.name in tensors:
            value = tensors[b.name].double()
            if node.op == "aten.mul":
                return a.name, value, None
            return a.name, None, value if node.op == "aten.add" else -value
    return None


def _channels(node: Node) -> tuple[int, ...]:
    """The shape of a value for each output channel of a weighted op."""
    assert isinstance(node.meta, Meta)
    axis = node.meta.rank - 1 if node.op == "aten.linear" else 1
    return tuple(size if i == axis else 1 for i, size in enumerate(node.meta.shape))


def _is_by_channel(node: Node, value: Tensor | None) -> bool:
    """Whether a value varies along nothing but the output channels of a weighted op."""
    form = _channels(node)
    return value is None or torch.broadcast_shapes(value.shape, form) == form


def _merged(writer: Rewriter, made: Node, node: Node, scale: Tensor | None, shift: Tensor | None) -> Node | None:
    """The weighted op with the affine op inside it, in float64 rounded once."""
    weight_ref, bias_ref = made.args[1], made.argument(2, "bias")
    if weight_ref.name not in writer.tensors or (bias_ref is not None and bias_ref.name not in writer.tensors):
        return None
    weight = writer.tensors[weight_ref.name]
    new_weight = weight.double()
    size = math.prod(_channels(made))
    bias = new_weight.new_zeros(size) if bias_ref is None else writer.tensors[bias_ref.name].double()
    if scale is not None:
        factor = scale.reshape(-1).expand(size)
        new_weight = new_weight * _along_output(made, factor, new_weight)
        bias = bias * factor
    if shift is not None:
        bias = bias + shift.reshape(-1).expand(size)
    stem = weight_ref.name.removesuffix(".weight")
    args = list(made.args) + [None] * (3 - len(made.args))
    args[1] = writer.constant(f"{stem}.weight.folded", new_weight.to(weight.dtype))
    args[2] = writer.constant(f"{stem}.bias.folded", bias.to(weight.dtype))
    kwargs = {k: v for k, v in made.kwargs.items() if k != "bias"}
    return dataclasses.replace(made, name=node.name, args=tuple(args), kwargs=kwargs)


def _along_output(node: Node, factor: Tensor, weight: Tensor) -> Tensor:
    """The factor shaped to scale the weight's output channels; a transposed conv keeps them second, by group."""
    if node.op not in _TRANSPOSED:
        return factor.reshape(-1, *(1,) * (weight.dim() - 1))
    groups = int(node.argument(6, "groups", 1))
    per_group = factor.reshape(groups, 1, -1).expand(groups, weight.shape[0] // groups, -1)
    return per_group.reshape(weight.shape[0], -1, *(1,) * (weight.dim() - 2))


def _open_attention(writer: Rewriter, node: Node) -> Ref | None:
    """softmax(q·kᵀ·scale + mask)·v in place of the fused op, so that both products can be fed by spikes."""
    if node.op != "aten.scaled_dot_product_attention":
        return None
    query, key, value = node.args[:3]
    mask = node.argument(3, "attn_mask")
    causal, scale = node.argument(5, "is_causal", False), node.argument(6, "scale")
    if node.argument(4, "dropout_p", 0.0):
        raise CaptureError(
            f"attention in {node.scope!r} drops out at inference; call model.eval(), or set its dropout to 0"
        )
    metas = {**writer.program.metas, **{n.name: n.meta for n in writer.nodes}}
    q, k, v = (metas[ref.name] for ref in (query, key, value))
    assert isinstance(q, Meta) and isinstance(k, Meta) and isinstance(v, Meta)
    if node.argument(7, "enable_gqa", False):
        key, k = _repeat_heads(writer, node, key, k, q.shape[-3])
        value, v = _repeat_heads(writer, node, value, v, q.shape[-3])
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scaled = writer.emit(node, "aten.mul.Tensor", (query, factor), q, "query")
    swap: dict[int | None, int] = {k.rank - 2: k.rank - 1, k.rank - 1: k.rank - 2}
    turned = Meta((*k.shape[:-2], k.shape[-1], k.shape[-2]), k.dtype, swap.get(k.batch_axis, k.batch_axis))
    key_t = writer.emit(node, "aten.transpose.int", (key, -2, -1), turned, "key")
    table = Meta((*q.shape[:-1], k.shape[-2]), q.dtype, q.batch_axis)
    scores = writer.emit(node, "aten.matmul.default", (scaled, key_t), table, "scores")
    softmax = "aten.softmax.int"
    if mask is not None or causal:
        scores = _masked(writer, node, scores, table, mask, metas, causal)
        softmax = "aten._safe_softmax.default"  # a row that is masked whole attends to nothing, as in the fused op
    weights = writer.emit(node, softmax, (scores, -1), table, "attention")
    return writer.emit(node, "aten.matmul.default", (weights, value), node.meta, "attended")


def _repeat_heads(writer: Rewriter, node: Node, ref: Ref, meta: Meta, heads: int) -> tuple[Ref, Meta]:
    """Every head as often as it takes to have as many as the queries."""
    times = heads // meta.shape[-3]
    if times == 1:
        return ref, meta
    wide = Meta((*meta.shape[:-3], heads, *meta.shape[-2:]), meta.dtype, meta.batch_axis)
    return writer.emit(node, "aten.repeat_interleave.self_int", (ref, times, meta.rank - 3), wide), wide


def _masked(
    writer: Rewriter, node: Node, scores: Ref, table: Meta, mask: Any, metas: dict[str, Any], causal: bool
) -> Ref:
    if causal:
        length = writer.emit(node, "aten.sym_size.int", (scores, table.rank - 2), None, "rows")
        width = writer.emit(node, "aten.sym_size.int", (scores, table.rank - 1), None, "columns")
        flat = Meta(table.shape[-2:], table.dtype, None)
        ones = writer.emit(node, "aten.new_ones.default", (scores, (length, width)), flat, "ones")
        upper = writer.emit(node, "aten.triu.default", (ones, 1), flat, "future")
        hides = dataclasses.replace(flat, dtype=torch.bool)
        future = writer.emit(node, "aten.gt.Scalar", (upper, 0), hides, "future")
        scores = writer.emit(node, "aten.masked_fill.Scalar", (scores, future, -math.inf), table, "causal")
    if mask is None:
        return scores
    meta = metas[mask.name]
    if meta.dtype == torch.bool:
        hidden = writer.emit(node, "aten.logical_not.default", (mask,), meta, "hidden")
        return writer.emit(node, "aten.masked_fill.Scalar", (scores, hidden, -math.inf), table, "masked")
    return writer.emit(node, "aten.add.Tensor", (scores, mask), table, "masked")
