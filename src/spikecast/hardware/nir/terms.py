"""Linear wiring as sums of terms, put together in float64 and rounded once when it becomes a NIR node.

A value of the network is Σ op(scale ⊙ source) over NIR nodes: the scale holds thresholds on their way into weights
(W·θ_in/θ_out), the op is one convolution or one matrix. What can be merged into one op exactly, is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

Pair = tuple[int, int]
ONE = torch.ones((), dtype=torch.float64)


@dataclass(frozen=True)
class Op:
    """A convolution [out, in, k, k], or a matrix [out, in], with what it adds; `origin` names a weight as it was."""

    weight: Tensor
    bias: Tensor
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    origin: str | None = None
    label: str = "synapse"

    @property
    def is_pointwise(self) -> bool:
        """Whether each place of the result is made of one place of the input."""
        return self.weight.dim() == 2 or (self.weight.shape[2:] == (1, 1) and self.padding == (0, 0))


@dataclass(frozen=True)
class Term:
    """What one NIR node contributes to a value."""

    source: str
    scale: Tensor = ONE  # one number, or one for each channel of the source
    op: Op | None = None

    def times(self, factor: Tensor) -> Term:
        """The term with each of its channels multiplied."""
        if self.op is None:
            return dataclasses.replace(self, scale=self.scale * factor)
        if bool((factor == 1).all()):
            return self
        weight = self.op.weight * factor.reshape(-1, *(1,) * (self.op.weight.dim() - 1))
        op = dataclasses.replace(self.op, weight=weight, bias=self.op.bias * factor, origin=None)
        return dataclasses.replace(self, op=op)

    def plus(self, shift: Tensor) -> Term:
        """The term with a constant added to each of its channels; it must have an op."""
        assert self.op is not None
        return dataclasses.replace(self, op=dataclasses.replace(self.op, bias=self.op.bias + shift))

    def through(self, op: Op) -> Term | None:
        """The term behind one more op; None where the two are not one op."""
        if self.op is None:
            return Term(self.source, op=_behind_scale(op, self.scale))
        first = self.op
        if op.is_pointwise and (op.stride == (1, 1) or first.is_pointwise):
            return Term(self.source, self.scale, _merged(first, op))
        if first.is_pointwise and first.stride == (1, 1) and not bool(first.bias.any()):
            weight = torch.einsum("oikl,ij->ojkl", op.weight, first.weight.reshape(first.weight.shape[:2]))
            return Term(self.source, self.scale, dataclasses.replace(op, weight=weight, origin=None))
        return None


def _behind_scale(op: Op, scale: Tensor) -> Op:
    if bool((scale == 1).all()):
        return op
    weight = op.weight * scale.reshape(1, -1, *(1,) * (op.weight.dim() - 2))
    return dataclasses.replace(op, weight=weight, origin=None)


def _merged(first: Op, second: Op) -> Op:
    """An op and a pointwise one behind it."""
    matrix = second.weight.reshape(second.weight.shape[:2])
    weight = torch.einsum("oi,i...->o...", matrix, first.weight)
    stride = (first.stride[0] * second.stride[0], first.stride[1] * second.stride[1])
    return dataclasses.replace(first, weight=weight, bias=matrix @ first.bias + second.bias, stride=stride, origin=None)


def matrix_op(weight: Tensor, rank: int, bias: Tensor | None = None, stride: Pair = (1, 1)) -> Op:
    """Channels mixed by a matrix: on maps a 1×1 convolution."""
    weight = weight.double()
    shift = weight.new_zeros(weight.shape[0]) if bias is None else bias.double()
    return Op(weight if rank == 1 else weight[:, :, None, None], shift, stride)


def pool_op(
    channels: int, kernel: Pair, stride: Pair | None = None, padding: Pair = (0, 0), divisor: int | None = None
) -> Op:
    """A mean over windows, side by side unless a stride is given, as a convolution of each channel with itself.

    It is written out as a plain one: NIR's own type check and SpikingJelly take no groups.
    """
    weight = torch.zeros(channels, channels, *kernel, dtype=torch.float64)
    weight[range(channels), range(channels)] = 1.0 / (divisor or kernel[0] * kernel[1])
    return Op(weight, torch.zeros(channels, dtype=torch.float64), stride or kernel, padding)


def plain(weight: Tensor, groups: int) -> Tensor:
    """The weight of a grouped convolution with its zeros written out."""
    blocks: Tensor = weight.unflatten(0, (groups, -1))
    full = blocks.new_zeros(groups, *blocks.shape)  # [group of inputs, group of filters, ...]
    full[range(groups), range(groups)] = blocks
    return full.movedim(0, 2).flatten(0, 1).flatten(1, 2)


def squared(op: Op) -> Op | None:
    """The op with a square kernel, which NIR's shapes take for granted; None where the difference is odd."""
    height, width = op.weight.shape[2:]
    extra = abs(height - width)
    if extra == 0:
        return op
    if extra % 2 or op.dilation != (1, 1):
        return None
    half = extra // 2
    sides = (half, half, 0, 0) if width < height else (0, 0, half, half)
    padding = (op.padding[0] + sides[2], op.padding[1] + sides[0])
    return dataclasses.replace(op, weight=torch.nn.functional.pad(op.weight, sides), padding=padding, origin=None)
