"""How each affine op of a network reads as terms: one handler per op; what none of them can say is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spikecast.graph.program import Node
from spikecast.hardware.nir.terms import Op, Pair, Term, matrix_op, plain, pool_op

Shape = tuple[int, ...]


class Unsaid(Exception):  # noqa: N818  not an error: it becomes a line of one
    """A profile has no words for an op; the message says why."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A value of the network: its terms, and its shape without the batch."""

    terms: tuple[Term, ...]
    shape: Shape

    @property
    def channels(self) -> int:
        return self.shape[0] if self.shape else 1


class Call:
    """One op with its arguments: values where data flows in, tensors and numbers elsewhere."""

    def __init__(self, node: Node, args: Sequence[Any], kwargs: dict[str, Any], shape: Shape, push: Any, flatten: Any):
        self.node, self.args, self.kwargs, self.shape = node, args, kwargs, shape
        self.push: Callable[[Value, Op, Shape], Value] = push  # puts an op behind a value
        self.flatten: Callable[[Value, Shape], Value] = flatten

    def get(self, position: int, name: str, default: Any = None) -> Any:
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    @property
    def data(self) -> Value:
        first = self.args[0]
        if not isinstance(first, Value):
            raise Unsaid("its first input is a constant")
        return first


def conv2d(call: Call) -> Value:
    name, bias, padding = call.node.args[1].name, call.get(2, "bias"), call.get(4, "padding", 0)
    if isinstance(padding, str):
        raise Unsaid(f"padding {padding!r} is not written as numbers")
    stride, dilation = _pair(call.get(3, "stride", 1)), _pair(call.get(5, "dilation", 1))
    groups = int(call.get(6, "groups", 1))
    weight = plain(call.args[1], groups).double()
    shift = weight.new_zeros(weight.shape[0]) if bias is None else bias.double()
    op = Op(weight, shift, stride, _pair(padding), dilation, None if groups > 1 else name, weight_label(name))
    return call.push(call.data, op, call.shape)


def linear(call: Call) -> Value:
    if len(call.data.shape) != 1:
        raise Unsaid(f"a matrix on values of shape {call.data.shape}; NIR's matrices take vectors")
    name = call.node.args[1].name
    op = dataclasses.replace(matrix_op(call.args[1], 1, call.get(2, "bias")), origin=name, label=weight_label(name))
    return call.push(call.data, op, call.shape)


def add(call: Call) -> Value:
    sign = -1.0 if call.node.op == "aten.sub" else 1.0
    factor = sign * float(call.kwargs.get("alpha", 1))
    left, right = call.args[0], call.args[1]
    if isinstance(left, Value) and isinstance(right, Value):
        if left.shape != right.shape:
            raise Unsaid(f"it adds values of shapes {left.shape} and {right.shape}")
        return Value((*left.terms, *times(right, factor).terms), call.shape)
    if isinstance(left, Value):
        return _shifted(call, left, by_channel(right, left.shape) * factor)
    return _shifted(call, times(right, factor), by_channel(left, right.shape))


def scale(call: Call) -> Value:
    left, right = call.args[0], call.args[1]
    if call.node.op == "aten.div":
        return times(left, 1.0 / by_channel(right, left.shape))
    data, factor = (left, right) if isinstance(left, Value) else (right, left)
    return times(data, by_channel(factor, data.shape))


def negate(call: Call) -> Value:
    return times(call.data, -1.0)


def batch_norm(call: Call) -> Value:
    x, weight, bias, mean, var, _, _, eps = call.args[:8]
    factor = (1.0 if weight is None else weight.double()) / torch.sqrt(var.double() + eps)
    shift = (0.0 if bias is None else bias.double()) - mean.double() * factor
    return _shifted(call, times(x, factor), shift)


def avg_pool2d(call: Call) -> Value:
    kernel = _pair(call.get(1, "kernel_size"))
    stride = _pair(call.get(2, "stride") or kernel)
    padding = _pair(call.get(3, "padding", 0))
    if call.get(4, "ceil_mode", False) or (padding != (0, 0) and not call.get(5, "count_include_pad", True)):
        raise Unsaid("its windows are cut at the border")
    op = pool_op(call.data.channels, kernel, stride, padding, call.get(6, "divisor_override"))
    return call.push(call.data, op, call.shape)


