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

# A worker's scratch is cut into rows. 4096 neurons' numbers fit one; a few more keep rows out of each other's way in
# the cache, where addresses a power of two apart share a place.
BLOCK, ROW = 4096, 4096 + 80
AT_ONCE = 4  # pulses of a burst that are made in registers; the later ones take a pass each
# nothing held; inputs of halves; outputs (in turns) that cannot be written at once; what a long burst has sent and has
# left; the bits of pulses; θ, the factor to levels and 1/θ where each neuron has its own; θ/t of each step
SILENT, WIDE, ASIDE, SENT, LEFT, PULSES = 0, 1, 2, 4, 5, 6
THRESHOLDS = PULSES + AT_ONCE
UNITS = THRESHOLDS + 3


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
    return i32(power | i32(bits & SIGN)) if power >= neuron[0] else i32(0)


@compiled()
def room(space, sent):
    """The bits of the largest pulse that fits into the space before a bound, after what was sent away from it."""
    return min(ONE, i32(f32(space + sent).view(i32) & SIGNED_EXPONENT))


@compiled()
def bounded(estimate, lower, upper):
    """The estimate without the tolerance by which a pulse may have overshot."""
    if lower is not None:
        estimate = lower if estimate < lower else estimate
    if upper is not None:
        estimate = upper if estimate > upper else estimate
    return estimate


@compiled()
def next_pulse(u, sent, spaces, lower, upper, neuron):
    """The bits of the next pulse of a burst, which sent so much before, and what it is worth in units of θ."""
    below, above = neuron[2], ONE
    if lower is not None:
        below = min(below, room(spaces[0], sent))
    if upper is not None:
        above = room(spaces[1], -sent)
    pulse = pulse_of(u, below, above, neuron)
    return pulse, i32(pulse).view(f32)


@compiled()
def less(u, size, edge):
    """What a pulse leaves of u."""
    return u - size if edge is None else u - size * edge


@compiled()
def spaces_of(predicted, t, inverse, lower, upper, neuron):
    """How far the bounds are before the first pulse, in units of θ, with the tolerance for landing on them."""
    below = above = f32(0)
    if lower is not None:
        below = (predicted - lower) * t * inverse + neuron[4]
    if upper is not None:
        above = (upper - predicted) * t * inverse + neuron[4]
    return below, above


@compiled()
def fire(x, held, out, rows, unit, t, shrink, scales, lower, upper, neuron, edge, first, keep, more):
    """The first pulses of a step, in registers: inputs x and estimates held before give the estimates after.

    As many pulses as the tuple `first` is long. With `keep` their bits are noted, with `more` what was sent and what
    is left of the potentials, for the pulses after them. Returns the bits of the largest |u|; above those of inf, some
    potential is NaN.
    """
    start = neuron[1]
    threshold, to_level, inverse = scales_at(rows, x.size, scales)
    unit_t = unit_at(rows, unit, x.size, threshold, t)
    pulses = row_at(rows, PULSES, len(first) * ROW, i32(0))
    sent_before = row_at(rows, SENT, x.size, f32(0))
    left = row_at(rows, LEFT, x.size, f32(0))
    largest = i32(0)
    for i in range(x.size):
        predicted = held[i] * shrink
        u = ((x[i] - predicted) * t + start * at(threshold, i)) * at(to_level, i)
        largest = max(largest, i32(f32(u).view(i32) & MAGNITUDE))
        spaces = spaces_of(predicted, t, at(inverse, i), lower, upper, neuron)
        pulse, sent = next_pulse(u, f32(0), spaces, lower, upper, neuron)
        if keep is not None:
            pulses[i] = pulse
        u = less(u, sent, edge)
        for j in range(1, len(first)):
            pulse, size = next_pulse(u, sent, spaces, lower, upper, neuron)
            if keep is not None:
                pulses[j * ROW + i] = pulse
            sent += size
            u = less(u, size, edge)
        out[i] = bounded(sent * at(unit_t, i) + predicted, lower, upper)
        if more is not None:
            sent_before[i] = sent
            left[i] = u
    return largest


@compiled()
def fire_again(held, rows, t, shrink, scales, lower, upper, neuron, edge):
    """One more pulse of the same step, whose bits replace those of the first; whether any neuron had one."""
    _, _, inverse = scales_at(rows, held.size, scales)
    pulses = row_at(rows, PULSES, held.size, i32(0))
    sent = row_at(rows, SENT, held.size, f32(0))
    left = row_at(rows, LEFT, held.size, f32(0))
    fired = i32(0)
    for i in range(held.size):
        spaces = spaces_of(held[i] * shrink, t, at(inverse, i), lower, upper, neuron)
        pulse, size = next_pulse(left[i], sent[i], spaces, lower, upper, neuron)
        sent[i] += size
        left[i] = less(left[i], size, edge)
        pulses[i] = pulse
        fired |= pulse
    return fired != 0


