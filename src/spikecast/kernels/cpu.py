"""The fused neuron on the CPU: one pass over all steps of a site, compiled by Numba (see `_loops`)."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spikecast.kernels import _fire, _loops
from spikecast.kernels.count import Count, Counts, Encoded
from spikecast.kernels.layout import Walk, arranged, empty_levels, in_place
from spikecast.kernels.operands import operands
from spikecast.theory import firing
from spikecast.theory.neuron import Neuron

BLOCK = _fire.BLOCK  # neurons whose steps are computed together: what they hold stays in cache from step to step
TABLE = 1 << 15  # thresholds times steps that are divided once for all rows: they stay in the second-level cache
GRAIN = 1 << 18  # neurons times steps that are worth a thread, which takes 0.1 ms to wake
IS_FLOAT16 = {torch.float32: None, torch.float16: True, torch.bfloat16: False}  # the types there are loops for


def encode(
    inputs: Tensor,
    threshold: Tensor,
    neuron: Neuron,
    *,
    state: Tensor | None = None,
    start: int = 1,
    want_levels: bool = False,
    count: Count | None = None,
    overwrite: bool = False,
) -> Encoded:
    """`theory.neuron.encode` to the bit, on arguments that `kernels.encode` has checked."""
    inputs, held, fan_out, axis, way = operands(inputs, state, threshold, count)
    shape, inner = tuple(inputs.shape), tuple(inputs.shape[1:])
    scales = arranged(_scales(threshold, neuron.firing_boundary), way.broadcast[0], len(inner))
    reuse = way.copy_input or (overwrite and way.output_strides == inputs.stride())
    outputs = inputs if reuse else inputs.new_empty_strided(shape, way.output_strides)
    levels = empty_levels(outputs, neuron.burst) if want_levels else None
    work = Work(way, shape[0], inputs.numel())
    counter = None if fan_out is None else Counter(fan_out, axis, way, shape, work.workers, neuron.burst)
    has_nan = work.run(
        (
            *(shape[0], start, inputs.stride(0), outputs.stride(0), math.prod(way.sizes), way.run),
            *(work.length, scales.numel() // 3, neuron.burst, inputs.numel()),
        ),
        tuple(0 if x is None else x.data_ptr() for x in (inputs, outputs, held, scales, work.scratch)),
        _geometry(way),
        _constants(neuron),
        np.float32(neuron.lower) if math.isfinite(neuron.lower) else None,
        np.float32(neuron.upper) if math.isfinite(neuron.upper) else None,
        way.broadcast[0].vector or None,
        levels.data_ptr() if levels is not None else None if counter is None else 0,
        None if counter is None else counter.pointers,
        IS_FLOAT16[inputs.dtype],
        None if neuron.firing_boundary == firing.EDGE else np.float32(firing.EDGE / neuron.firing_boundary),
        (0,) * min(neuron.burst, _fire.AT_ONCE),  # its length is a type
        neuron.burst > _fire.AT_ONCE or None,
        held=(inputs, outputs, held, scales, levels, counter),
    )
    if has_nan:
        firing.refuse_nan(torch.tensor(math.nan))
    return Encoded(outputs, levels, None if counter is None else counter.counts())


@lru_cache(maxsize=4096)
def _constants(neuron: Neuron) -> tuple[Any, ...]:
    """The bits of the smallest pulse, the potential to start with, the bits of the largest pulse below zero, whether
    the estimates shrink, and by how much a pulse may overshoot a bound.
    """
    return (
        np.int32((128 - neuron.num_levels) << 23),
        np.float32(neuron.initial_potential),
        _fire.ONE if neuron.signed else np.int32(0),
        neuron.coding == "rate",
        np.float32(neuron.tolerance),
    )


class Work:
    """A call cut into units, which are rows or parts of long ones, and how many threads are worth it."""

    def __init__(self, way: Walk, steps: int, size: int) -> None:
        most = max(256, min(BLOCK, TABLE // steps)) if way.broadcast[0].vector else BLOCK
        parts = -(-way.run // most)
        self.length = -(-way.run // parts)
        self.units = math.prod(way.sizes) * parts
        self.workers = max(1, min(torch.get_num_threads(), self.units, size // GRAIN))
        self.scratch = torch.empty(self.workers * (_fire.UNITS + steps) * _fire.ROW, dtype=torch.float32, device="cpu")

    def run(self, *args: Any, held: Any) -> bool:
        """The loops, which let go of the GIL; whether a potential was NaN. What they have the address of is `held`."""
        ends = [i * self.units // self.workers for i in range(self.workers + 1)]
        own, *others = enumerate(pairwise(ends))
        started = [_threads(os.getpid()).submit(_part, (held, self), *other, *args) for other in others]
        found = [_part(None, *own, *args), *(one.result() for one in started)]
        return any(found)


def _part(_held: Any, *args: Any) -> bool:
    """A worker's units. It holds what it writes to, so that an interrupted caller does not take it away."""
    return bool(_loops.work(*args))


@lru_cache(maxsize=1)
def _threads(_process: int) -> ThreadPoolExecutor:
    """Of this process: threads do not survive a fork. Numba's own would want every loop compiled once more."""
    return ThreadPoolExecutor(os.cpu_count(), "spikecast")


def _scales(threshold: Tensor, boundary: float) -> Tensor:
    """θ, the factor from a potential to a level, and 1/θ: [3, ...], the numbers of `firing.scales_of`."""
    threshold = threshold.to(torch.float32).resolve_neg().contiguous()
    table = threshold.new_empty((3, *threshold.shape))
    if not _loops.prepare(threshold.data_ptr(), threshold.numel(), firing.EDGE / boundary, table.data_ptr()):
        firing.scales_of(threshold, boundary, torch.float32)  # raises, and says what is wrong
    return table


@lru_cache(maxsize=4096)
def _geometry(way: Walk) -> Any:
    """What `_loops.locate` reads."""
    scales, *fan_out = (b.strides for b in way.broadcast)
    rows = (way.sizes, *way.strides, scales, *(fan_out or [(0,) * len(way.sizes)]))
    return np.array(rows, np.int64).reshape(len(rows), len(way.sizes))


class Counter:
    """Where the workers count, each for itself."""

    def __init__(
        self, fan_out: Tensor, axis: int | None, way: Walk, shape: tuple[int, ...], workers: int, burst: int
    ) -> None:
        how, steps, inner = way.broadcast[1], shape[0], shape[1:]
        self.fan_out = arranged(fan_out.unsqueeze(0), how, len(inner))  # kept: the loops have its address only
        self.totals = fan_out.new_zeros((workers, steps, burst + 1))
        self.along: Tensor | None = None  # spikes, and estimates that are not zero
        self.put = partial(in_place, way=way, inner=inner, axis=axis or 0)
        size, inside = way.summed
        places = math.prod(inner) // size
        if axis is not None:
            self.along = fan_out.new_zeros((2, workers, steps, places), dtype=torch.int32)
        self.pointers = (
            self.fan_out.data_ptr(),
            int(how.vector),
            self.totals.data_ptr(),
            *((0, 0) if self.along is None else (part.data_ptr() for part in self.along)),
            size,
            inside,
            places,
            steps,
            burst,
        )

    def counts(self) -> Counts:
        along, held = (None, None) if self.along is None else self.put(self.along.sum(1))
        totals = self.totals.sum(0)
        return Counts(totals[:, :-1], totals[:, -1], along, held)
