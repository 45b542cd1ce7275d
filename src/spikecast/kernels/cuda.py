"""The fused neuron on CUDA: one pass over all steps of a site, compiled by Triton (see `_triton`).

Where Triton interprets (TRITON_INTERPRET=1 when `_triton` is imported), tensors may lie on the CPU: that is for tests.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spikecast.kernels import _triton
from spikecast.kernels.count import Count, Counts, Encoded
from spikecast.kernels.layout import Walk, arranged, empty_levels, in_place
from spikecast.kernels.operands import operands
from spikecast.theory import firing
from spikecast.theory.neuron import Neuron

TILE = 1024  # neurons of a program: eight for each thread of four warps, so that halves are moved 16 bytes at a time
SMALL_TILE = 256  # where there are few neurons, to have work for more multiprocessors
FEW = 1 << 18


def encode(
    inputs: Tensor,
    threshold: Tensor,
    neuron: Neuron,
    *,
    state: Tensor | None = None,
    start: int = 1,
    want_levels: bool = False,
    count: Count | None = None,
) -> Encoded:
    """`theory.neuron.encode` to the bit, on arguments that `kernels.encode` has checked."""
    inputs, held, fan_out, axis, way = operands(inputs, state, threshold, count, stop_at_sum=True)
    shape, inner = tuple(inputs.shape), tuple(inputs.shape[1:])
    table = torch.stack(firing.scales_of(threshold.detach(), neuron.firing_boundary, torch.float32))
    table = arranged(table, way.broadcast[0], len(inner))
    outputs = inputs.new_empty_strided(shape, way.output_strides)
    levels = empty_levels(outputs, neuron.burst) if want_levels else None
    tile = tile_of(math.prod(way.sizes), way.run)
    counter = None if fan_out is None else Counter(fan_out, axis, way, shape, tile.programs, neuron.burst)
    has_nan = inputs.new_zeros(1, dtype=torch.int32)
    bfloat = inputs.dtype == torch.bfloat16
    source, target = (x.view(torch.int16) if bfloat else x for x in (inputs, outputs))
    with torch.cuda.device_of(inputs):
        _triton.encode[(tile.programs,)](
            (source, target, held, table, levels, has_nan),
            (None,) * 7 if counter is None else counter.arguments(),
            shape[0],
            start,
            math.prod(way.sizes),
            (inputs.stride(0), outputs.stride(0), inputs.numel(), way.run, table.numel() // 3),
            _geometry(way),
            _constants(neuron),
            neuron.burst,
            signed=neuron.signed,
            rate=neuron.coding == "rate",
            bfloat=bfloat,
            vector=(way.broadcast[0].vector, counter is not None and way.broadcast[1].vector, way.summed[1] != 1),
            dims=max(1, len(way.sizes)),
            tile_rows=tile.rows,
            tile_columns=tile.columns,
            num_warps=tile.warps,
            enable_fp_fusion=False,
        )
    if has_nan.item():
        firing.refuse_nan(torch.tensor(math.nan, device="cpu"))
    return Encoded(outputs, levels, None if counter is None else counter.counts())


class Counter:
    """Where the programs count: each has its own sums of fan-outs, and they share what is counted along an axis."""

    def __init__(
        self, fan_out: Tensor, axis: int | None, way: Walk, shape: tuple[int, ...], programs: int, burst: int
    ) -> None:
        self.fan_out = arranged(fan_out.unsqueeze(0), way.broadcast[1], len(shape) - 1)
        self.partial = fan_out.new_empty((shape[0], burst, 2, programs))
        self.along: Tensor | None = None
        if axis is not None:
            kept = (shape[0], math.prod(shape[1:]) // way.summed[0])
            self.along = fan_out.new_zeros((2, *kept), dtype=torch.int32)  # spikes, and estimates that are not zero
        self.way, self.inner, self.axis = way, shape[1:], axis or 0

    def arguments(self) -> tuple[Tensor | int | None, ...]:
        """As `_triton.encode` reads them."""
        along, held = (None, None) if self.along is None else self.along
        return self.fan_out, self.partial, along, held, 0 if along is None else along.shape[1], *self.way.summed

    def counts(self) -> Counts:
        put = partial(in_place, way=self.way, inner=self.inner, axis=self.axis)
        along, held = (None, None) if self.along is None else put(self.along.long())
        fired, weighted = self.partial.sum(3).unbind(2)
        return Counts(fired, weighted.sum(1), along, held)


class Tile(NamedTuple):
    """The neurons of one program, and how many programs there are."""

    rows: int
    columns: int
    warps: int
    programs: int


def tile_of(rows: int, run: int) -> Tile:
    """Powers of two: as much of a run as leaves the least of the last tile empty, and rows to fill the tile up."""
    most = TILE if rows * run > FEW else SMALL_TILE
    sizes = [1 << i for i in range(most.bit_length())]
    longest = next((size for size in sizes if size >= run), most)
    columns = min((size for size in sizes if longest // 4 <= size <= longest), key=lambda c: (-(-run // c) * c, -c))
    height = min(most // columns, 1 << (rows - 1).bit_length())
    warps = max(1, min(4, height * columns // 128))
    return Tile(height, columns, warps, -(-rows // height) * -(-run // columns))


def _geometry(way: Walk) -> Any:
    """Sizes of the axes that number the rows, and their strides in each tensor, innermost first; at least one."""
    scales, *fan_out = (b.strides for b in way.broadcast)
    none = (0,) * len(way.sizes)
    rows = (*way.strides, scales, fan_out[0] if fan_out else none)
    return (way.sizes[::-1] or (1,), *(strides[::-1] or (0,) for strides in rows))


def _constants(neuron: Neuron) -> tuple[int, float, float | None, float, float | None, float | None]:
    """What `_triton.fire` reads: the bits of the smallest pulse, and numbers, None where there is nothing to do."""
    return (
        (128 - neuron.num_levels) << 23,
        neuron.tolerance,
        neuron.initial_potential or None,
        firing.EDGE / neuron.firing_boundary,
        neuron.lower if math.isfinite(neuron.lower) else None,
        neuron.upper if math.isfinite(neuron.upper) else None,
    )
