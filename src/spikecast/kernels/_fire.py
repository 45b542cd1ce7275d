"""The compiled firing rule of `kernels.cpu`: the pulses of a block of neurons in one step.

It repeats `theory.neuron.step` operation by operation in float32; no operation is reordered or fused with another, so
the bits are the same. Flags are types: an argument that is None takes its branch out of the compiled loop.
"""

# mypy: ignore-errors
# (what stands here is compiled by Numba, by its rules for types)
from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from spikecast.kernels._memory import block, f32, i32, inner

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
# nothing held; inputs of halves; outputs (in turns) that cannot be written at once; what a long burst has sent, what it
# has left, and how far its bounds are; the bits of pulses; θ, the factor to levels and 1/θ where each neuron has its
# own; θ/t of each step
SILENT, WIDE, ASIDE, SENT, LEFT, BELOW, ABOVE, PULSES = 0, 1, 2, 4, 5, 6, 7, 8
THRESHOLDS = PULSES + AT_ONCE
UNITS = THRESHOLDS + 3


def at(values: Any, i: int) -> Any:
    """values[i], or the value itself where one serves the whole block."""


@overload(at)
def _at(values, i):
    if isinstance(values, types.Array):
        return lambda values, i: values[i]
    return lambda values, i: values


@inner()
def row_at(rows, number, length, sample):
    """Numbers like `sample` from the beginning of a row of this worker's scratch.

    All rows are reached from one address at fixed distances: so the compiler sees that they are apart, and vectorises.
    """
    return block(rows[0], rows[1] + number * ROW, length, sample)


def pulses_at(rows: tuple[int, int], count: int, keep: Any) -> Any:
    """Where the bits of pulses are noted, one row after the other; None where nobody asks for them."""


@overload(pulses_at)
def _pulses_at(rows, count, keep):
    if isinstance(keep, types.NoneType):
        return lambda rows, count, keep: None
    return lambda rows, count, keep: row_at(rows, PULSES, count * ROW, i32(0))


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


@inner()
def pulse_of(u, below, above, neuron):
    """The bits of the pulse nearest to u, or of the largest that fits into the room below or above, or 0."""
    bits = f32(u).view(i32)
    # the power of two nearest to |u| is a sum and a mask, the largest that fits a mask: one mask serves both
    power = min(i32(i32(bits & MAGNITUDE) + HALF_MANTISSA), below if bits < 0 else above)
    power = i32(power & SIGNED_EXPONENT)
    return i32(power | i32(bits & SIGN)) if power >= neuron[0] else i32(0)


@inner()
def room(space, most):
    """The bits of the space before a bound, or of the largest pulse if that is less."""
    return min(most, f32(space).view(i32))


@inner()
def bounded(estimate, lower, upper):
    """The estimate without the tolerance by which a pulse may have overshot."""
    if lower is not None:
        estimate = lower if estimate < lower else estimate
    if upper is not None:
        estimate = upper if estimate > upper else estimate
    return estimate


@inner()
def next_pulse(u, spaces, lower, upper, neuron):
    """The bits of the next pulse, and what it is worth in units of θ."""
    below = neuron[2] if lower is None else room(spaces[0], neuron[2])
    above = ONE if upper is None else room(spaces[1], ONE)
    pulse = pulse_of(u, below, above, neuron)
    return pulse, i32(pulse).view(f32)


@inner()
def left_after(size, u, spaces, edge):
    """What a pulse leaves of u, and of the spaces before the bounds."""
    return u - size if edge is None else u - size * edge, (spaces[0] + size, spaces[1] - size)


@inner()
def send(u, spaces, lower, upper, neuron, edge, first, pulses, i):
    """The first pulses of neuron i, whose bits are noted: their sum in units of θ, and what they leave."""
    pulse, sent = next_pulse(u, spaces, lower, upper, neuron)
    if pulses is not None:
        pulses[i] = pulse
    u, spaces = left_after(sent, u, spaces, edge)
    for j in range(1, len(first)):
        pulse, size = next_pulse(u, spaces, lower, upper, neuron)
        if pulses is not None:
            pulses[j * ROW + i] = pulse
        sent += size
        u, spaces = left_after(size, u, spaces, edge)
    return sent, u, spaces


@inner()
def spaces_of(predicted, t, inverse, lower, upper, neuron):
    """How far the bounds are before the first pulse, in units of θ, with the tolerance for landing on them."""
    below = above = f32(0)
    if lower is not None:
        below = (predicted - lower) * t * inverse + neuron[4]
    if upper is not None:
        above = (upper - predicted) * t * inverse + neuron[4]
    return below, above


@inner(forceinline=True)
def fire(x, held, out, rows, unit, t, shrink, scales, lower, upper, neuron, edge, first, keep, more):
    """The first pulses of a step, in registers: inputs x and estimates held before give the estimates after.

    As many pulses as the tuple `first` is long. With `keep` their bits are noted, with `more` what was sent and what
    is left, for the pulses after them. Returns the bits of the largest |u|; above those of inf, some potential is NaN.
    """
    start = neuron[1]
    threshold, to_level, inverse = scales_at(rows, x.size, scales)
    unit_t = unit_at(rows, unit, x.size, threshold, t)
    pulses = pulses_at(rows, len(first), keep)
    noted, left = row_at(rows, SENT, x.size, f32(0)), row_at(rows, LEFT, x.size, f32(0))
    below, above = row_at(rows, BELOW, x.size, f32(0)), row_at(rows, ABOVE, x.size, f32(0))
    largest = i32(0)
    for i in range(x.size):
        predicted = held[i] * shrink
        u = ((x[i] - predicted) * t + start * at(threshold, i)) * at(to_level, i)
        largest = max(largest, i32(f32(u).view(i32) & MAGNITUDE))
        spaces = spaces_of(predicted, t, at(inverse, i), lower, upper, neuron)
        sent, u, spaces = send(u, spaces, lower, upper, neuron, edge, first, pulses, i)
        out[i] = bounded(sent * at(unit_t, i) + predicted, lower, upper)
        if more is not None:
            noted[i], left[i] = sent, u
            below[i], above[i] = spaces
    return largest


@inner()
def fire_again(rows, n, lower, upper, neuron, edge):
    """One more pulse of each neuron in the same step, in the row of the first ones; whether any had one."""
    pulses = row_at(rows, PULSES, n, i32(0))
    sent, left = row_at(rows, SENT, n, f32(0)), row_at(rows, LEFT, n, f32(0))
    below, above = row_at(rows, BELOW, n, f32(0)), row_at(rows, ABOVE, n, f32(0))
    fired = i32(0)
    for i in range(n):
        spaces = below[i], above[i]
        size, left[i], (below[i], above[i]) = send(left[i], spaces, lower, upper, neuron, edge, (0,), pulses, i)
        sent[i] += size
        fired |= pulses[i]
    return fired != 0


@inner()
def receive(held, out, rows, unit, t, shrink, scales, lower, upper):
    """The estimates after a step with more pulses than the first."""
    threshold, _, _ = scales_at(rows, held.size, scales)
    unit_t = unit_at(rows, unit, held.size, threshold, t)
    sent = row_at(rows, SENT, held.size, f32(0))
    for i in range(held.size):
        out[i] = bounded(sent[i] * at(unit_t, i) + held[i] * shrink, lower, upper)
