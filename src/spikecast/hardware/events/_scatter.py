"""The compiled loops of the event-driven simulator: what one event does, entry by entry, and nothing else.

A wire is (value, count, touched, used): what has arrived in this step, how many spikes it came from, the entries that
anything arrived at, and how many they are. Each loop reads the touched entries of one wire and adds to another.
"""

# mypy: ignore-errors
# (what stands here is compiled by Numba, by its rules for types)
from __future__ import annotations

import numpy as np

from spikecast.kernels._loops import compiled

RING = 64  # steps ahead for which a neuron can be called; who is due later is looked at again then
# rows of a convolution's geometry, each (z, y, x); CHANNELS holds (channels in, filters per group, channels per group)
SIZE, OUT, KERNEL, STRIDE, PADDING, DILATION, CHANNELS = range(7)


@compiled()
def send(places, values, wire):
    """Events out of a source: one for each entry that is sent."""
    value, count, touched, used = wire
    for k in range(len(places)):
        i = places[k]
        value[i] += values[k]
        if count[i] == 0:
            touched[used[0]] = i
            used[0] += 1
        count[i] += 1


@compiled()
def clear(wire):
    """Forget the step; only what was touched is visited."""
    value, count, touched, used = wire
    for k in range(used[0]):
        value[touched[k]] = 0.0
        count[touched[k]] = 0
    used[0] = 0


@compiled()
def carry(start, targets, weights, once, source, wire):
    """Move or average: entry i goes to the entries targets[start[i]:start[i+1]], weighted.

    With `once`, an entry that anything reaches is one graded event; else it stands for all spikes it came from.
    """
    x, spikes, entries, number = source
    value, count, touched, used = wire
    for k in range(number[0]):
        i = entries[k]
        for j in range(start[i], start[i + 1]):
            o = targets[j]
            value[o] += weights[j] * x[i]
            if count[o] == 0:
                touched[used[0]] = o
                used[0] += 1
                count[o] = 1 if once else spikes[i]
            elif not once:
                count[o] += spikes[i]


@compiled()
def _touch(o, wire):
    """Note that a weighted op has reached an entry; how many spikes it came from does not matter behind weights."""
    _, count, touched, used = wire
    if count[o] == 0:
        count[o] = 1
        touched[used[0]] = o
        used[0] += 1


@compiled()
def scatter_linear(weights, analog, source, wire):
    """Weights [in, out] on the last axis. Accumulates: one for each event and output, and for each spike and output."""
    x, spikes, entries, number = source
    value = wire[0]
    inputs, outputs = weights.shape
    events = came_from = 0
    for k in range(number[0]):
        i = entries[k]
        v = x[i]
        if analog and v == 0.0:
            continue
        events += outputs
        came_from += outputs * spikes[i]
        row, column = i // inputs, i % inputs
        for f in range(outputs):
            o = row * outputs + f
            value[o] += v * weights[column, f]
            _touch(o, wire)
    return events, came_from


@compiled()
def _reach(i, axis, geometry, transposed, places, taps):
    """The outputs along one axis that read entry i, and through which tap: how many there are."""
    reached = 0
    stride, pad, dilation = geometry[STRIDE, axis], geometry[PADDING, axis], geometry[DILATION, axis]
    for k in range(geometry[KERNEL, axis]):
        if transposed:
            o = i * stride - pad + k * dilation
        else:
            shifted = i + pad - k * dilation
            if shifted < 0 or shifted % stride != 0:
                continue
            o = shifted // stride
        if 0 <= o < geometry[OUT, axis]:
            places[reached] = o
            taps[reached] = k
            reached += 1
    return reached


