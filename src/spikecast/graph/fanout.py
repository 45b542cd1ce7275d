"""How many products each entry of a weighted op's input takes part in: whole numbers, exact at the borders.

Arguments come with tensors as their shapes (torch.Size), so that nothing has to be multiplied to count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import ModelError
from spikecast.graph.program import Node, Ref, replace_refs, resolve
from spikecast.graph.roles import ADDED

# Matrix products in which every entry of a factor is used equally often.
UNIFORM = frozenset(f"aten.{name}" for name in ("linear", "matmul", "mm", "bmm", "mv", "addmm", "baddbmm"))


@dataclass(frozen=True)
class FanOut:
    """What becomes of one data input of a weighted op.

    taps, factor  their product says how many products each entry takes part in; the taps are int64 and broadcast
                  against the input. Those of a convolution are of one filter, the factor is the number of filters.
    products      multiply-accumulates of the whole op
    """

    taps: Tensor
    factor: int
    products: int


def is_convolution(node: Node) -> bool:
    return node.op.startswith("aten.conv")


def fan_out(node: Node, args: Sequence[Any], position: int) -> FanOut:
    """The fan-out of the tensor at `position` among those of the arguments."""
    if is_convolution(node):
        taps, filters = _convolution(node, args)
        return FanOut(taps, filters, int(taps.sum()) * filters * (math.prod(args[0]) // max(taps.numel(), 1)))
    if node.op in UNIFORM:
        number = _products(node, args)
        return FanOut(torch.ones((), dtype=torch.int64), number // max(math.prod(args[position]), 1), number)
    taps = _by_gradient(node, args, position)
    return FanOut(taps, 1, int(taps.sum()))


def all_arguments(node: Node, look_up: Callable[[Ref], Any]) -> list[Any]:
    """All arguments of an op by position, those left out too."""
    schema = [a for a in resolve(node.target)._schema.arguments if not a.kwarg_only]  # type: ignore[attr-defined]
    given = [node.argument(i, a.name, a.default_value) for i, a in enumerate(schema)]
    return list(replace_refs(given, look_up))


def _products(node: Node, args: Sequence[Any]) -> int:
    """All products of a matrix product in `UNIFORM`."""
    left, right = (tuple(shape) for shape in args[node.op in ADDED :][:2])
    if node.op == "aten.linear":
        return int(math.prod(left) * math.prod(right[:-1]))
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    return int(math.prod(torch.broadcast_shapes(left[:-2], right[:-2])) * rows * columns * left[-1])


def _convolution(node: Node, args: Sequence[Any]) -> tuple[Tensor, int]:
    weight, settings = tuple(args[1]), [tuple(a) if isinstance(a, list | tuple) else a for a in args[3:]]
    is_general = node.op == "aten.convolution"
    is_transposed = bool(settings[3]) if is_general else "transpose" in node.op
    place = 5 if is_general else 3  # of the number of groups
    filters = weight[1] if is_transposed else weight[0] // settings[place]
    settings[place] = 1
    return _taps(node.target, tuple(args[0])[2 - len(weight) :], weight[2:], tuple(settings)), filters


@lru_cache(maxsize=1024)
def _taps(target: str, sizes: tuple[int, ...], kernel: tuple[int, ...], settings: tuple[Any, ...]) -> Tensor:
    """For each place of one channel, how many outputs of one filter read it: the gradient of their sum."""
    with torch.enable_grad():
        x = torch.ones((1, 1, *sizes), dtype=torch.float64, requires_grad=True)
        out = resolve(target)(x, torch.ones((1, 1, *kernel), dtype=torch.float64), None, *settings)
        (taps,) = torch.autograd.grad(out.sum(), x)
    taps = taps[0].round().long()
    return taps.flatten()[0].clone() if bool((taps == taps.flatten()[0]).all()) else taps


def _by_gradient(node: Node, args: Sequence[Any], position: int) -> Tensor:
    """Of any op that is linear in the tensor: with ones for all others, the gradient of the sum counts products."""
    tensors: list[Tensor] = []

    def ones(value: Any) -> Any:
        if isinstance(value, torch.Size):
            tensors.append(torch.ones(value, dtype=torch.float64))
            return tensors[-1]
        return [ones(v) for v in value] if isinstance(value, list | tuple) else value

    filled = [ones(value) for value in args]
    try:
        with torch.enable_grad():
            x = tensors[position].requires_grad_()
            (taps,) = torch.autograd.grad(resolve(node.target)(*filled).sum(), x)
    except RuntimeError as error:  # an op that a user registered
        raise ModelError(
            f"the products of {node.op} cannot be counted: it has no gradient; give it one with "
            "torch.library.register_autograd, or register it as nonlinear"
        ) from error
    return taps.round().long()
