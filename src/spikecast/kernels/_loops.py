"""The compiled loops of `kernels.cpu`: all steps of a block of neurons at a time, so that their state stays in cache.

They repeat `theory.neuron.step` operation by operation in float32; no operation is reordered or fused with another, so
the bits are the same. Flags are types: an argument that is None takes its branch out of the compiled loop.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic, overload

f32 = np.float32
i32 = np.int32
MAGNITUDE = i32(0x7FFFFFFF)
SIGN = i32(-0x80000000)
HALF_MANTISSA = i32(0x400000)
EXPONENT = i32(0x7F800000)  # also the bits of inf: a larger magnitude is NaN
SIGNED_EXPONENT = i32(-0x800000)
ONE = i32(0x3F800000)

# Rows of a geometry: sizes of the outer axes, then the strides along them of
SIZE, INPUT, OUTPUT, STATE, SCALES, FAN_OUT, ALONG = range(7)


def compiled(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` kept on disk, unless there is nowhere to write."""

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        except RuntimeError:  # no locator available: a read-only installation and home
            return numba.njit(nogil=True, error_model="numpy", **options)(function)

    return decorate


@intrinsic
def pointer(_context: Any, address: Any, offset: Any, sample: Any) -> Any:
    """A pointer to element `offset` of what lies at an address, all elements being like `sample`."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        first = builder.inttoptr(args[0], ir.PointerType(context.get_value_type(sample)))
        return builder.gep(first, [args[1]])

    return types.CPointer(sample)(types.int64, types.int64, sample), generate


@compiled()
def block(address, offset, length, sample):
    """`length` numbers like `sample` from element `offset` on, as an array."""
    return numba.carray(pointer(address, offset, sample), (length,))


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
    fit = True
    for i in range(count):
        to_level = f32(factor / np.float64(theta[i]))
        inverse = f32(1.0 / np.float64(theta[i]))
        fit &= theta[i] > 0 and to_level > 0 and to_level < np.inf and inverse > 0 and inverse < np.inf
        out[i] = theta[i]
        out[count + i] = to_level
        out[2 * count + i] = inverse
    return fit


@compiled()
def fire(x, held, out, levels, t, shrink, scales, lower, upper, neuron):
    """One step of a block: inputs x and estimates held before give the estimates after, and the levels fired.

    Returns the bits of the largest |u|; above those of inf, some potential is NaN.
    """
    num_levels, start, signed = neuron
    threshold, to_level, inverse = scales
    smallest = i32((128 - num_levels) << 23)
    tolerance = f32(2.0 ** -(num_levels + 9))
    below = ONE if signed else i32(0)  # the largest pulse there is below zero
    largest = i32(0)
    for i in range(x.size):
        theta = at(threshold, i)
        predicted = held[i] * shrink
        u = ((x[i] - predicted) * t + start * theta) * at(to_level, i)
        bits = f32(u).view(i32)
        magnitude = i32(bits & MAGNITUDE)
        largest = max(largest, magnitude)
        # the power of two nearest to |u| is a sum and a mask: its bits are the exponent's
        power = i32(i32(magnitude + HALF_MANTISSA) & EXPONENT)
        room = below if bits < 0 else ONE
        if lower is not None:
            space = f32((predicted - lower) * t * at(inverse, i) + tolerance).view(i32)
            room = min(room, i32(space & SIGNED_EXPONENT)) if bits < 0 else room
        if upper is not None:
            space = f32((upper - predicted) * t * at(inverse, i) + tolerance).view(i32)
            room = room if bits < 0 else min(room, i32(space & SIGNED_EXPONENT))
        power = min(power, room)
        power = power if power >= smallest else i32(0)
        estimate = i32(power | i32(bits & SIGN)).view(f32) * (theta / t) + predicted
        if lower is not None:
            estimate = lower if estimate < lower else estimate
        if upper is not None:
            estimate = upper if estimate > upper else estimate
        out[i] = estimate
        if levels is not None:
            level = i32(128 - (power >> 23)) if power > 0 else i32(0)
            levels[i] = np.int8(-level if bits < 0 else level)
    return largest
