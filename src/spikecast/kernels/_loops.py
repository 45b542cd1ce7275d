"""The compiled loops of `kernels.cpu`: all steps of a block of neurons at a time, so that their state stays in cache.

They repeat `theory.neuron.step` operation by operation in float32; no operation is reordered or fused with another, so
the bits are the same. Flags are types: an argument that is None takes its branch out of the compiled loop.
"""

# mypy: ignore-errors
# (what stands here is compiled by Numba, by its rules for types)
from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange, types
from numba.extending import overload

from spikecast.kernels._counts import count, count_held
from spikecast.kernels._memory import INPUT, OUTPUT, SCALES, SIZE, STATE, block, compiled, f32, i32

MAGNITUDE = i32(0x7FFFFFFF)
SIGN = i32(-0x80000000)
HALF_MANTISSA = i32(0x400000)
EXPONENT = i32(0x7F800000)  # also the bits of inf: a larger magnitude is NaN
SIGNED_EXPONENT = i32(-0x800000)
ONE = i32(0x3F800000)


def at(values: Any, i: int) -> Any:
    """values[i], or the value itself where one serves the whole block."""


@overload(at)
def _at(values, i):
    if isinstance(values, types.Array):
        return lambda values, i: values[i]
    return lambda values, i: values


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


@compiled()
def pulse_of(u, below, above, neuron):
    """The bits of the pulse nearest to u, or of the largest that fits into the room below or above, or 0."""
    bits = f32(u).view(i32)
    # the power of two nearest to |u| is a sum and a mask: its bits are the exponent's
    power = i32(i32(i32(bits & MAGNITUDE) + HALF_MANTISSA) & EXPONENT)
    power = min(power, below if bits < 0 else above)
    return i32(power | i32(bits & SIGN)) if power >= i32((128 - neuron[0]) << 23) else i32(0)


@compiled()
def room(distance, sent, t, inverse, tolerance):
    """The bits of the largest pulse that a distance to a bound lets through, after what was sent away from it."""
    return min(ONE, i32(f32(distance * t * inverse + sent + tolerance).view(i32) & SIGNED_EXPONENT))


@compiled()
def bounded(estimate, lower, upper):
    """The estimate without the tolerance by which a pulse may have overshot."""
    if lower is not None:
        estimate = lower if estimate < lower else estimate
    if upper is not None:
        estimate = upper if estimate > upper else estimate
    return estimate


@compiled()
def fire(x, held, out, pulses, rest, t, shrink, unit, scales, lower, upper, neuron):
    """The first pulses of a step: inputs x and estimates held before give the estimates after, and the pulses' bits.

    With `rest`, for bursts, what was sent and what is left of the potentials is noted. Returns the bits of the largest
    |u|; above those of inf, some potential is NaN.
    """
    num_levels, potential, below, _ = neuron
    start = f32(potential)
    threshold, to_level, inverse = scales
    tolerance = f32(2.0 ** -(num_levels + 9))
    most_below = i32(below)  # the bits of the largest pulse there is below zero
    largest = i32(0)
    for i in range(x.size):
        predicted = held[i] * shrink
        m = (x[i] - predicted) * t + start * at(threshold, i)
        u = m * at(to_level, i)
        largest = max(largest, i32(f32(u).view(i32) & MAGNITUDE))
        room_below, room_above = most_below, ONE
        if lower is not None:
            room_below = min(room_below, room(predicted - lower, f32(0), t, at(inverse, i), tolerance))
        if upper is not None:
            room_above = room(upper - predicted, f32(0), t, at(inverse, i), tolerance)
        pulse = pulse_of(u, room_below, room_above, neuron)
        size = i32(pulse).view(f32)
        out[i] = bounded(size * at(unit, i) + predicted, lower, upper)
        if pulses is not None:
            pulses[i] = pulse
        if rest is not None:
            rest[0][i] = size
            rest[1][i] = m - size * at(threshold, i)
    return largest


