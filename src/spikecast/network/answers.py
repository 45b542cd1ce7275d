"""The leaves of an answer: steps taken out of the batch, chunks of the batch put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Meta, Program, Ref

Place = tuple[int | None, int]  # the batch axis of an output, and how often the batch repeats inside it


def unfolded(execution: Execution, out: Any, value: Any, total: int) -> Any:
    """An output of a folded run as [T, ...]; what does not move is the same after each step."""
    if not isinstance(out, Ref) or not isinstance(value, Tensor):
        return value
    if out.name in execution.moving:
        return execution.unfold(out.name, value, total)
    return value.unsqueeze(0).expand(total, *value.shape)


def in_time(parts: list[Any]) -> Any:
    """Passes over a few steps each put together, each [t, ...]; the last where they are no tensors."""
    return torch.cat(parts) if len(parts) > 1 and isinstance(parts[0], Tensor) else parts[-1]


def stacked(values: list[Any]) -> Any:
    """Answers of all steps as one tensor; as a list where their shapes differ; the last where they are no tensors."""
    if not isinstance(values[0], Tensor):
        return values[-1]
    return torch.stack(values) if len({v.shape for v in values}) == 1 else values


def batch_place(execution: Execution, out: Any) -> Place:
    """The axis of an output that holds the batch, and how often the batch repeats inside it."""
    meta = execution.metas[out.name] if isinstance(out, Ref) else None
    return (meta.batch_axis, execution.outer.get(out.name, 1)) if isinstance(meta, Meta) else (None, 1)


def join(parts: list[Any], axis: int | None, outer: int) -> Any:
    """Chunks of the batch put together again, each [T, ...]."""
    if len(parts) == 1 or axis is None or not isinstance(parts[0], Tensor):
        return parts[-1]
    split = [part.unflatten(axis + 1, (outer, -1)) for part in parts]
    return torch.cat(split, axis + 2).flatten(axis + 1, axis + 2)


def with_sizes(program: Program, tensors: Sequence[Tensor], leaves: list[Any]) -> list[Any]:
    """Sizes in an answer are those of the whole call, not of a chunk of it or of the samples that are left."""
    if all(isinstance(leaf, Tensor) for leaf in leaves):
        return leaves
    values: dict[str, Any] = {spec.name: tensor for spec, tensor in zip(program.inputs, tensors, strict=True)}
    for node in program.nodes:
        if node.is_size and all(name in values for name in node.inputs):
            values[node.name] = node.call(lambda ref: values[ref.name])
    sized = [out.name if isinstance(out, Ref) and program.metas[out.name] is None else "" for out in program.outputs]
    return [values.get(name, leaf) for name, leaf in zip(sized, leaves, strict=True)]