@compiled()
def scatter_conv(weights, geometry, transposed, analog, source, wire):
    """A convolution in up to three dimensions; weights [channel in, filter of its group, tap]."""
    x, spikes, entries, number = source
    value = wire[0]
    filters, per_group = geometry[CHANNELS, 1], geometry[CHANNELS, 2]
    depth, height, width = geometry[SIZE]
    out_y, out_x = geometry[OUT, 1], geometry[OUT, 2]
    space = geometry[OUT, 0] * out_y * out_x
    kernel_y, kernel_x = geometry[KERNEL, 1], geometry[KERNEL, 2]
    places = np.empty((3, geometry[KERNEL].max()), np.int64)
    taps = np.empty_like(places)
    place, tap = np.empty(weights.shape[2], np.int64), np.empty(weights.shape[2], np.int64)
    channels = geometry[CHANNELS, 0]
    events = came_from = 0
    for k in range(number[0]):
        i = entries[k]
        v = x[i]
        if analog and v == 0.0:
            continue
        rest = i // width
        nx = _reach(i % width, 2, geometry, transposed, places[2], taps[2])
        ny = _reach(rest % height, 1, geometry, transposed, places[1], taps[1])
        rest //= height
        nz = _reach(rest % depth, 0, geometry, transposed, places[0], taps[0])
        channel = rest // depth  # also of all samples, where a batch is pinned
        reached = 0
        for a in range(nz):
            for b in range(ny):
                for c in range(nx):
                    place[reached] = (places[0, a] * out_y + places[1, b]) * out_x + places[2, c]
                    tap[reached] = (taps[0, a] * kernel_y + taps[1, b]) * kernel_x + taps[2, c]
                    reached += 1
        events += reached * filters
        came_from += reached * filters * spikes[i]
        first = (channel // per_group) * filters * space
        own = weights[channel % channels]
        for f in range(filters):
            for r in range(reached):
                o = first + f * space + place[r]
                value[o] += v * own[f, tap[r]]
                _touch(o, wire)
    return events, came_from


@compiled()
def receive(wire, held, factor):
    """Add what has arrived to what is held."""
    value, _, touched, used = wire
    for k in range(used[0]):
        held[touched[k]] += value[touched[k]] * factor


# -- who is to be looked at: those that anything arrived at, and those that are due


@compiled()
def _take_out(i, head, links, slot):
    """Remove a neuron from the ring it waits in."""
    before, after = links[0, i], links[1, i]
    if before >= 0:
        links[1, before] = after
    else:
        head[slot[i]] = after
    if after >= 0:
        links[0, after] = before
    slot[i] = -1


@compiled()
def _put_in(i, t, step, head, links, slot):
    """Let a neuron wait for a step after t; those too far ahead are looked at again when the ring has come round."""
    place = int(min(step, np.float64(t + RING - 1))) % RING
    links[0, i], links[1, i] = -1, head[place]
    if head[place] >= 0:
        links[0, head[place]] = i
    head[place] = i
    slot[i] = place


@compiled()
def _when(t, slope, offset, edge, far, near, least):
    """The first step after t at which slope·τ + offset >= edge and far·τ + near >= least; inf if there is none.

    A little early does no harm, late would; hence the floor, and the factor for rounding.
    """
    step = np.float64(t + 1)
    if slope * step + offset < edge * (1 - 1e-9):
        if slope <= 0:
            return np.inf
        step = max(step, np.floor((edge - offset) / slope * (1 - 1e-9)))
    if far * step + near < least * (1 - 1e-9):
        if far <= 0:
            return np.inf
        step = max(step, np.floor((least - near) / far * (1 - 1e-9)))
    return step


@compiled()
def _next(i, t, arrived, sent, constants, is_rate, start, lower, upper, signed):
    """The first step after t at which a neuron fires if nothing arrives; see `neurons`.

    The smallest level needs m = slope·τ + offset to reach ±edge, and its own size as distance to the bound.
    """
    rest, threshold, edge, least = constants
    offset = start * threshold[i]
    if is_rate:
        slope = rest[i]
        offset += arrived[i] - sent[i]
        below, above, near = -lower, upper, sent[i]
    else:
        slope = arrived[i] - sent[i]
        below, above, near = sent[i] - lower, upper - sent[i], 0.0
    step = _when(t, slope, offset, edge[i], above, -near, least[i])
    if signed:
        step = min(step, _when(t, -slope, -offset, edge[i], below, near, least[i]))
    return step


@compiled()
def due(t, reached, arrived, sent, constants, settings, ring, looked_at):
    """The neurons that may fire in step t: how many they are, and how many had to be looked at.

    Looked at are those that anything has reached, and those that waited for this step. The others of them wait anew.
    """
    head, links, slot = ring
    number = len(reached)
    for k in range(number):
        looked_at[k] = reached[k]
        if slot[reached[k]] >= 0:
            _take_out(reached[k], head, links, slot)
    while head[t % RING] >= 0:
        looked_at[number] = head[t % RING]
        _take_out(looked_at[number], head, links, slot)
        number += 1
    ready = 0
    for k in range(number):
        i = looked_at[k]
        step = _next(i, t - 1, arrived, sent, constants, *settings)
        if step <= t:
            looked_at[ready] = i
            ready += 1
        elif step < np.inf:
            _put_in(i, t, step, head, links, slot)
    return ready, number


@compiled()
def wait(t, places, arrived, sent, constants, settings, ring):
    """Let neurons wait for the next step at which they would fire."""
    for i in places:
        step = _next(i, t, arrived, sent, constants, *settings)
        if step < np.inf:
            _put_in(i, t, step, *ring)