@compiled()
def fire_again(held, out, pulses, rest, t, shrink, unit, scales, lower, upper, neuron):
    """The next pulses of the same step; whether there were any."""
    num_levels, _, below, _ = neuron
    threshold, to_level, inverse = scales
    sent, left = rest
    tolerance = f32(2.0 ** -(num_levels + 9))
    most_below = i32(below)
    fired = i32(0)
    for i in range(sent.size):
        predicted = held[i] * shrink
        room_below, room_above = most_below, ONE
        if lower is not None:
            room_below = min(room_below, room(predicted - lower, sent[i], t, at(inverse, i), tolerance))
        if upper is not None:
            room_above = room(upper - predicted, -sent[i], t, at(inverse, i), tolerance)
        pulse = pulse_of(left[i] * at(to_level, i), room_below, room_above, neuron)
        size = i32(pulse).view(f32)
        total = sent[i] + size
        out[i] = bounded(total * at(unit, i) + predicted, lower, upper)
        sent[i] = total
        left[i] -= size * at(threshold, i)
        fired |= pulse
        if pulses is not None:
            pulses[i] = pulse
    return fired != 0


@compiled()
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


def scales_at(table: int, offset: int, count: int, length: int, vector: bool | None) -> Any:
    """θ, the factor to levels and 1/θ of a block: three numbers, or three arrays where each neuron has its own."""


@overload(scales_at)
def _scales_at(table, offset, count, length, vector):
    def numbers(table, offset, count, length, vector):
        row = block(table, offset, 2 * count + 1, f32(0))
        return row[0], row[count], row[2 * count]

    def arrays(table, offset, count, length, vector):
        return (
            block(table, offset, length, f32(0)),
            block(table, count + offset, length, f32(0)),
            block(table, 2 * count + offset, length, f32(0)),
        )

    return numbers if isinstance(vector, types.NoneType) else arrays


def unit_at(units: int, offset: int, length: int, threshold: Any, t: Any) -> Any:
    """θ/t of a block, where each neuron has its own out of the table that `fill_units` made."""


@overload(unit_at)
def _unit_at(units, offset, length, threshold, t):
    if isinstance(threshold, types.Array):
        return lambda units, offset, length, threshold, t: block(units, offset, length, f32(0))
    return lambda units, offset, length, threshold, t: threshold / t


def fill_units(units: int, offset: int, length: int, num_steps: int, start: int, threshold: Any) -> None:
    """Divide by each t once for all rows with the same thresholds."""


@overload(fill_units)
def _fill_units(units, offset, length, num_steps, start, threshold):
    def fill(units, offset, length, num_steps, start, threshold):
        for k in range(num_steps):
            unit = block(units, offset + k * length, threshold.size, f32(0))
            t = f32(start + k)
            for i in range(threshold.size):
                unit[i] = threshold[i] / t

    def nothing(units, offset, length, num_steps, start, threshold):
        pass

    return fill if isinstance(threshold, types.Array) else nothing


@compiled()
def locate(row, geometry, offsets):
    """Where a row begins in each tensor."""
    offsets[:] = 0
    for d in range(geometry.shape[1] - 1, -1, -1):
        i = row % geometry[SIZE, d]
        row //= geometry[SIZE, d]
        for j in range(1, geometry.shape[0]):
            offsets[j] += i * geometry[j, d]


