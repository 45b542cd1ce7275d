"""What every fused kernel does first with its arguments: find the way over them, and copy what it cannot walk."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spikecast.kernels.count import Count, resolve
from spikecast.kernels.layout import Walk, compact, walk


class Operands(NamedTuple):
    """Inputs and state as they can be walked, the fan-outs and the axis to count, and the way."""

    inputs: Tensor
    state: Tensor | None
    fan_out: Tensor | None
    axis: int | None
    way: Walk


def operands(
    inputs: Tensor, state: Tensor | None, threshold: Tensor, count: Count | None, *, stop_at_sum: bool = False
) -> Operands:
    """The arguments of `encode`, once `kernels.encode` has checked them."""
    inputs, shape, inner = inputs.detach().resolve_neg(), tuple(inputs.shape), tuple(inputs.shape[1:])
    held = None if state is None else state.detach().to(torch.float32).resolve_neg()
    fan_out, axis = (None, None) if count is None else resolve(count, inputs[0])
    shapes = tuple(tuple(x.shape) for x in (threshold, fan_out) if x is not None)
    way = walk(shape, inputs.stride(), None if held is None else held.stride(), shapes, axis, stop_at_sum)
    if way.copy_input:
        inputs = inputs.new_empty_strided(shape, way.output_strides).copy_(inputs)
    if way.copy_state and held is not None:
        held = held.new_empty_strided(inner, compact(inner, way.axes)).copy_(held)
    return Operands(inputs, held, fan_out, axis, way)
