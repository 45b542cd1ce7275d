"""How a fused kernel walks over tensors of any layout: rows that lie without gaps in memory, and where each begins.

A step of a site has its axes in any order in memory. Taken in that order, the last ones merge into a *run*; the axes
before it number the rows. The output is laid out like the input: what was folded into its batch folds back for free.
Everything here depends on shapes and strides alone, and is worked out once for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

MIN_RUN = 256  # shorter rows are worth lengthening,
MIN_ROWS = 512  # if there are more of them than this, times steps

Shape = tuple[int, ...]


class Broadcast(NamedTuple):
    """How a table [k, ...] of what is broadcast against a step (thresholds) lies next to the run.

    order    its axes as they are to lie in memory; None where they do
    sizes    of those axes, None where none has to be repeated
    numel    of one of the k
    strides  along the axes that number the rows
    vector   whether each neuron of a run has its own entry
    """

    order: Shape | None
    sizes: Shape | None
    numel: int
    strides: Shape
    vector: bool


class Walk(NamedTuple):
    """The way over one step: its `axes` of size > 1 by falling stride, the last of which make up the run.

    The axes before the run have `sizes`, and strides in each tensor.
    """

    output_strides: Shape
    copy_input: bool
    copy_state: bool
    axes: Shape
    run: int
    sizes: Shape
    strides: tuple[Shape, Shape, Shape]  # of input, output and state
    broadcast: tuple[Broadcast, ...]
    summed: tuple[int, int]  # of neuron p on the way, the count is p // (size·inside)·inside + p % inside


@lru_cache(maxsize=4096)
def walk(
    shape: Shape,
    strides: Shape,
    state_strides: Shape | None = None,
    broadcast: tuple[Shape, ...] = (),
    summed_axis: int | None = None,
    stop_at_sum: bool = False,
) -> Walk:
    """The way over inputs [T, ...]; `broadcast` are the shapes of what is broadcast against a step.

    Counts lie in the order of the way, without the axis of a step that they are summed over. Where the way is to stop
    at the sum, and the summed axis is the last, it is a run of its own, whose neurons share one count.
    """
    output_strides = like(shape, strides)
    inner, output = shape[1:], output_strides[1:]
    axes = tuple(sorted((d for d, size in enumerate(inner) if size > 1), key=lambda d: -output[d]))
    copy_input = bool(axes) and strides[1 + axes[-1]] != 1
    copy_state = state_strides is not None and bool(axes) and state_strides[axes[-1]] != 1
    stored = (
        output if copy_input else strides[1:],
        output,
        compact(inner, axes) if state_strides is None or copy_state else state_strides,
    )
    shapes = [_padded(s, len(inner)) for s in broadcast]
    first = len(axes) - _merged(shape, axes, stored, shapes)
    if stop_at_sum and axes and summed_axis == axes[-1]:
        first = len(axes) - 1
    return Walk(
        output_strides=output_strides,
        copy_input=copy_input,
        copy_state=copy_state,
        axes=axes,
        run=math.prod(inner[d] for d in axes[first:]),
        sizes=tuple(inner[d] for d in axes[:first]),
        strides=tuple(tuple(s[d] for d in axes[:first]) for s in stored),  # type: ignore[arg-type]
        broadcast=tuple(_broadcast(s, inner, axes, first) for s in shapes),
        summed=_summed(inner, axes, summed_axis),
    )


def _merged(shape: Shape, axes: Shape, stored: Sequence[Shape], broadcast: Sequence[Shape]) -> int:
    """How many of the last axes make up the run; where it is short, what is broadcast is repeated to lengthen it."""
    inner = shape[1:]
    merged, run = min(1, len(axes)), math.prod(inner[d] for d in axes[-1:])
    while merged < len(axes):
        d, after = axes[-merged - 1], axes[-merged]
        joins = all(s[d] == s[after] * inner[after] for s in stored)
        alike = all(len({s[a] > 1 for a in (d, *axes[-merged:])}) == 1 for s in broadcast)
        is_short = run < MIN_RUN and math.prod(shape) // run > MIN_ROWS
        if not (joins and (alike or is_short)):
            break
        merged, run = merged + 1, run * inner[d]
    return merged


def _broadcast(shape: Shape, inner: Shape, axes: Shape, first: int) -> Broadcast:
    wide = [d for d in range(len(inner)) if shape[d] > 1]
    sizes = [shape[d] for d in axes]
    in_run = {size > 1 for size in sizes[first:]}
    mixed = len(in_run) == 2
    if mixed:
        sizes[first:] = [inner[d] for d in axes[first:]]
    lies_well = not mixed and [d for d in axes if shape[d] > 1] == wide
    steps = compact(tuple(sizes), range(len(sizes)))
    return Broadcast(
        order=None if lies_well else (*axes, *(d for d in range(len(inner)) if d not in axes)),
        sizes=tuple(sizes) if mixed else None,
        numel=math.prod(sizes),
        strides=tuple(0 if sizes[i] == 1 else steps[i] for i in range(first)),
        vector=True in in_run,
    )


def arranged(table: Tensor, how: Broadcast, dims: int) -> Tensor:
    """A table [k, ...] as it is to lie next to the run."""
    if how.order is None:
        return table.contiguous()
    table = table.reshape(-1, *(1,) * (dims + 1 - table.dim()), *table.shape[1:])
    table = table.permute(0, *(1 + d for d in how.order))
    if how.sizes is not None:
        table = table.expand(-1, *how.sizes, *(1,) * (dims - len(how.sizes)))
    return table.contiguous()


@lru_cache(maxsize=4096)
def broadcasts(shape: Shape, inner: Shape) -> bool:
    """Whether a tensor can be broadcast against one step without adding to its axes or their sizes."""
    return len(shape) <= len(inner) and all(size in (1, inner[d]) for d, size in enumerate(_padded(shape, len(inner))))


def _padded(shape: Shape, dims: int) -> Shape:
    """With as many axes as a step has."""
    return (1,) * (dims - len(shape)) + tuple(shape)


def like(shape: Shape, strides: Shape) -> Shape:
    """Strides without gaps in the order of the given ones: the same, if they have none and time is not innermost."""
    sizes = sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1)
    dense = all(stride == math.prod(s for _, s in sizes[:i]) for i, (stride, _) in enumerate(sizes))
    if dense and (strides[0] != 1 or shape[0] == 1 or len(sizes) == 1):
        return strides
    order = list(range(1, len(shape)))
    if all(strides[d] for d in order if shape[d] > 1):
        order.sort(key=lambda d: -strides[d])
    return compact(shape, (0, *order))


def compact(shape: Shape, order: Sequence[int]) -> Shape:
    """Strides of a tensor whose axes lie in memory in this order; axes that are left out have size 1."""
    strides = [1] * len(shape)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def _summed(inner: Shape, axes: Shape, axis: int | None) -> tuple[int, int]:
    """The size of the axis that counts are summed over, and of all that lies inside it."""
    if axis not in axes:
        return 1, math.prod(inner)
    return inner[axis], math.prod(inner[d] for d in axes[axes.index(axis) + 1 :])


def in_place(counts: Tensor, way: Walk, inner: Shape, axis: int) -> Tensor:
    """Counts [..., n] in the order of the way, with the axes of a step but the one they are summed over."""
    kept = [d for d in way.axes if d != axis]
    lead = counts.dim() - 1
    apart = counts.reshape(*counts.shape[:-1], *(inner[d] for d in kept))
    apart = apart.permute(*range(lead), *(lead + kept.index(d) for d in sorted(kept)))
    return apart.reshape(*counts.shape[:-1], *(size for d, size in enumerate(inner) if d != axis))


def empty_levels(outputs: Tensor, burst: int) -> Tensor:
    """Room for levels [T, burst, ...], all silent; the pulses of one number lie in memory as the outputs do."""
    levels = outputs.new_empty_strided((burst, *outputs.shape), (outputs.numel(), *outputs.stride()), dtype=torch.int8)
    return (levels.zero_() if burst > 1 else levels).movedim(0, 1)
