"""From the arguments of a call to the tensors a program takes, and whether that program may be used for them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.errors import DataError, first_line
from spikecast.graph.guards import evaluate
from spikecast.graph.program import Program
from spikecast.graph.structure import Structure, flatten, unflatten
from spikecast.theory.modes import is_exporting

TENSOR = "<tensor>"  # stands for a tensor among the leaves of a call; None is an argument like others


def call_leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Tensor], Structure]:
    """The tensors of a call, and everything else about it, comparable with a program's `input_structure`."""
    leaves, form = flatten((tuple(args), dict(kwargs)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    constants = [TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return tensors, {"kind": "call", "form": form, "constants": constants}


def positional_names(model: nn.Module) -> tuple[str, ...]:
    """The names of the arguments that forward takes by position; none where it does not say."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # no Python function
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in kinds)


def arranged(
    program: Program, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """A call in the form a program was captured with, where it gives the same arguments by place or by name."""
    names, (positional, named) = program.parameters, program.input_structure["form"]["items"]
    count = len(positional["items"])
    wanted = [*names[:count], *(key for key, _ in named["items"])]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    if len(given) != len(args) + len(kwargs) or count > len(names) or given.keys() != set(wanted):
        return args, kwargs
    return [given[name] for name in wanted[:count]], {name: given[name] for name in wanted[count:]}


def misfit(program: Program, tensors: Sequence[Tensor], structure: Structure) -> str | None:
    """Why a program cannot take this call; None where it can."""
    if structure != program.input_structure or len(tensors) != len(program.inputs):
        return "it was captured for other arguments"
    sizes: dict[str, int] = {}
    for spec, tensor in zip(program.inputs, tensors, strict=True):
        if tensor.dtype != spec.meta.dtype:
            return f"{spec.name} is {tensor.dtype}, not {spec.meta.dtype}"
        pairs = zip(spec.dims, tensor.shape, strict=False)
        fits = [(dim if isinstance(dim, int) else sizes.setdefault(dim, size)) == size for dim, size in pairs]
        if tensor.dim() != len(spec.dims) or not all(fits):
            wanted = ", ".join(str(dim) if isinstance(dim, int) else "any" for dim in spec.dims)
            name = "the input" if len(tensors) == 1 else spec.name
            return f"{name} has shape {tuple(tensor.shape)}, and the network takes ({wanted})"
    try:
        if not all(evaluate(guard, sizes) for guard in program.guards):
            return f"the model takes another path for inputs of {_shapes(tensors)}"
    except (ArithmeticError, TypeError, ValueError) as error:
        return f"its conditions on sizes cannot be computed for inputs of {_shapes(tensors)} ({first_line(error)})"
    return None


def _shapes(tensors: Sequence[Tensor]) -> str:
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors)


def form(tensor: Tensor) -> str:
    """What keeps a tensor from being an array of real numbers: sparse, nested, complex, quantised; or nothing."""
    if tensor.is_quantized:
        return "quantised"
    if tensor.is_nested:
        return "nested"
    if tensor.layout != torch.strided:
        return f"sparse ({tensor.layout})"
    return "complex" if tensor.is_complex() else ""


def check_finite(tensors: Sequence[Tensor]) -> None:
    """Refuse an input that is no array of real numbers, or holds NaN or inf: that would go through every later step.

    A trace has no values yet.
    """
    if is_exporting():
        return
    for tensor in tensors:
        if odd := form(tensor):
            raise DataError(f"an input is {odd}, and neurons take dense real numbers; give such a tensor")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            kind = "NaN" if bool(torch.isnan(tensor).any()) else "inf"
            raise DataError(f"an input of shape {tuple(tensor.shape)} holds {kind}; clean the data before the network")


def batch_size(program: Program, tensors: Sequence[Tensor]) -> int | None:
    """How many samples a call holds; None where the batch size is pinned."""
    axes = ((spec.meta.batch_axis, tensor.shape) for spec, tensor in zip(program.inputs, tensors, strict=True))
    return next((shape[axis] for axis, shape in axes if axis is not None), None)


def take(program: Program, tensors: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
    """Samples start to stop of a call."""
    return [
        t if s.meta.batch_axis is None else t.narrow(s.meta.batch_axis, start, stop - start)
        for s, t in zip(program.inputs, tensors, strict=True)
    ]


def folded(program: Program, steps: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The tensors of several calls, laid one after the other into the batch; those without one are the first call's."""
    axes = [spec.meta.batch_axis for spec in program.inputs]
    inputs = zip(axes, zip(*steps, strict=True), strict=True)
    return [parts[0] if axis is None else torch.cat(parts, axis) for axis, parts in inputs]


def cloned(call: tuple[Any, Any]) -> tuple[Any, Any]:
    """A call with tensors of its own, for a forward that may write to them."""
    leaves, form = flatten(call)
    args, kwargs = unflatten(form, [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves])
    return args, kwargs


def axis_of_batch(tensor: Tensor, batch: int, batch_axis: int) -> int | None:
    """Where a tensor's batch is: in the same place as the first one's, or in front, as in the mask of an encoder.

    Of three axes it may also be the second, as in the states of an LSTM; not where the third is as long, as in a mask.
    """
    places = (batch_axis, 0, 1) if tensor.dim() == 3 and tensor.shape[2] != batch else (batch_axis, 0)
    return next((i for i in places if tensor.dim() > i and tensor.shape[i] == batch), None)
