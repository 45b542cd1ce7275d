"""In which order a program is run, and what may be overwritten or forgotten on the way; made once per program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spikecast.graph.program import NEURON, Meta, Node, Program, Ref

# Ops that can write over their first argument. A new large tensor costs more than filling it: the system hands out its
# pages one by one.
IN_PLACE: dict[str, Callable[..., Tensor]] = {
    "aten.add.Tensor": torch.ops.aten.add_.Tensor,
    "aten.mul.Tensor": torch.ops.aten.mul_.Tensor,
    "aten.gelu.default": torch.ops.aten.gelu_.default,
    "aten.silu.default": torch.ops.aten.silu_.default,
}
# Ops whose result is memory of its own, no part of another value.
_FRESH = frozenset(
    f"aten.{name}"
    for name in (
        *("linear", "matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("add", "mul", "gelu", "silu", "softmax", "layer_norm", "group_norm"),
    )
)


@dataclass(frozen=True)
class Schedule:
    """The ops of a program by when they run.

    moving         values that differ from step to step
    once           ops that run once for a call, in order
    steps          ops that run at each step, in order; sizes are among both
    overwriting    ops of `steps` that may write over their first argument
    after_once     by op, the values that nobody needs after it; `after_step` the same within a step
    """

    moving: frozenset[str]
    once: tuple[Node, ...]
    steps: tuple[Node, ...]
    overwriting: frozenset[str]
    after_once: Mapping[str, Sequence[str]]
    after_step: Mapping[str, Sequence[str]]


def make_schedule(program: Program, inputs_move: bool) -> Schedule:
    """Of a program whose inputs are the same at each step, or change with it."""
    moving = _moving(program, inputs_move)
    once = tuple(n for n in program.nodes if n.name not in moving)
    steps = tuple(n for n in program.nodes if n.name in moving or n.is_size)
    outputs, read = set(program.output_names), {name for node in steps for name in node.inputs}
    return Schedule(
        moving=moving,
        once=once,
        steps=steps,
        overwriting=frozenset(_overwriting(program, moving)),
        after_once=_last_uses(once, keep=read | outputs),
        after_step=_last_uses(steps, keep=outputs | {n.name for n in once}),
    )


def _moving(program: Program, inputs_move: bool) -> frozenset[str]:
    moving = {i.name for i in program.inputs} if inputs_move else set()
    for node in program.nodes:
        if node.target == NEURON or not moving.isdisjoint(node.inputs):
            moving.add(node.name)
    return frozenset(moving)


def _overwriting(program: Program, moving: frozenset[str]) -> Iterable[str]:
    """Neurons and ops of `IN_PLACE` that are the only ones to read their first argument, which moves and is fresh."""
    by_name, users, outputs = program.flow.by_name, program.users, set(program.output_names)
    for node in program.nodes:
        if (node.target != NEURON and node.target not in IN_PLACE) or not isinstance(node.args[0], Ref):
            continue
        source = by_name.get(node.args[0].name)
        if source is None or source.op not in _FRESH or source.name not in moving or source.name in outputs:
            continue
        alike = isinstance(source.meta, Meta) and isinstance(node.meta, Meta) and source.meta.dtype == node.meta.dtype
        if alike and len(users.get(source.name, ())) == 1 and sum(name == source.name for name in node.inputs) == 1:
            yield node.name


def keeps_form(args: Sequence[Any]) -> bool:
    """Whether the result of an elementwise op has the form of its first argument."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    first = tensors[0]
    return all(t.dtype == first.dtype and torch.broadcast_shapes(t.shape, first.shape) == first.shape for t in tensors)


def _last_uses(nodes: Sequence[Node], keep: set[str]) -> dict[str, list[str]]:
    """Values that nobody needs after an op, by the op's name."""
    seen: set[str] = set(keep)
    last: dict[str, list[str]] = {}
    for node in reversed(nodes):
        for name in (*node.inputs, node.name):
            if name not in seen:
                seen.add(name)
                last.setdefault(node.name, []).append(name)
    return last