@compiled()
def work(worker, units, layout, places, geometry, neuron, lower, upper, vector, levels, counting, half, burst):
    """All steps of a range of units, a unit being a row or the part of a long one that fits the cache."""
    num_steps, start, input_step, output_step, run, length, num_scales = layout
    inputs, outputs, state, table, scratch = places
    # of this worker: nothing held, inputs of halves, outputs (two, in turns) that cannot be written at once, pulses,
    # what a burst has sent and has left, and θ/t of each step. What overwrites its input goes by way of scratch: a loop
    # with aliases is not vectorised.
    silent = worker * (7 + num_steps) * length
    wide, narrower, fired, units_t = silent + length, silent + 2 * length, silent + 4 * length, silent + 7 * length
    block(scratch, silent, length, f32(0))[:] = 0
    offsets = np.zeros(geometry.shape[0], np.int64)
    lowest = None if lower is None else f32(lower)
    highest = None if upper is None else f32(upper)
    parts, filled = (run + length - 1) // length, -1
    largest = i32(0)
    for unit in range(units[0], units[1]):
        locate(unit // parts, geometry, offsets)
        part = unit % parts * length
        n = min(length, run - part)
        p = unit // parts * run + part
        first = offsets[SCALES] + (0 if vector is None else part)
        scales = scales_at(table, first, num_scales, n, vector)
        if first != filled:
            fill_units(scratch, units_t, length, num_steps, start, scales[0])
            filled = first
        held = block(scratch, silent, n, f32(0)) if state == 0 else block(state, offsets[STATE] + part, n, f32(0))
        rest = rest_at(scratch, fired + length, length, n, burst)
        for k in range(num_steps):
            here = k * input_step + offsets[INPUT] + part
            there = k * output_step + offsets[OUTPUT] + part
            aside = half is not None or inputs == outputs
            y = block(scratch, narrower + k % 2 * length, n, f32(0)) if aside else block(outputs, there, n, f32(0))
            if half is None:
                x = block(inputs, here, n, f32(0))
            else:
                x = block(scratch, wide, n, f32(0))
                widen(block(inputs, here, n, np.int16(0)), x, half)
            t = f32(start + k)
            shrink = f32((start + k - 1) / (start + k)) if neuron[3] else f32(1)
            unit_t = unit_at(scratch, units_t + k * length, n, scales[0], t)
            pulses = None if levels is None else block(scratch, fired, n, i32(0))
            bits = fire(x, held, y, pulses, rest, t, shrink, unit_t, scales, lowest, highest, neuron)
            largest = max(largest, bits)
            note(pulses, 0, k, worker, offsets, part, p, there, levels, counting)
            if burst is not None:
                for j in range(1, burst[0]):
                    if not fire_again(held, y, pulses, rest, t, shrink, unit_t, scales, lowest, highest, neuron):
                        break
                    note(pulses, j, k, worker, offsets, part, p, there + j * burst[1], levels, counting)
            if counting is not None:
                count_held(y, k, worker, p, counting)
            if half is not None:
                narrow(y, block(outputs, there, n, np.int16(0)), half)
            elif aside:
                block(outputs, there, n, f32(0))[:] = y
            held = y
    return largest > EXPONENT


def rest_at(scratch: int, offset: int, length: int, n: int, burst: Any) -> Any:
    """Where a block notes what its bursts have sent, and have left to send; None where there are none."""


@overload(rest_at)
def _rest_at(scratch, offset, length, n, burst):
    if isinstance(burst, types.NoneType):
        return lambda scratch, offset, length, n, burst: None
    return lambda scratch, offset, length, n, burst: (
        block(scratch, offset, n, f32(0)),
        block(scratch, offset + length, n, f32(0)),
    )


@compiled()
def note(pulses, j, k, worker, offsets, part, p, there, levels, counting):
    """Write down the levels of a block's pulses number j, and count them."""
    if levels is not None:
        if levels != 0:
            to_levels(pulses, block(levels, there, pulses.size, np.int8(0)))
        if counting is not None:
            count(pulses, j, k, worker, offsets, part, p, counting)


@compiled(parallel=True)
def spread(workers, num_units, layout, places, geometry, neuron, lower, upper, vector, levels, counting, half, burst):
    """`work` on several threads, each taking one stretch of the units."""
    found = np.zeros(workers, np.bool_)
    for i in prange(workers):
        me = np.int64(i)
        units = (me * num_units // workers, (me + 1) * num_units // workers)
        found[i] = work(
            me, units, layout, places, geometry, neuron, lower, upper, vector, levels, counting, half, burst
        )
    return found.any()
