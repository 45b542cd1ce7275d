"""What the ops of an ONNX file mean in torch: those that classifiers are made of.

A value is a tensor, or an array of NumPy: constants of whole numbers, single numbers, and the sizes that `Shape` says.
Ops on arrays alone are worked out at once, so that shapes are numbers (or symbols) for torch.export and never data.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spikecast.errors import ModelError

Attributes = Mapping[str, Any]
DTYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64}
REDUCTIONS = {"ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax, "ReduceMin": torch.amin}


def whole(values: Any) -> list[Any]:
    """An array of sizes or axes as a list; symbols stay what they are."""
    return list(np.atleast_1d(values).tolist())


def tensor(value: Any, device: torch.device | None) -> Any:
    """A value as an op on data takes it: an array of one number as that number."""
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim == 0:
        return value.item()
    if value.dtype == object:
        value = value.astype(np.float32 if fractional(value) else np.int64)
    return torch.as_tensor(value, device=device)


def convolution(at: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = x.dim() - 2
    x, padding = padded(at, x, weight.shape[2:], 0.0)
    found: Tensor = (F.conv1d, F.conv2d, F.conv3d)[rank - 1](
        x, weight, bias, at.get("strides", [1] * rank), padding, at.get("dilations", [1] * rank), at.get("group", 1)
    )
    return found


def pool(at: Attributes, x: Tensor, kind: str) -> Tensor:
    rank, kernel = x.dim() - 2, at["kernel_shape"]
    strides, ceil, counts = at.get("strides", [1] * rank), bool(at.get("ceil_mode")), bool(at.get("count_include_pad"))
    given = x
    x, padding = padded(at, x, kernel, -math.inf if kind == "max" else 0.0)
    dilations = at.get("dilations", [1] * rank)
    if kind == "max":
        if any(p > k // 2 for p, k in zip(padding, kernel, strict=True)):  # more than torch's op takes
            x, padding = F.pad(x, [p for p in reversed(padding) for _ in "ab"], value=-math.inf), [0] * rank
        function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
        most: Tensor = function(x, kernel, strides, padding, dilations, ceil)
        return most
    if (x is not given and not counts) or any(d != 1 for d in dilations):
        raise ModelError(
            "AveragePool with dilation, or uneven padding that it does not count, is not read; pad before it"
        )
    mean: Tensor = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1](x, kernel, strides, padding, ceil, counts)
    return mean


def padded(at: Attributes, x: Tensor, kernel: Sequence[int], value: float) -> tuple[Tensor, list[int]]:
    """The input and the padding that is left to the op: padding that is not the same on both sides comes before it."""
    rank = len(kernel)
    pads = list(at.get("pads", [0] * (2 * rank)))
    if (auto := at.get("auto_pad", "NOTSET")) in ("SAME_UPPER", "SAME_LOWER"):
        strides, dilations = at.get("strides", [1] * rank), at.get("dilations", [1] * rank)
        sizes = zip(x.shape[2:], kernel, strides, dilations, strict=True)
        totals = [max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0) for size, k, s, d in sizes]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = small + large if auto == "SAME_UPPER" else large + small
    before, after = pads[:rank], pads[rank:]
    if before == after:
        return x, before
    pairs = [p for pair in reversed(list(zip(before, after, strict=True))) for p in pair]
    return F.pad(x, pairs, value=value), [0] * rank


def gemm(at: Attributes, a: Tensor, b: Tensor, c: Any = None) -> Tensor:
    a = a.t() if at.get("transA") else a
    weight = b if at.get("transB") else b.t()
    alpha, beta = at.get("alpha", 1.0), at.get("beta", 1.0)
    if alpha == 1 and beta == 1 and (c is None or (isinstance(c, Tensor) and c.dim() == 1)):
        return F.linear(a, weight, c)
    found: Tensor = F.linear(a, weight) * alpha
    return found if c is None else found.add(c * beta)


def batch_norm(at: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    if at.get("training_mode"):
        raise ModelError("BatchNormalization in training mode is not read; export the model in eval mode")
    return F.batch_norm(x, mean, var, scale, bias, False, 0.0, at.get("epsilon", 1e-5))


def reshape(at: Attributes, x: Tensor, shape: Any) -> Tensor:
    sizes = whole(shape)
    if not at.get("allowzero"):
        sizes = [x.shape[i] if isinstance(size, int) and size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


def flatten(at: Attributes, x: Tensor) -> Tensor:
    """Two axes: what comes before an axis, and what comes from it on."""
    axis = at.get("axis", 1)
    return x.flatten(axis) if axis == 1 else x.reshape(math.prod(x.shape[:axis]), -1)


def constant_of_shape(at: Attributes, shape: Any) -> Any:
    """An array, but a tensor where a size is a symbol."""
    value = at.get("value", np.zeros(1, np.float32))
    if any(isinstance(size, torch.SymInt) for size in whole(shape)):
        return torch.full(whole(shape), value.item(), dtype=torch.from_numpy(np.array(value)).dtype)
    return np.full(shape.astype(np.int64), value.item(), value.dtype)


def sizes(x: Any) -> Any:
    """The shape as an array, its symbols as they are."""
    found = np.empty(x.ndim, dtype=object)
    found[:] = list(x.shape)
    return found


def slices(at: Attributes, x: Any, *given: Any) -> Any:
    """Of a tensor or of an array; starts, ends, axes and steps are inputs, and before opset 10 attributes."""
    names = ("starts", "ends", "axes", "steps")
    said: dict[str, Any] = {name: at.get(name) for name in names}
    said |= {name: whole(value) for name, value in zip(names, given, strict=False) if value is not None}
    starts, ends, axes, steps = said.values()
    index: list[Any] = [slice(None)] * x.ndim
    axes = axes if axes is not None else range(len(starts))
    for i, (axis, start, end) in enumerate(zip(axes, starts, ends, strict=True)):
        step = 1 if steps is None else steps[i]
        if step < 1 and isinstance(x, Tensor):
            raise ModelError(f"Slice with a step of {step} is not read; steps must be positive")
        index[axis] = slice(start, None if isinstance(end, int) and abs(end) > 2**31 - 2 else end, step)
    return x[tuple(index)]


def gather(at: Attributes, x: Any, index: Any) -> Any:
    axis = at.get("axis", 0)
    if not isinstance(x, Tensor):
        return np.take(x, np.asarray(index, dtype=np.int64), axis)
    if isinstance(index, np.ndarray) and index.ndim == 0:
        return x.select(axis, index.item())
    index = tensor(index, x.device)
    axis %= x.dim()
    flat = x.index_select(axis, index.reshape(-1) % x.shape[axis])
    return flat.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def split(at: Attributes, x: Tensor, sizes: Any = None) -> list[Tensor]:
    axis, sizes = at.get("axis", 0), sizes if sizes is not None else at.get("split")
    if sizes is not None:
        return list(x.split(whole(sizes), axis))
    return list(x.split(-(-x.shape[axis] // (at.get("num_outputs") or at["outputs"])), axis))


def axes_of(at: Attributes, axes: Any) -> list[int] | None:
    """Axes are an input, and in older opsets an attribute."""
    found = axes if axes is not None else at.get("axes")
    return None if found is None else whole(found)


def squeeze(at: Attributes, x: Any, axes: Any = None) -> Any:
    found = axes_of(at, axes)
    return x.squeeze() if found is None else x.squeeze(tuple(found))


def unsqueeze(at: Attributes, x: Any, axes: Any = None) -> Any:
    rank = x.ndim + len(found := axes_of(at, axes) or [])
    for axis in sorted(axis % rank for axis in found):
        x = x.unsqueeze(axis) if isinstance(x, Tensor) else np.expand_dims(x, axis)
    return x


def reduce(at: Attributes, x: Tensor, axes: Any, function: Callable[..., Tensor]) -> Tensor:
    found = axes_of(at, axes)
    if not found and at.get("noop_with_empty_axes"):
        return x
    return function(x, tuple(found or range(x.dim())), keepdim=bool(at.get("keepdims", 1)))


def softmax(at: Attributes, x: Tensor, function: Callable[..., Tensor]) -> Tensor:
    if at["opset"] >= 13:
        return function(x, at.get("axis", -1))
    axis = at.get("axis", 1) % x.dim()  # before opset 13 all axes from this one on are one
    return function(x.flatten(axis), axis).reshape(x.shape)


def clip(at: Attributes, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    low, high = low if low is not None else at.get("min"), high if high is not None else at.get("max")
    return x.clamp(*(None if bound is None else float(bound) for bound in (low, high)))


def pad(at: Attributes, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
    sizes, mode = whole(pads if pads is not None else at["pads"]), at.get("mode", "constant")
    chosen = [axis % x.dim() for axis in (range(x.dim()) if axes is None else whole(axes))]
    both = {axis: (sizes[i], sizes[i + len(chosen)]) for i, axis in enumerate(chosen)}
    first = min((axis for axis, amounts in both.items() if any(amounts)), default=x.dim())
    how = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}.get(mode)
    if how is None:
        raise ModelError(f"Pad in the mode {mode!r} is not read; use constant, reflect or edge")
    if how != "constant" and first < x.dim():
        first = min(first, 2)  # torch wants all axes of the image
    pairs = [amount for axis in reversed(range(first, x.dim())) for amount in both.get(axis, (0, 0))]
    return F.pad(x, pairs, how, float(at.get("value", 0.0) if value is None else value)) if pairs else x


def cast(at: Attributes, x: Any) -> Any:
    if at["to"] not in DTYPES:
        raise ModelError(f"Cast to the type {at['to']} of ONNX is not read; use floats, int32, int64 or bool")
    if isinstance(x, Tensor):
        return x.to(DTYPES[at["to"]])
    to = DTYPES[at["to"]]
    if x.dtype == object and to != torch.bool:
        return np.frompyfunc(torch.sym_float if to.is_floating_point else torch.sym_int, 1, 1)(x)
    return x.astype(str(to).removeprefix("torch."))


def layer_norm(at: Attributes, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.layer_norm(x, x.shape[at.get("axis", -1) :], scale, bias, at.get("epsilon", 1e-5))


def hard_sigmoid(at: Attributes, x: Tensor) -> Tensor:
    alpha, beta = at.get("alpha", 0.2), at.get("beta", 0.5)
    return F.hardsigmoid(x) if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5 else (x * alpha + beta).clamp(0, 1)


def expand(at: Attributes, x: Tensor, shape: Any) -> Tensor:
    """Sizes of one keep what the tensor has, and may add axes in front."""
    sizes = whole(shape)
    own = [1] * (len(sizes) - x.dim()) + list(x.shape)
    sizes = [1] * (len(own) - len(sizes)) + sizes
    return x.expand([a if isinstance(b, int) and b == 1 else b for a, b in zip(own, sizes, strict=True)])


def divide(a: Any, b: Any) -> Any:
    """Whole numbers stay whole, as ONNX has it; sizes are never negative."""
    if not any(v.is_floating_point() if isinstance(v, Tensor) else isinstance(v, float) for v in (a, b)):
        return torch.div(a if isinstance(a, Tensor) else torch.full_like(b, a), b, rounding_mode="trunc")
    return a / b


def fractional(x: Any) -> bool:
    """Whether an array, maybe of symbols, holds floats."""
    return any(isinstance(v, float | torch.SymFloat) for v in x.ravel().tolist())


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """An op without attributes."""
    return lambda at, *values: function(*values)


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": torch.abs, "Add": operator.add, "And": torch.logical_and, "Ceil": torch.ceil, "Cos": torch.cos,
    "Div": divide, "Equal": operator.eq, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor,
    "Greater": operator.gt, "GreaterOrEqual": operator.ge, "HardSwish": F.hardswish, "Identity": lambda x: x,
    "Less": operator.lt, "LessOrEqual": operator.le, "Log": torch.log, "MatMul": torch.matmul, "Mish": F.mish,
    "Mul": operator.mul, "Neg": torch.neg, "Not": torch.logical_not, "Or": torch.logical_or,
    "PRelu": lambda x, slope: torch.where(x < 0, slope * x, x), "Pow": torch.pow, "Reciprocal": torch.reciprocal,
    "Relu": F.relu, "Sigmoid": torch.sigmoid, "Sin": torch.sin, "Softplus": F.softplus, "Softsign": F.softsign,
    "Sqrt": torch.sqrt, "Sub": operator.sub, "Tanh": torch.tanh, "Where": torch.where,
}  # fmt: skip
# How many of its first inputs are data, and the op; the inputs after them are sizes, axes or bounds. -1: all are data.
OPS: dict[str, tuple[int, Callable[..., Any]]] = {
    **{name: (-1, plain(f)) for name, f in ELEMENTWISE.items()},
    **{name: (1, lambda at, x, axes=None, f=f: reduce(at, x, axes, f)) for name, f in REDUCTIONS.items()},
    "AveragePool": (1, lambda at, x: pool(at, x, "mean")),
    "BatchNormalization": (-1, batch_norm),
    "Cast": (1, cast),
    "Clip": (1, clip),
    "Concat": (-1, lambda at, *parts: torch.cat(parts, at["axis"])),
    "Conv": (-1, convolution),
    "Dropout": (1, lambda at, x, *_: x),
    "Elu": (1, lambda at, x: F.elu(x, at.get("alpha", 1.0))),
    "Expand": (1, expand),
    "Flatten": (1, flatten),
    "Gather": (1, gather),
    "Gelu": (1, lambda at, x: F.gelu(x, approximate=at.get("approximate", "none"))),
    "Gemm": (-1, gemm),
    "GlobalAveragePool": (1, lambda at, x: x.mean(tuple(range(2, x.dim())), keepdim=True)),
    "GlobalMaxPool": (1, lambda at, x: x.amax(tuple(range(2, x.dim())), keepdim=True)),
    "HardSigmoid": (1, hard_sigmoid),
    "LayerNormalization": (-1, layer_norm),
    "LeakyRelu": (1, lambda at, x: F.leaky_relu(x, at.get("alpha", 0.01))),
    "LogSoftmax": (1, lambda at, x: softmax(at, x, F.log_softmax)),
    "MaxPool": (1, lambda at, x: pool(at, x, "max")),
    "Pad": (1, pad),
    "Reshape": (1, reshape),
    "Shape": (1, lambda at, x: sizes(x)[at.get("start", 0) : at.get("end")]),
    "Slice": (1, slices),
    "Softmax": (1, lambda at, x: softmax(at, x, F.softmax)),
    "Split": (1, split),
    "Squeeze": (1, squeeze),
    "Sum": (-1, plain(lambda *values: functools.reduce(operator.add, values))),
    "Tile": (1, lambda at, x, repeats: x.repeat(whole(repeats))),
    "Transpose": (1, lambda at, x: x.permute(at.get("perm") or list(reversed(range(x.dim()))))),
    "Unsqueeze": (1, unsqueeze),
}
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Ceil": np.frompyfunc(lambda v: torch.sym_float(math.ceil(v)), 1, 1),
    "Floor": np.frompyfunc(lambda v: torch.sym_float(math.floor(v)), 1, 1),
    "Pow": np.power, "Sqrt": lambda x: x**0.5, "Less": np.less, "LessOrEqual": np.less_equal,
    "Greater": np.greater, "GreaterOrEqual": np.greater_equal,
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Equal": np.equal, "Where": np.where, "Neg": np.negative,
    "Div": lambda a, b: a / b if fractional(a) or fractional(b) else a // b, "Identity": lambda x: x,
}  # fmt: skip
# Ops that are worked out at once where all their inputs are arrays.
ON_ARRAYS: dict[str, Callable[..., Any]] = {
    **{name: plain(f) for name, f in ARITHMETIC.items()},
    "Cast": cast,
    "Concat": lambda at, *parts: np.concatenate(parts),
    "ConstantOfShape": constant_of_shape,
    "Gather": gather,
    "ReduceProd": lambda at, x, *_: np.prod(x, keepdims=bool(at.get("keepdims", 1))),
    "Reshape": lambda at, x, shape: x.reshape(whole(shape)),
    "Shape": OPS["Shape"][1],
    "Slice": slices,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
}
