"""Gives up free sizes that become long expressions: torch.export would think about them for minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from spikecast.errors import CaptureError

# Operations in the formula of one size. A ResNet comes to 3, a transformer on images of any size to 10. Where padding
# or windows follow from the size of the image, each layer's formula holds that of the layer before several times.
LONGEST = 12


class ShortSizes(TorchFunctionMode):
    """While it is on, an op that makes a tensor whose size is a long formula is an error."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            sizes: list[Any] = list(made.shape)
            longest = max((s.node.expr.count_ops() for s in sizes if isinstance(s, torch.SymInt)), default=0)
            if longest > LONGEST:
                raise CaptureError(f"a size depends on those of the input by a formula of {longest} operations")
        return made
