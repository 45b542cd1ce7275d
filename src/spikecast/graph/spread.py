"""Following spikes through ops that move or average them: how many spikes each entry of the result came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spikecast.graph.program import Node, Ref, replace_refs, resolve


def spread(node: Node, look_up: Callable[[Ref], Any]) -> Any:
    """The op on numbers of spikes: it moves them as it moves values, and sums where it would average.

    An op that interpolates sends one graded event for each entry that any spike reaches.
    """
    args = replace_refs(node.args, look_up)
    kwargs = {name: replace_refs(value, look_up) for name, value in node.kwargs.items()}
    if node.op == "aten.mean":
        kwargs.pop("dtype", None)
        return torch.ops.aten.sum.dim_IntList(*args, **kwargs) if len(args) > 1 or "dim" in kwargs else args[0].sum()
    if node.op.startswith("aten.avg_pool"):
        return _average_pool(args[0], *args[1:], **kwargs)
    out = resolve(node.target)(*args, **kwargs)
    if "adaptive_avg_pool" in node.op:
        return (out * _window_sizes(args[0], out)).round()
    if "upsample" in node.op and "nearest" not in node.op:
        return (out != 0).float()
    return out


def _average_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    *_: Any,
    **__: Any,
) -> Tensor:
    """Sums over the windows; what a mean divides by does not matter here."""
    dims = len(kernel)
    stride, padding = stride or kernel, list(padding) * (dims // len(padding))
    if dims == 3:
        return functional.avg_pool3d(x, kernel, stride, padding, ceil_mode, True, 1)  # type: ignore[arg-type]
    if dims == 2:
        return functional.avg_pool2d(x, kernel, stride, padding, ceil_mode, True, 1)  # type: ignore[arg-type]
    flat = functional.avg_pool2d(
        x.unsqueeze(-2), (1, kernel[0]), (1, stride[0]), (0, padding[0]), ceil_mode, True, divisor_override=1
    )
    return flat.squeeze(-2)


def _window_sizes(x: Tensor, out: Tensor) -> Tensor:
    """How many entries each window of an adaptive pool holds."""
    leading = next((d for d in range(x.dim()) if x.shape[d] != out.shape[d]), x.dim())
    sizes = torch.ones((), device=x.device)
    for d in range(leading, x.dim()):
        whole, parts = x.shape[d], out.shape[d]
        lengths = [-(-(i + 1) * whole // parts) - math.floor(i * whole / parts) for i in range(parts)]
        sizes = sizes * torch.tensor(lengths, device=x.device).reshape(-1, *(1,) * (x.dim() - 1 - d))
    return sizes
