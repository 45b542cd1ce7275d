"""The compiled loop of `kernels.cuda`: a program holds a tile of neurons, rows times columns, and runs all their steps.

It repeats `theory.neuron.step` operation by operation in float32, as `_loops` does; launched with
enable_fp_fusion=False no operation is fused with another, so the bits are the same. Flags are types: an argument that
is None, or a constexpr, takes its branch out of the compiled loop.
"""

# mypy: ignore-errors
# (what stands here is compiled by Triton, by its rules for types)
from __future__ import annotations

import triton
import triton.language as tl

MAGNITUDE = tl.constexpr(0x7FFFFFFF)
SIGN = tl.constexpr(-0x80000000)
HALF_MANTISSA = tl.constexpr(0x400000)
EXPONENT = tl.constexpr(0x7F800000)  # also the bits of inf: a larger magnitude is NaN
SIGNED_EXPONENT = tl.constexpr(-0x800000)
ONE = tl.constexpr(0x3F800000)


@triton.jit
def add(a, b):
    """What sums combine by; `tl.sum` cannot be interpreted where triton was imported before it was asked to."""
    return a + b


@triton.jit
def locate(row, sizes, strides, dims: tl.constexpr):
    """Where rows begin in a tensor; those after the last are the first ones again, so that there is something."""
    offset = row * 0
    for d in tl.static_range(dims):
        offset += row % sizes[d] * strides[d]
        row = row // sizes[d]
    return offset


@triton.jit
def load_beside(table, at, column, here, vector: tl.constexpr):
    """What a table has for a tile: a number for each neuron, or one for each row."""
    if vector:
        return tl.load(table + at[:, None] + column, mask=here, other=1)
    else:
        return tl.load(table + at[:, None])


@triton.jit
def potential(x, predicted, t, scales, neuron):
    """What is missing at step t, and the potential that neurons start with, in units of the largest level."""
    m = (x - predicted) * t
    if neuron[2] is not None:
        m = m + scales[0] * neuron[2]
    return m * scales[1]


@triton.jit
def room(space):
    """The bits of the largest pulse that fits into the space before a bound."""
    return space.to(tl.int32, bitcast=True) & SIGNED_EXPONENT


@triton.jit
def spaces_of(predicted, t, inverse, neuron):
    """How far the bounds are before the first pulse, in units of θ, with the tolerance for landing on them."""
    _, tolerance, _, _, lower, upper = neuron
    below, above = predicted, predicted
    if lower is not None:
        below = (predicted - lower) * t * inverse + tolerance
    if upper is not None:
        above = (upper - predicted) * t * inverse + tolerance
    return below, above


@triton.jit
def fire(u, below, above, neuron, signed: tl.constexpr):
    """The bits of one pulse."""
    bits = u.to(tl.int32, bitcast=True)
    negative = bits < 0
    # the power of two nearest to |u| is a sum and a mask: its bits are the exponent's
    power = tl.minimum(((bits & MAGNITUDE) + HALF_MANTISSA) & EXPONENT, ONE)
    if not signed:
        power = tl.where(negative, 0, power)
    if neuron[4] is not None:
        power = tl.where(negative, tl.minimum(power, room(below)), power)
    if neuron[5] is not None:
        power = tl.where(negative, power, tl.minimum(power, room(above)))
    return tl.where(power >= neuron[0], power | (bits & SIGN), 0)


@triton.jit
def received(sent, predicted, unit, neuron):
    """The estimate once a burst has arrived, without the tolerance by which it may have overshot."""
    _, _, _, _, lower, upper = neuron
    estimate = sent * unit + predicted
    if lower is not None:
        estimate = tl.where(estimate < lower, lower, estimate)
    if upper is not None:
        estimate = tl.where(estimate > upper, upper, estimate)
    return estimate


@triton.jit
def to_levels(pulse):
    """The signed level index of pulses that are given as their bits."""
    level = 128 - ((pulse & EXPONENT) >> 23)
    level = tl.where(pulse < 0, -level, level)
    return tl.where(pulse != 0, level, 0).to(tl.int8)


@triton.jit
def narrow(estimate, dtype: tl.constexpr, bfloat: tl.constexpr):
    """Estimates as they are stored, rounded to the nearest, ties to even."""
    if bfloat:
        bits = estimate.to(tl.int32, bitcast=True)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.int16)
    else:
        return estimate.to(dtype)


@triton.jit
def count_all(fired, weights, partial):
    """Note how many of a tile fired, and their fan-outs; returns where the next pulses' go."""
    tl.store(partial + tl.program_id(0), tl.reduce(fired.to(tl.int64), None, add))
    partial += tl.num_programs(0)
    tl.store(partial + tl.program_id(0), tl.reduce(tl.where(fired, weights, 0), None, add))
    return partial + tl.num_programs(0)


@triton.jit
def place_of(p, summed, inside):
    """Where neuron p on the way (`layout.Walk`) is counted."""
    return p // (summed * inside) * inside + p % inside


