"""Which values share a threshold: a site's tensor as [channels, values], and thresholds back in its shape."""

from __future__ import annotations

import math

from torch import Tensor

from spikecast.config import Granularity
from spikecast.network.plan import Site


def channel_axes(site: Site, granularity: Granularity) -> tuple[int, ...]:
    """The axes along which thresholds differ."""
    rank, batch = site.meta.rank, site.meta.batch_axis
    if granularity == "neuron":
        return tuple(i for i in range(rank) if i != (0 if batch is None else batch))
    axis = {"layer": None, "channel": site.axis, "dim1": 1 if rank > 1 else None}[granularity]
    return () if axis is None or axis == batch else (axis,)


def by_channel(values: Tensor, axes: tuple[int, ...]) -> Tensor:
    """[channels, values] of a site's tensor."""
    if not axes:
        return values.reshape(1, -1)
    front = values.movedim(axes, tuple(range(len(axes))))
    return front.reshape(math.prod(front.shape[: len(axes)]), -1)


def threshold_shape(values: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that broadcasts one number per channel against a site's tensor."""
    return tuple(size if i in axes else 1 for i, size in enumerate(values.shape))
