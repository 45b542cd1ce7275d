"""Spiking neurons out of NIR's stock primitives: the plain IF, and the multi-threshold neuron as a nested graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from spikecast.hardware.circuit.parts import Layer
from spikecast.hardware.nir.builder import nir_package, per_channel
from spikecast.hardware.nir.linear import Unsaid
from spikecast.theory.firing import level_value, thermometer_weights
from spikecast.theory.neuron import Neuron

Array = Any
NO_GAIN = "differential coding needs a gain of 1/t, which no stock primitive has; convert with coding='rate'"


def _refuse_extras(neuron: Neuron) -> None:
    if neuron.burst > 1:
        raise Unsaid(
            f"bursts of up to {neuron.burst} spikes a step, where a stock neuron sends one; convert with burst=1, or "
            "export profile='extended'"
        )
    if neuron.leak:
        raise Unsaid(
            f"leak={neuron.leak}, where a stock neuron without a time constant keeps its potential; convert with "
            "leak=0.0, or export profile='extended'"
        )


def plain_if(layer: Layer) -> Any:
    """NIR's IF: it integrates, fires 1 from 1 on and has one threshold; the rate-coded binary neuron with θ = 1."""
    neuron, nir = layer.neuron, nir_package()
    if neuron.coding != "rate":
        raise Unsaid(NO_GAIN)
    _refuse_extras(neuron)
    if neuron.num_levels != 1 or neuron.signed:
        raise Unsaid(
            f"{'a signed' if neuron.signed else 'an'} neuron with {neuron.num_levels} level(s) is no plain IF; "
            "convert with num_levels=1, signed=False, or take profile='composite'"
        )
    if neuron.firing_boundary - neuron.initial_potential != 1.0:
        raise Unsaid(
            f"it fires from {neuron.firing_boundary - neuron.initial_potential:g}·θ on, an IF from its threshold; "
            "convert with firing_boundary=1.0, initial_potential=0.0"
        )
    if float(layer.threshold.max()) > neuron.upper:
        raise Unsaid(f"its bound {neuron.upper:g} lies below its threshold")
    one = np.ones(layer.shape, np.float32)
    return nir.IF(r=one, v_threshold=one.copy(), v_reset=np.zeros_like(one))


def composite(layer: Layer) -> Any:
    """The multi-threshold neuron with soft reset, θ = 1: an integrator, comparators, their weights, and a delay."""
    neuron = layer.neuron
    if neuron.coding != "rate":
        raise Unsaid(NO_GAIN)
    _refuse_extras(neuron)
    if neuron.upper != np.inf or neuron.lower not in (0.0, -np.inf):
        raise Unsaid(f"its interval [{neuron.lower:g}, {neuron.upper:g}] grows with t, for which there is no primitive")
    per_channel(layer)
    return neuron_graph(layer, np.ones(layer.shape, np.float32))


def neuron_graph(layer: Layer, threshold: Array) -> Any:
    """The nested graph of one layer of neurons. A step is one unit of time; a cycle passes its Delay.

    potential[t] = potential[t-1] + input[t] - spikes[t-1] is m[t], and spikes[t] is the sum of the comparators of
    both signs, weighted as a thermometer. Where the estimate may not fall below zero, `sent` holds Σ spikes[< t], and
    a negative level fires only if there is room for it: two comparators must agree.
    """
    nir, neuron, n = nir_package(), layer.neuron, layer.neuron.num_levels
    levels = level_value(torch.arange(1, n + 1), torch.float64).numpy()
    weights = thermometer_weights(n, torch.float64).numpy()[:n]
    shape = np.array(layer.shape)
    nodes: dict[str, Any] = {
        "input": nir.Input(shape),
        "potential": nir.I(r=np.ones_like(threshold)),
        "previous": nir.Delay(delay=np.ones_like(threshold)),
        "reset": nir.Scale(scale=-np.ones_like(threshold)),
        "output": nir.Output(shape),
    }
    edges = [("input", "potential"), ("previous", "reset"), ("reset", "potential")]
    banks = [("above", "potential", 1)]
    guarded = neuron.signed and neuron.lower == 0.0
    if neuron.signed:
        banks.append(("below", "negative", -1))
        nodes["negative"] = nir.Scale(scale=-np.ones_like(threshold))
        edges.append(("potential", "negative"))
    if guarded:
        nodes["sent"] = nir.I(r=np.ones_like(threshold))
        edges.append(("previous", "sent"))
    for bank, source, sign in banks:
        for i, (level, weight) in enumerate(zip(levels, weights, strict=True), start=1):
            name = fired = f"{bank}_{i}"
            nodes[name] = _above(threshold, neuron.firing_boundary * level - sign * neuron.initial_potential)
            edges.append((source, name))
            if guarded and sign < 0:
                fired = f"{name}_allowed"
                nodes[f"room_{i}"] = _above(threshold, level - neuron.tolerance)
                nodes[fired] = nir.Threshold(threshold=np.full_like(threshold, 1.5))
                edges += [("sent", f"room_{i}"), (name, fired), (f"room_{i}", fired)]
            nodes[f"{name}_weight"] = nir.Scale(scale=(threshold * (sign * weight)).astype(np.float32))
            edges += [(fired, f"{name}_weight"), (f"{name}_weight", "output"), (f"{name}_weight", "previous")]
    return nir.NIRGraph(nodes, edges)


def _above(threshold: Array, edge: float) -> Any:
    """A comparator that is true from an edge on; NIR's is true above its threshold, so that is the float before."""
    at = (threshold.astype(np.float64) * edge).astype(np.float32)
    return nir_package().Threshold(threshold=np.nextafter(at, np.float32(-np.inf)))