@triton.jit
def count_along(fired, along, row, place, is_row, vector: tl.constexpr):
    """Add one to the count of each neuron that fired (or holds something); where a row shares one, sum first."""
    if vector:
        tl.atomic_add(along + place, fired.to(tl.int32), mask=fired, sem="relaxed")
    else:
        tl.atomic_add(along + row, tl.reduce(fired.to(tl.int32), 1, add), mask=is_row, sem="relaxed")


@triton.jit
def load_scales(table, at, column, here, size, vector: tl.constexpr):
    """Threshold, factor to levels and 1/threshold of a tile; a row of the table has so many."""
    threshold = load_beside(table, at, column, here, vector)
    to_level = load_beside(table + size, at, column, here, vector)
    return threshold, to_level, load_beside(table + size + size, at, column, here, vector)


@triton.jit
def fire_burst(u, sent, spaces, neuron, burst, levels, counted, here, signed: tl.constexpr, vector: tl.constexpr):
    """All pulses of one step: what they send, and where the next counts go.

    `levels` is where the levels of the first pulses go, and how far apart the next ones lie.
    """
    weights, partial, along, row, place, is_row = counted
    below, above = spaces
    for j in range(burst):
        pulse = fire(u, below, above, neuron, signed)
        size = pulse.to(tl.float32, bitcast=True)
        sent += size
        below, above = below + size, above - size
        u -= size * neuron[3]
        if levels is not None:
            tl.store(levels[0] + j * levels[1], to_levels(pulse), mask=here)
        if weights is not None:
            fired = (pulse != 0) & here  # an initial potential fires where there is no neuron
            partial = count_all(fired, weights, partial)
            if along is not None:
                count_along(fired, along, row, place, is_row, vector)
    return sent, partial


@triton.jit(do_not_specialize=["num_steps", "start", "rows", "burst"])  # no other kernel for other numbers of these
def encode(
    places,
    counting,
    num_steps,
    start,
    rows,
    strides,
    geometry,
    neuron,
    burst,
    signed: tl.constexpr,
    rate: tl.constexpr,
    bfloat: tl.constexpr,  # bfloat16 is given as its bits: not every device, nor the interpreter, rounds to it
    vector: tl.constexpr,  # whether each neuron of a run has its own threshold, fan-out, count; else a row has one
    dims: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
):
    """All steps of a tile of neurons, whose estimates stay in registers; a place that is None leaves its work out."""
    inputs, outputs, state, table, levels, flag = places
    fan_out, partial, along, held, along_step, summed, inside = counting
    input_step, output_step, burst_step, run, num_scales = strides
    sizes, input_strides, output_strides, state_strides, table_strides, fan_strides = geometry
    program, parts = tl.program_id(0), (run + tile_columns - 1) // tile_columns
    # 64 bits: a step may have more neurons than 32 can number
    row = (program // parts).to(tl.int64) * tile_rows + tl.arange(0, tile_rows)
    column = (program % parts).to(tl.int64) * tile_columns + tl.arange(0, tile_columns)[None, :]
    is_row = row < rows
    here = is_row[:, None] & (column < run)
    read = locate(row, sizes, input_strides, dims)[:, None] + column
    write = locate(row, sizes, output_strides, dims)[:, None] + column
    scales = load_scales(table, locate(row, sizes, table_strides, dims), column, here, num_scales, vector[0])
    zero = tl.full((tile_rows, tile_columns), 0.0, tl.float32)
    estimate, weights, place = zero, None, None
    if state is not None:
        estimate = tl.load(state + locate(row, sizes, state_strides, dims)[:, None] + column, mask=here, other=0.0)
    if fan_out is not None:
        weights = load_beside(fan_out, locate(row, sizes, fan_strides, dims), column, here, vector[1])
        place = place_of(row[:, None] * run + column, summed, inside)
    largest = tl.full((tile_rows, tile_columns), 0, tl.int32)
    for k in range(num_steps):
        x = tl.load(inputs + read, mask=here, other=0)
        x = (x.to(tl.int32) << 16).to(tl.float32, bitcast=True) if bfloat else x.to(tl.float32)
        t = (start + k).to(tl.float32)
        predicted = estimate * tl.div_rn(t - 1.0, t) if rate else estimate
        u = potential(x, predicted, t, scales, neuron)
        largest = tl.maximum(largest, u.to(tl.int32, bitcast=True) & MAGNITUDE)
        spaces = spaces_of(predicted, t, scales[2], neuron)
        note = None if levels is None else (levels + write, burst_step)
        counted = (weights, partial, along, row, place, is_row)
        sent, partial = fire_burst(u, zero, spaces, neuron, burst, note, counted, here, signed, vector[2])
        estimate = received(sent, predicted, tl.div_rn(scales[0], t), neuron)
        tl.store(outputs + write, narrow(estimate, outputs.dtype.element_ty, bfloat), mask=here)
        if levels is not None:
            levels += output_step
        if along is not None:
            count_along((estimate != 0) & here, held, row, place, is_row, vector[2])
            along, held = along + along_step, held + along_step
        inputs, outputs = inputs + input_step, outputs + output_step
    tl.store(flag + (largest & 0), 1, mask=largest > EXPONENT)  # whoever met a NaN writes the same
