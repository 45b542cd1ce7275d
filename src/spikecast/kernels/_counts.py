"""The compiled loops that count: how many pulses of a block there are, and what they cost their receivers."""

# mypy: ignore-errors
# (what stands here is compiled by Numba, by its rules for types)
from __future__ import annotations

import numpy as np

from spikecast.kernels._memory import FAN_OUT, block, i32, inner


@inner()
def count_weighted(pulses, fan_out):
    """The fan-outs of the neurons that fired, summed."""
    total = np.int64(0)
    for i in range(pulses.size):
        total += fan_out[i] if pulses[i] != 0 else np.int64(0)
    return total


@inner()
def count_along(values, address, first, p, size, inside):
    """Add one to the count of each value that is not zero, the first being neuron p on the way (`layout.Walk`)."""
    stretch = size if inside == 1 else inside  # values that share a count, or whose counts lie side by side
    i = 0
    while i < values.size:
        n = min(stretch - (p + i) % stretch, values.size - i)
        at = first + (p + i) // (size * inside) * inside + (p + i) % inside
        if inside == 1:
            block(address, at, 1, i32(0))[0] += count_all(values, i, n)
        else:
            add_each(values, i, block(address, at, n, i32(0)))
        i += n


@inner()
def add_each(values, first, counts):
    for i in range(counts.size):
        counts[i] += i32(values[first + i] != 0)


@inner()
def count_all(values, first, n):
    """How many of n values of a block are not zero."""
    total = i32(0)
    for i in range(first, first + n):
        total += i32(values[i] != 0)
    return total


@inner()
def count(pulses, j, k, worker, offsets, part, p, counting):
    """Add a block's pulses number j of step k to what this worker counted; p numbers its first neuron on the way."""
    fan_out, fan_stride, totals, along, _, size, inside, places, num_steps, burst = counting
    weights = block(fan_out, offsets[FAN_OUT] + part * fan_stride, pulses.size, np.int64(0))
    sums = block(totals, (burst + 1) * (worker * num_steps + k), burst + 1, np.int64(0))
    number = np.int64(count_all(pulses, 0, pulses.size))
    sums[j] += number
    sums[burst] += number * weights[0] if fan_stride == 0 else count_weighted(pulses, weights)
    if along != 0:
        count_along(pulses, along, (worker * num_steps + k) * places, p, size, inside)


@inner()
def count_held(estimates, k, worker, p, counting):
    """The same for the estimates after step k that are not zero."""
    _, _, _, _, held, size, inside, places, num_steps, _ = counting
    if held != 0:
        count_along(estimates, held, (worker * num_steps + k) * places, p, size, inside)