def adaptive_avg_pool2d(call: Call) -> Value:
    _, height, width = call.data.shape
    out = call.shape[1:]
    if height % out[0] or width % out[1]:
        raise Unsaid(f"windows of several sizes ({height}×{width} to {out[0]}×{out[1]})")
    kernel = (height // out[0], width // out[1])
    return call.push(call.data, pool_op(call.data.channels, kernel), call.shape)


def mean(call: Call) -> Value:
    data = call.data
    rank = len(data.shape) + 1
    axes = {axis % rank for axis in (call.get(1, "dim") or range(rank))}
    if rank != 4 or axes != {2, 3}:
        raise Unsaid(f"a mean over other axes than height and width ({sorted(axes)})")
    pooled = call.push(data, pool_op(data.channels, _pair(data.shape[1:])), (data.channels, 1, 1))
    return pooled if len(call.shape) == 3 else call.flatten(pooled, call.shape)


def cut(call: Call) -> Value:
    """x[..., start:end:step]: every step-th place is a 1×1 convolution with a stride, some channels are a matrix."""
    data, axis = call.data, int(call.get(1, "dim", 0)) % (len(call.data.shape) + 1)
    start, end, step = call.get(2, "start"), call.get(3, "end"), int(call.get(4, "step", 1))
    if axis == 0 and (start or 0) == 0 and step == 1:
        return data
    if axis == 0:
        raise Unsaid("it picks samples out of the batch")
    size = data.shape[axis - 1]
    kept = range(size)[slice(start, end, step)]
    if axis == 1:
        return call.push(data, matrix_op(torch.eye(size)[list(kept)], len(data.shape)), call.shape)
    if kept.start != 0 or len(kept) != -(-size // step):
        raise Unsaid("it cuts a window out of a map")
    stride = (step, 1) if axis == 2 else (1, step)
    return call.push(data, matrix_op(torch.eye(data.channels), len(data.shape), stride=stride), call.shape)


def pad(call: Call) -> Value:
    data, sides = call.data, [int(s) for s in call.get(1, "pad")]
    constant = call.node.op == "aten.constant_pad_nd" or call.get(2, "mode", "constant") == "constant"
    if not constant or min(sides) < 0:
        raise Unsaid("it pads with other than zeros")
    sides += [0] * (2 * len(data.shape) - len(sides))
    spatial, before, after = sides[:-2], sides[-2], sides[-1]
    if len(sides) > 2 * len(data.shape) or any(a != b for a, b in zip(spatial[::2], spatial[1::2], strict=True)):
        raise Unsaid("it pads one side more than the other")
    weight = torch.nn.functional.pad(torch.eye(data.channels), (0, 0, before, after))
    op = matrix_op(weight, len(data.shape))
    if any(spatial):
        op = dataclasses.replace(op, padding=(spatial[2], spatial[0]))
    return call.push(data, op, call.shape)


def reshape(call: Call) -> Value:
    if call.shape == call.data.shape:
        return call.data
    if len(call.shape) == 1 and len(call.data.shape) == 3 and call.shape[0] == math.prod(call.data.shape):
        return call.flatten(call.data, call.shape)
    raise Unsaid(f"it turns values of shape {call.data.shape} into {call.shape}")


def concat(call: Call) -> Value:
    parts, axis = call.args[0], int(call.get(1, "dim", 0)) % (len(call.shape) + 1)
    if axis != 1 or not all(isinstance(part, Value) for part in parts):
        raise Unsaid("it joins other things than channels of values")
    terms: list[Term] = []
    done = 0
    for part in parts:
        block = torch.zeros(call.shape[0], part.channels)
        block[done : done + part.channels] = torch.eye(part.channels)
        terms += call.push(part, matrix_op(block, len(call.shape)), call.shape).terms
        done += part.channels
    return Value(tuple(terms), call.shape)


HANDLERS: dict[str, Callable[[Call], Value]] = {
    "aten.conv2d": conv2d,
    "aten.linear": linear,
    **dict.fromkeys(("aten.add", "aten.sub"), add),
    **dict.fromkeys(("aten.mul", "aten.div"), scale),
    "aten.neg": negate,
    "aten.batch_norm": batch_norm,
    "aten.avg_pool2d": avg_pool2d,
    **dict.fromkeys(("aten.adaptive_avg_pool2d", "aten._adaptive_avg_pool2d"), adaptive_avg_pool2d),
    "aten.mean": mean,
    "aten.slice": cut,
    **dict.fromkeys(("aten.pad", "aten.constant_pad_nd"), pad),
    **dict.fromkeys(("aten.reshape", "aten.view", "aten.flatten", "aten.squeeze", "aten.unsqueeze"), reshape),
    **dict.fromkeys(("aten.clone", "aten.contiguous", "aten.to", "aten._to_copy"), reshape),
    **dict.fromkeys(("aten.cat", "aten.concat"), concat),
}


def times(value: Value, factor: Tensor | float) -> Value:
    """A value times one number, or one for each channel."""
    scale = torch.as_tensor(factor).double().expand(value.channels)
    if len(value.shape) not in (1, 3) and not bool((scale == 1).all()):
        raise Unsaid(f"it scales values of shape {value.shape}; NIR's matrices and convolutions take vectors and maps")
    return Value(tuple(term.times(scale) for term in value.terms), value.shape)


def _shifted(call: Call, value: Value, shift: Tensor) -> Value:
    """A constant is added once: to the first term, which then needs an op to hold it."""
    if len(value.shape) not in (1, 3):
        raise Unsaid(f"it shifts values of shape {value.shape}; NIR's matrices and convolutions take vectors and maps")
    if value.terms[0].op is None:
        eye = matrix_op(torch.eye(value.channels), len(value.shape))
        first = call.push(Value(value.terms[:1], value.shape), eye, value.shape).terms[0]
        value = Value((first, *value.terms[1:]), value.shape)
    return Value((value.terms[0].plus(shift.double()), *value.terms[1:]), call.shape)


def by_channel(constant: Any, shape: Shape, complaint: str = "its constant differs from place to place") -> Tensor:
    """A constant that is combined with samples of a shape, as one number per channel."""
    tensor = torch.as_tensor(constant, dtype=torch.float64)
    full = tensor.reshape((1,) * (len(shape) + 1 - tensor.dim()) + tuple(tensor.shape))
    if full.dim() != len(shape) + 1 or any(n != 1 for i, n in enumerate(full.shape) if i != 1):
        raise Unsaid(complaint)
    return full.reshape(-1).expand(shape[0] if shape else 1)


def weight_label(name: str) -> str:
    """The layer a weight belongs to."""
    return name.removesuffix(".folded").removesuffix(".weight")


def _pair(value: Any) -> Pair:
    items = [int(v) for v in (value if isinstance(value, list | tuple) else (value, value))]
    return (items[0], items[-1])
