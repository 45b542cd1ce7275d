"""The compiled loops of `kernels.cpu`: all steps of a block of neurons at a time, so that their state stays in cache.

What neurons do in a step is in `_fire`. Flags are types: an argument that is None takes its branch out of the loops.
"""

# mypy: ignore-errors
# (what stands here is compiled by Numba, by its rules for types)
from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from spikecast.kernels._counts import count, count_held
from spikecast.kernels._fire import (
    ASIDE,
    EXPONENT,
    MAGNITUDE,
    PULSES,
    ROW,
    SILENT,
    THRESHOLDS,
    UNITS,
    WIDE,
    fire,
    fire_again,
    receive,
    row_at,
)
from spikecast.kernels._memory import INPUT, OUTPUT, SCALES, SIZE, STATE, block, compiled, f32, i32, inner


@compiled()
def prepare(threshold, count, factor, table):
    """Rows θ, factor/θ and 1/θ of a table, each rounded once; whether every threshold is fit."""
    theta = block(threshold, 0, count, f32(0))
    out = block(table, 0, 3 * count, f32(0))
    fit = np.bool_(True)
    for i in range(count):
        to_level = f32(factor / np.float64(theta[i]))
        inverse = f32(1.0 / np.float64(theta[i]))
        fit &= (theta[i] > 0) & (to_level > 0) & (to_level < np.inf) & (inverse > 0) & (inverse < np.inf)
        out[i] = theta[i]
        out[count + i] = to_level
        out[2 * count + i] = inverse
    return fit


@inner()
def copy(values, out):
    """Into memory that is apart; a slice, which cares for overlaps, takes Numba seconds to compile."""
    for i in range(out.size):
        out[i] = values[i]


@inner()
def to_levels(pulses, levels):
    """The signed level index of pulses that are given as their bits."""
    for i in range(levels.size):
        pulse = pulses[i]
        level = i32(128 - (i32(pulse & EXPONENT) >> 23))
        level = -level if pulse < 0 else level
        levels[i] = np.int8(level if pulse != 0 else 0)


@compiled()
def widen(bits, out, is_float16):
    """Halves, given as their bits, as float32."""
    if is_float16:
        for i in range(out.size):
            magnitude = i32(i32(bits[i]) & i32(0x7FFF)) << 13
            value = i32(magnitude).view(f32) * f32(2.0**112)  # moves the exponent's bias; exact, subnormals included
            special = i32(magnitude | i32(0x7F800000)).view(f32)  # inf and NaN
            value = special if magnitude >= i32(0x0F800000) else value
            out[i] = -value if bits[i] < 0 else value
    else:
        for i in range(out.size):
            out[i] = i32(i32(bits[i]) << 16).view(f32)


@compiled()
def narrow(values, out, is_float16):
    """Float32 (not NaN) as the bits of halves, rounded to the nearest, ties to even."""
    if is_float16:
        for i in range(out.size):
            bits = f32(values[i]).view(i32)
            magnitude = i32(bits & MAGNITUDE)
            normal = i32(magnitude - i32(112 << 23)) + i32(0xFFF) + i32((magnitude >> 13) & 1)
            # below 2**-14 adding 1/2 leaves just the bits of a subnormal half at the end of the mantissa
            small = i32(f32(i32(magnitude).view(f32) + f32(0.5)).view(i32) - f32(0.5).view(i32))
            half = min(i32(normal >> 13), i32(0x7C00)) if magnitude >= i32(113 << 23) else small
            out[i] = np.int16(half | (i32(bits >> 16) & i32(-0x8000)))
    else:
        for i in range(out.size):
            bits = f32(values[i]).view(i32)
            out[i] = np.int16((bits + i32(0x7FFF) + ((bits >> 16) & 1)) >> 16)


def load_scales(table: int, offset: int, count: int, length: int, rows: Any, steps: Any, vector: Any) -> Any:
    """The scales of a block: three numbers; or None, and rows of scratch have them, and θ divided by each t."""


