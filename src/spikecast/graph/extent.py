"""How much an op can make and multiply, known from the shapes of its arguments: a bound, before anything is computed.

What is not in the table makes no more than its tensors broadcast to. Tables are by op; arguments come by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spikecast.graph.program import Node, inside, resolve

Given = Mapping[str, Any]  # the arguments of a call, by name
_PACKED = (torch.float32, torch.float16, torch.bfloat16)  # other types are convolved by way of im2col


class Extent(NamedTuple):
    """Elements of the result and of what is made on the way, and multiplications or other steps of work; at most."""

    elements: int
    work: int


def named(node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an op by name."""
    return dict(zip(_names(node.target), args, strict=False)) | dict(kwargs)


@cache
def _names(target: str) -> tuple[str, ...]:
    return tuple(a.name for a in resolve(target)._schema.arguments)  # type: ignore[attr-defined]


def extent(node: Node, given: Given) -> Extent:
    """How large an op can become."""
    read = sum(t.numel() for t in inside(list(given.values()), Tensor))
    name = node.op.removeprefix("aten.")
    if name in _PRODUCTS:
        made = _PRODUCTS[name](given)
        return Extent(made.elements, made.work + read)
    elements = max(int(_SIZES[name](given) if name in _SIZES else _broadcast(given)), 0)
    return Extent(elements, elements * _window(given) + read)


def _broadcast(given: Given) -> int:
    # An axis may be one longer than that of the input: where a pool looks past the border.
    return _together([t.shape for t in inside(list(given.values()), Tensor)], int("kernel_size" in given))


