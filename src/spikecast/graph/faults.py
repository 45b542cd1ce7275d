"""Arguments that make an op crash, read memory that is not its own or never end, and that torch itself lets pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from spikecast.graph.extent import Given
from spikecast.graph.program import Meta, Node, inside

MOST_REPEATS = 64  # of an op that is applied to its own result
_SCALES = ("scales", "scales_d", "scales_h", "scales_w")  # of the last axes, in this order
_MASKS = (torch.bool, torch.uint8)


def fault(node: Node, given: Given) -> str | None:
    """What is wrong with the arguments of an op; None if nothing is. References among them are not judged yet."""
    rule = _RULES.get(node.op)
    return (rule and rule(node, given)) or _scales(given)


def is_by_value(node: Node, given: Given) -> bool:
    """Whether the size of an answer, or a fault, depends on numbers in tensors and not on shapes alone."""
    match node.op:
        case "aten.nonzero" | "aten.is_nonzero":
            return True
        case "aten.repeat_interleave":
            return isinstance(given["repeats"], Tensor)
        case "aten.index":
            return any(index is not None and index.dtype in _MASKS for index in given["indices"])
    by = given.get("other")
    return _RULES.get(node.op) is _divided and isinstance(by, Tensor) and not by.is_floating_point()


def _scales(given: Given) -> str | None:
    """A scale must be the one between the sizes: kernels read where it leads them."""
    scales = [*(given.get("scale_factors") or ()), *(given[name] for name in _SCALES if given.get(name) is not None)]
    for scale in scales:
        if isinstance(scale, int | float) and not 1e-6 < scale < 1e6:
            return f"a scale of {scale}"
    source, size = given.get("self"), given.get("output_size")
    if isinstance(source, Tensor) and isinstance(size, Sequence):
        last = [given.get(name) for name in _SCALES if name in given][-len(size) :]
        for before, after, scale in zip(source.shape[-len(last) :], size[-len(last) :], last, strict=False):
            if scale is not None and not -1e-3 < before * scale - after < 1.001:
                return f"a scale of {scale} from {before} to {after}"
    return None


def _sampled(node: Node, given: Given) -> str | None:
    modes = given["interpolation_mode"], given["padding_mode"]
    return None if all(type(mode) is not int or 0 <= mode <= 2 for mode in modes) else f"the modes {modes}"


def _grouped(node: Node, given: Given) -> str | None:
    """Sizes that are told beside a tensor must be its own."""
    source, told = given["input"], (given["N"], given["C"], given["HxW"])
    if not isinstance(source, Tensor):
        return None
    fits = source.shape[:2] == told[:2] and math.prod(told) == source.numel() and given["group"] > 0
    return None if fits and not told[1] % given["group"] else f"{given['group']} groups of {told}"


def _divided(node: Node, given: Given) -> str | None:
    """Whole numbers divided by 0, and the least of them by -1, are a fault of the processor."""
    by, tensors = given["other"], list(inside(list(given.values()), Tensor))
    if (node.op == "aten.div" and not given.get("rounding_mode")) or isinstance(by, float):
        return None
    dtypes = [t.dtype for t in tensors] or ([node.meta.dtype] if isinstance(node.meta, Meta) else [])
    if any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes):
        return None
    bad = bool(((by == 0) | (by == -1)).any()) if isinstance(by, Tensor) else type(by) in (int, bool) and by in (0, -1)
    return "a division of whole numbers by 0 or -1" if bad else None


def _repeated(node: Node, given: Given) -> str | None:
    times = given.get("n", 1)
    return None if not isinstance(times, int) or 0 <= times <= MOST_REPEATS else f"{times} repeats"


def _interleaved(node: Node, given: Given) -> str | None:
    """A size that is told beside the repeats must be theirs: so much memory is taken before they are looked at."""
    told, repeats, source = given.get("output_size"), given["repeats"], given.get("self")
    if not isinstance(told, int) or not isinstance(repeats, int | Tensor):
        return None
    if isinstance(repeats, Tensor) and (repeats.numel() != 1 or source is None):
        size = int(repeats.sum())
    elif isinstance(source, Tensor):
        dim = given.get("dim")
        size = int(repeats) * (source.numel() if dim is None else source.shape[dim])
    else:  # the source is not known yet
        return None
    return None if told == size else f"an output size of {told} for {size} repeats"


def _count(given: Given) -> int | None:
    """How many parts an op makes of a tensor; None while that is not known."""
    for name in ("split_size", "split_sizes", "indices"):
        if isinstance(given.get(name), Sequence):
            return len(given[name]) + (name == "indices")
    if "sections" in given or not isinstance(given["self"], Tensor):
        return given.get("sections")
    size = given["self"].shape[given.get("dim", 0)]
    if "chunks" in given and not size:
        return int(given["chunks"])
    each = -(-size // max(given["chunks"], 1)) if "chunks" in given else given.get("split_size", 1)
    return int(-(-size // max(each, 1)))


def _parted(node: Node, given: Given) -> str | None:
    count, declared = _count(given), len(node.meta) if isinstance(node.meta, tuple) else 0
    return f"{count} parts, not {declared}" if isinstance(count, int) and count > max(declared, 1) else None


_RULES: dict[str, Callable[[Node, Given], str | None]] = {
    **dict.fromkeys(("aten.grid_sampler", "aten.grid_sampler_2d"), _sampled),
    **dict.fromkeys(("aten.div", "aten.floor_divide", "aten.remainder", "aten.fmod"), _divided),
    **dict.fromkeys(("aten.split", "aten.split_with_sizes", "aten.tensor_split", "aten.chunk", "aten.unbind"), _parted),
    "aten.native_group_norm": _grouped,
    "aten.diff": _repeated,
    "aten.repeat_interleave": _interleaved,
}