@overload(load_scales)
def _load_scales(table, offset, count, length, rows, steps, vector):
    def numbers(table, offset, count, length, rows, steps, vector):
        row = block(table, offset, 2 * count + 1, f32(0))
        return row[0], row[count], row[2 * count]

    def fill(table, offset, count, length, rows, steps, vector):
        for j in range(3):
            copy(block(table, j * count + offset, length, f32(0)), row_at(rows, THRESHOLDS + j, length, f32(0)))
        threshold = row_at(rows, THRESHOLDS, length, f32(0))
        for k in range(steps[0]):
            unit = row_at(rows, UNITS + k, length, f32(0))
            t = f32(steps[1] + k)
            for i in range(length):
                unit[i] = threshold[i] / t

    return numbers if isinstance(vector, types.NoneType) else fill


@inner()
def locate(row, geometry, offsets):
    """Where a row begins in each tensor."""
    for j in range(offsets.size):
        offsets[j] = 0
    for d in range(geometry.shape[1] - 1, -1, -1):
        i = row % geometry[SIZE, d]
        row //= geometry[SIZE, d]
        for j in range(1, geometry.shape[0]):
            offsets[j] += i * geometry[j, d]


@compiled()
def work(
    worker, units, layout, places, geometry, neuron, lower, upper, vector, levels, counting, half, edge, first, more
):
    """All steps of a range of units, a unit being a row or the part of a long one that fits the cache."""
    num_steps, start, input_step, output_step, num_rows, run, length, num_scales, burst, burst_step = layout
    inputs, outputs, state, table, scratch = places
    rows = (scratch, worker * (UNITS + num_steps) * ROW)
    silent = row_at(rows, SILENT, length, f32(0))
    for i in range(length):
        silent[i] = 0
    offsets = np.zeros(geometry.shape[0], np.int64)
    filled, largest = -1, i32(0)
    for unit in range(units[0], units[1]):
        row = unit % num_rows  # the same part of all rows comes first: they may share thresholds
        locate(row, geometry, offsets)
        part = unit // num_rows * length
        n = min(length, run - part)
        p = row * run + part
        at_scales = offsets[SCALES] + (0 if vector is None else part)
        if at_scales != filled:
            scales = load_scales(table, at_scales, num_scales, n, rows, (num_steps, start), vector)
            filled = at_scales
        held = row_at(rows, SILENT, n, f32(0)) if state == 0 else block(state, offsets[STATE] + part, n, f32(0))
        for k in range(num_steps):
            here = k * input_step + offsets[INPUT] + part
            there = k * output_step + offsets[OUTPUT] + part
            # what overwrites its input goes by way of scratch: a loop with aliases is not vectorised
            aside = half is not None or inputs == outputs
            y = row_at(rows, ASIDE + k % 2, n, f32(0)) if aside else block(outputs, there, n, f32(0))
            if half is None:
                x = block(inputs, here, n, f32(0))
            else:
                x = row_at(rows, WIDE, n, f32(0))
                widen(block(inputs, here, n, np.int16(0)), x, half)
            t = f32(start + k)
            shrink = f32((start + k - 1) / (start + k)) if neuron[3] else f32(1)
            bits = fire(x, held, y, rows, k, t, shrink, scales, lower, upper, neuron, edge, first, levels, more)
            largest = max(largest, bits)
            for j in range(len(first)):
                note(rows, j, n, j, k, worker, offsets, part, p, there + j * burst_step, levels, counting)
            if more is not None:
                for j in range(len(first), burst):
                    if not fire_again(rows, n, lower, upper, neuron, edge):
                        break
                    note(rows, 0, n, j, k, worker, offsets, part, p, there + j * burst_step, levels, counting)
                receive(held, y, rows, k, t, shrink, scales, lower, upper)
            if counting is not None:
                count_held(y, k, worker, p, counting)
            if half is not None:
                narrow(y, block(outputs, there, n, np.int16(0)), half)
            elif aside:
                copy(y, block(outputs, there, n, f32(0)))
            held = y
    return largest > EXPONENT


@inner()
def note(rows, row, n, j, k, worker, offsets, part, p, there, levels, counting):
    """Write down the levels of a block's pulses number j, and count them."""
    if levels is not None:
        pulses = row_at(rows, PULSES + row, n, i32(0))
        if levels != 0:
            to_levels(pulses, block(levels, there, n, np.int8(0)))
        if counting is not None:
            count(pulses, j, k, worker, offsets, part, p, counting)