@compiled()
def receive(held, out, rows, unit, t, shrink, scales, lower, upper):
    """The estimates after a step with more pulses than the first."""
    threshold, _, _ = scales_at(rows, held.size, scales)
    unit_t = unit_at(rows, unit, held.size, threshold, t)
    sent = row_at(rows, SENT, held.size, f32(0))
    for i in range(held.size):
        out[i] = bounded(sent[i] * at(unit_t, i) + held[i] * shrink, lower, upper)


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


@compiled()
def row_at(rows, number, length, sample):
    """Numbers like `sample` from the beginning of a row of this worker's scratch.

    All rows are reached from one address at fixed distances: so the compiler sees that they are apart, and vectorises.
    """
    return block(rows[0], rows[1] + number * ROW, length, sample)


def scales_at(rows: tuple[int, int], length: int, scales: Any) -> Any:
    """θ, the factor to levels and 1/θ of a block: three numbers, or three rows where each neuron has its own."""


@overload(scales_at)
def _scales_at(rows, length, scales):
    if not isinstance(scales, types.NoneType):
        return lambda rows, length, scales: scales
    return lambda rows, length, scales: (
        row_at(rows, THRESHOLDS, length, f32(0)),
        row_at(rows, THRESHOLDS + 1, length, f32(0)),
        row_at(rows, THRESHOLDS + 2, length, f32(0)),
    )


def unit_at(rows: tuple[int, int], unit: int, length: int, threshold: Any, t: Any) -> Any:
    """θ/t of a block, where each neuron has its own out of the rows that `load_scales` made."""


@overload(unit_at)
def _unit_at(rows, unit, length, threshold, t):
    if isinstance(threshold, types.Array):
        return lambda rows, unit, length, threshold, t: row_at(rows, UNITS + unit, length, f32(0))
    return lambda rows, unit, length, threshold, t: threshold / t


def load_scales(table: int, offset: int, count: int, length: int, rows: Any, steps: Any, vector: Any) -> Any:
    """The scales of a block: three numbers; or None, and rows of scratch have them, and θ divided by each t."""


@overload(load_scales)
def _load_scales(table, offset, count, length, rows, steps, vector):
    def numbers(table, offset, count, length, rows, steps, vector):
        row = block(table, offset, 2 * count + 1, f32(0))
        return row[0], row[count], row[2 * count]

    def fill(table, offset, count, length, rows, steps, vector):
        for j in range(3):
            row_at(rows, THRESHOLDS + j, length, f32(0))[:] = block(table, j * count + offset, length, f32(0))
        threshold = row_at(rows, THRESHOLDS, length, f32(0))
        for k in range(steps[0]):
            unit = row_at(rows, UNITS + k, length, f32(0))
            t = f32(steps[1] + k)
            for i in range(length):
                unit[i] = threshold[i] / t

    return numbers if isinstance(vector, types.NoneType) else fill


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
def work(
    worker, units, layout, places, geometry, neuron, lower, upper, vector, levels, counting, half, edge, first, more
):
    """All steps of a range of units, a unit being a row or the part of a long one that fits the cache."""
    num_steps, start, input_step, output_step, run, length, num_scales, burst, burst_step = layout
    inputs, outputs, state, table, scratch = places
    rows = (scratch, worker * (UNITS + num_steps) * ROW)
    row_at(rows, SILENT, length, f32(0))[:] = 0
    offsets = np.zeros(geometry.shape[0], np.int64)
    parts, filled = (run + length - 1) // length, -1
    largest = i32(0)
    for unit in range(units[0], units[1]):
        locate(unit // parts, geometry, offsets)
        part = unit % parts * length
        n = min(length, run - part)
        p = unit // parts * run + part
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
                    if not fire_again(held, rows, t, shrink, scales, lower, upper, neuron, edge):
                        break
                    note(rows, 0, n, j, k, worker, offsets, part, p, there + j * burst_step, levels, counting)
                receive(held, y, rows, k, t, shrink, scales, lower, upper)
            if counting is not None:
                count_held(y, k, worker, p, counting)
            if half is not None:
                narrow(y, block(outputs, there, n, np.int16(0)), half)
            elif aside:
                block(outputs, there, n, f32(0))[:] = y
            held = y
    return largest > EXPONENT


@compiled()
def note(rows, row, n, j, k, worker, offsets, part, p, there, levels, counting):
    """Write down the levels of a block's pulses number j, and count them."""
    if levels is not None:
        pulses = row_at(rows, PULSES + row, n, i32(0))
        if levels != 0:
            to_levels(pulses, block(levels, there, n, np.int8(0)))
        if counting is not None:
            count(pulses, j, k, worker, offsets, part, p, counting)


@compiled(parallel=True)
def spread(
    workers,
    num_units,
    layout,
    places,
    geometry,
    neuron,
    lower,
    upper,
    vector,
    levels,
    counting,
    half,
    edge,
    first,
    more,
):
    """`work` on several threads, each taking one stretch of the units."""
    found = np.zeros(workers, np.bool_)
    for i in prange(workers):
        me = np.int64(i)
        units = (me * num_units // workers, (me + 1) * num_units // workers)
        found[i] = work(
            me, units, layout, places, geometry, neuron, lower, upper, vector, levels, counting, half, edge, first, more
        )
    return found.any()