def _together(shapes: Sequence[Sequence[int]], more: int = 0) -> int:
    """Entries of what tensors of these shapes broadcast to, with axes that much longer; the sum of nothing is one."""
    longest = max(map(len, shapes), default=0)
    aligned = zip(*((1,) * (longest - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    return math.prod(max(*sizes, 1) + more for sizes in aligned)


def _window(given: Given) -> int:
    """How many entries of the input each entry of a pool's result can see."""
    if "kernel_size" not in given:
        return 1
    sizes = given["self"].shape
    return math.prod(map(min, given["kernel_size"] * len(sizes), sizes[-len(given["kernel_size"]) :]))


def _source(given: Given) -> Tensor:
    found: Tensor = given["self"] if "self" in given else given["input"]
    return found


def _expanded(given: Given) -> int:
    shape, size = tuple(given["self"].shape), given["size"]
    return math.prod(max(a, b) for a, b in zip((1,) * (len(size) - len(shape)) + shape, size, strict=False))


def _joined(given: Given) -> int:
    return sum(t.numel() for t in inside(list(given.values()), Tensor))


def _interleaved(given: Given) -> int:
    repeats = given["repeats"]
    times = int(repeats.max()) if isinstance(repeats, Tensor) and repeats.numel() else repeats
    source = given.get("self", repeats)
    return 0 if isinstance(times, Tensor) else max(source.numel(), 1) * times


def _ranged(given: Given) -> float:
    step = given.get("step", 1)
    return abs((given["end"] - given.get("start", 0)) / step) + 1 if step else 0


def _padded(given: Given) -> int:
    pads, shape = given["pad"] if "pad" in given else given["padding"], [*given["self"].shape]
    for axis in range(min(len(pads) // 2, len(shape))):
        shape[-1 - axis] += max(pads[2 * axis], 0) + max(pads[2 * axis + 1], 0)
    return math.prod(shape)


def _resized(given: Given) -> int:
    """Axes are resized one after the other, so that some are long before others are short."""
    shape: Sequence[int] = _source(given).shape
    size, factors = given.get("output_size"), given.get("scale_factors") or ()
    size = [int(a * b) for a, b in zip(shape[2:], factors, strict=False)] if size is None else size
    fixed = len(shape) - len(size)
    return math.prod(shape[:fixed]) * math.prod(max(a, b) for a, b in zip(shape[fixed:], size, strict=True))


def _selected(given: Given) -> int:
    shape: Sequence[int] = given["self"].shape
    index: Sequence[int] = given["index"].shape
    return math.prod(index) * (math.prod(shape) // max(shape[given["dim"]], 1) if shape else 1)


def _indexed(given: Given) -> int:
    """A mask picks as many as it has entries, at most."""
    shape: Sequence[int] = given["self"].shape
    kept, places, axis = 1, [], 0
    for index in given["indices"]:
        if index is None:
            kept *= math.prod(shape[axis : axis + 1])
        is_mask = index is not None and index.dtype in (torch.bool, torch.uint8)
        places += [] if index is None else [(index.numel(),) if is_mask else index.shape]
        axis += index.dim() if is_mask else 1
    return kept * math.prod(shape[axis:]) * _together(places)


def _windows(given: Given) -> int:
    kernel: Sequence[int] = given["kernel_size"]
    shape: Sequence[int] = given["self"].shape
    settings = zip(shape[-2:], kernel, given["padding"], given["dilation"], given["stride"], strict=True)
    places = [max(size + 2 * p - d * (k - 1) - 1, 0) // max(s, 1) + 1 for size, k, p, d, s in settings]
    return int(math.prod(shape[:-2]) * math.prod(kernel) * math.prod(places))


_SIZES: dict[str, Callable[[Given], float]] = {
    **dict.fromkeys(
        ("full", "zeros", "ones", "new_full", "new_zeros", "new_ones", "as_strided"), lambda g: math.prod(g["size"])
    ),
    **dict.fromkeys(("expand", "broadcast_to"), _expanded),
    **dict.fromkeys(("cat", "concat", "stack", "hstack", "vstack", "diff"), _joined),
    **dict.fromkeys(("pad", "constant_pad_nd"), _padded),
    **{f"{kind}_pad{n}d": _padded for kind in ("reflection", "replication") for n in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{n}d": _resized for kind in ("avg", "max") for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": _resized for n in (2, 3)},
    **{f"upsample_{kind}": _resized for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d")},
    **{f"upsample_{kind}": _resized for kind in ("trilinear3d", "bicubic2d")},
    **{f"_upsample_{k}": _resized for k in ("nearest_exact1d", "nearest_exact2d", "bilinear2d_aa", "bicubic2d_aa")},
    "repeat": lambda g: g["self"].numel() * math.prod(g["repeats"]),
    "tile": lambda g: g["self"].numel() * math.prod(g["dims"]),
    "repeat_interleave": _interleaved,
    "meshgrid": lambda g: math.prod(t.numel() for t in g["tensors"]),
    "arange": _ranged,
    "linspace": lambda g: g["steps"],
    "eye": lambda g: g["n"] * g.get("m", g["n"]),
    "index": _indexed,
    "index_select": _selected,
    "embedding": lambda g: g["indices"].numel() * math.prod(g["weight"].shape[1:]),
    "nonzero": lambda g: g["self"].numel() * g["self"].dim(),
    "unfold": lambda g: g["self"].numel() * g["size"],
    "im2col": _windows,
    "col2im": lambda g: math.prod(g["self"].shape[:-1]) * math.prod(g["output_size"]),
    **dict.fromkeys(
        ("grid_sampler", "grid_sampler_2d"), lambda g: math.prod(g["input"].shape[:2]) * math.prod(g["grid"].shape[1:])
    ),
}


def _matmul(given: Given) -> Extent:
    """Where the batches of the factors differ, both are written out."""
    names = (("mat1", "batch1", "input", "self"), ("mat2", "batch2", "weight", "vec", "other"))
    left, right = (tuple(next(given[name].shape for name in side if name in given)) for side in names)
    if "weight" in given:  # linear keeps its weight turned round
        right = right[::-1]
    left, right = (1,) * (2 - len(left)) + left, right if len(right) > 1 else (*right, 1)
    if len(left) < 2 or len(right) < 2:
        return Extent(1, 1)
    batch = math.prod(torch.broadcast_shapes(left[:-2], right[:-2]))
    made = batch * left[-2] * right[-1]
    both = len(right) > 2 and left[:-2] != right[:-2]
    return Extent(made + both * batch * (math.prod(left[-2:]) + math.prod(right[-2:])), made * left[-1])


def _convolution(given: Given) -> Extent:
    source, weight = given["input"], given["weight"]
    kernel = weight.shape[2:]
    size = source.shape[-len(kernel) :] if len(kernel) else ()
    turned = "output_padding" in given and given.get("transposed", True)

    def setting(name: str, default: int) -> Sequence[int]:
        values = given.get(name) or (default,)
        return (0,) * len(kernel) if isinstance(values, str) else tuple(values) * (len(kernel) // len(values))

    settings = zip(size, kernel, *map(setting, ("padding", "stride", "dilation"), (0, 1, 1)), strict=False)
    if turned:
        more = setting("output_padding", 0)
        out = [max((n - 1) * s - 2 * p + d * (k - 1), 0) + s + 1 for n, k, p, s, d in settings]
        out = [size + max(extra, 0) for size, extra in zip(out, more, strict=False)]
    elif isinstance(given.get("padding"), str):
        out = list(size)
    else:
        out = [max(n + 2 * p - d * (k - 1) - 1, 0) // max(s, 1) + 1 for n, k, p, s, d in settings]
    batch = source.shape[0] if source.dim() == weight.dim() else 1
    groups = max(given.get("groups", 1), 1)
    made = batch * math.prod(out) * (weight.shape[1] * groups if turned else weight.shape[0])
    work = (source.numel() if turned else made) * math.prod(weight.shape[1:])
    columns = 0 if source.dtype in _PACKED else work // max(weight.shape[0] // groups, 1)
    if turned:  # for each entry it makes, oneDNN looks for sources over a whole stride
        work = max(work, made * max(setting("stride", 1), default=1))
    return Extent(made + columns, work)


def _einsum(given: Given) -> Extent:
    """Every label counts once; of more than two factors the order is not known."""
    terms, _, _ = given["equation"].replace(" ", "").partition("->")
    sizes: dict[Any, int] = {}
    for term, tensor in zip(terms.split(","), given["tensors"], strict=False):
        first, dots, last = term.partition("...")
        middle = tensor.dim() - len(first) - len(last)
        labels = [*first, *(range(-middle, 0) if dots else ()), *last]
        for label, size in zip(labels, tensor.shape, strict=False):
            sizes[label] = max(size, sizes.get(label, 1))
    work = math.prod(sizes.values())
    if len(given["tensors"]) > 2 or "->" not in given["equation"]:
        return Extent(work, work)
    answer = given["equation"].replace(" ", "").partition("->")[2]
    kept = [size for label, size in sizes.items() if isinstance(label, int) or label in answer]
    return Extent(math.prod(kept) + sum(t.numel() for t in given["tensors"]), work)


def _tensordot(given: Given) -> Extent:
    left, right = given["self"], given["other"]
    summed = math.prod(max(left.shape[axis], 1) for axis in given["dims_self"])
    made = _together([left.shape]) * _together([right.shape]) // summed**2
    return Extent(made + left.numel() + right.numel(), made * summed)


def _bilinear(given: Given) -> Extent:
    work = given["input1"].numel() * given["weight"].numel() // max(given["input1"].shape[-1], 1)
    return Extent(work, work)


_PRODUCTS: dict[str, Callable[[Given], Extent]] = {
    **dict.fromkeys(("matmul", "bmm", "mm", "mv", "baddbmm", "addmm", "addbmm", "linear"), _matmul),
    **{f"conv{kind}": _convolution for kind in ("1d", "2d", "3d", "olution")},
    **{f"conv_transpose{n}d": _convolution for n in (1, 2, 3)},
    "einsum": _einsum,
    "tensordot": _tensordot,
    "bilinear": _bilinear,
}
