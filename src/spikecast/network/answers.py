"""The leaves of an answer: steps taken out of the batch, chunks of the batch put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Meta, Program, Ref
from spikecast.graph.structure import Steps, flatten, unflatten

Place = tuple[int | None, int]  # the batch axis of an output, and how often the batch repeats inside it


def named_part(answer: Any, *names: str) -> Any:
    """The first tensor that an answer holds under one of the names, as a key or an attribute; else the answer."""
    for name in names:
        found = answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)
        if isinstance(found, Tensor):
            return found
    return answer


def class_scores(answer: Any) -> list[Tensor]:
    """The tensors that may be scores [B, C]: the one called logits, or all of that form."""
    leaves = flatten(named_part(answer, "logits"))[0]
    return [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point() and x.dim() == 2]


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


def stacked(values: Sequence[Any]) -> Any:
    """One leaf of all steps: a tensor with time in front, what is the same at each step as it is, else `Steps`."""
    first = values[0]
    if all(isinstance(v, Tensor) for v in values):
        return torch.stack(list(values)) if len({v.shape for v in values}) == 1 else Steps(values)
    return first if all(type(v) is type(first) and v == first for v in values) else Steps(values)


def with_time(answers: Sequence[Any]) -> Any:
    """Answers after each step as one, with a leading time axis on every tensor; `Steps` where their forms differ."""
    leaves, forms = zip(*(flatten(answer) for answer in answers), strict=True)
    if any(form != forms[0] for form in forms):
        return Steps(answers)
    return unflatten(forms[0], [stacked(leaf) for leaf in zip(*leaves, strict=True)])


def at_step(answers: Any, t: int) -> Any:
    """The answer after one step (0 is the first, -1 the last) out of those after each."""
    leaves, form = flatten(answers)
    return unflatten(form, [leaf[t] if isinstance(leaf, Tensor | Steps) else leaf for leaf in leaves])


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
