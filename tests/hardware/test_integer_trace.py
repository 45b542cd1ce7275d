"""The spikes and weights of a network in whole numbers, against a recurrence in plain NumPy integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError
from spikecast.hardware import IntegerNetwork, record_events
from spikecast.network.spiking import SpikingNetwork

Whole = NDArray[np.int64]
T = 5


def network(**settings: Any) -> tuple[SpikingNetwork, torch.Tensor]:
    torch.manual_seed(3)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 5)]
    model, x = nn.Sequential(*layers).eval().double(), torch.rand(3, 1, 8, 8).double()
    return spikecast.convert(model, [x], Config(**{"num_steps": T, "num_levels": 4, "burst": 2, **settings})), x


def convolved(spikes: Whole, weight: Whole) -> Whole:
    """A convolution of 3 by 3 without padding, tap by tap."""
    high, wide = spikes.shape[2] - 2, spikes.shape[3] - 2
    out = np.zeros((len(spikes), len(weight), high, wide), np.int64)
    for i in range(3):
        for j in range(3):
            out += np.einsum("bchw,fc->bfhw", spikes[:, :, i : i + high, j : j + wide], weight[:, :, i, j])
    return out


def level_of(v: Whole, fraction: Whole, room: Whole, scale: int, n: int, quarters: int = 3) -> Whole:
    """By the definition: the largest level whose boundary is reached; a negative one no larger than its room allows."""
    level = np.zeros_like(v)
    for i in range(n, 0, -1):  # the largest last
        reached = 4 * np.abs(v) >= quarters * (np.int64(1) << (fraction + 1 - i))
        level[reached & ((v > 0) | (room >= (1 << (scale + 1 - i))))] = i
    return level * np.sign(v)


def grown(u: Whole, t: int) -> Whole:
    """u·t/(t - 1), the part that is added rounded to the nearest, halves upwards."""
    return u if t == 1 else u + (2 * u + t - 1) // (2 * (t - 1))


def fired(
    currents: list[Whole], fraction: Whole, coding: str, n: int = 4, burst: int = 2, quarters: int = 3
) -> tuple[Whole, Whole]:
    """Levels [T, burst, ...] and membranes [T, ...] of rectifying neurons for what arrives at each step."""
    scale = n - 1 + 10  # bits below 1 of what a neuron has sent, ten of them below the smallest level
    v, sent = np.zeros_like(currents[0]), np.zeros_like(currents[0])
    levels, membranes = [], []
    for t, current in enumerate(currents, start=1):
        v, sent = (v, sent) if coding == "rate" else (grown(v, t), grown(sent, t))
        v, pulses = v + current, []
        for _ in range(burst):
            level = level_of(v, fraction, sent + 16, scale, n, quarters)
            sign, down = np.sign(level), np.abs(level) - (level != 0)
            v = v - (sign << (fraction - down))
            sent = sent + (sign << (scale - down))
            pulses.append(level)
        sent = np.maximum(sent, 0)
        levels.append(np.stack(pulses))
        membranes.append(v)
    return np.stack(levels), np.stack(membranes)


@pytest.mark.parametrize("coding", ["differential", "rate"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("quarters", [3, 4])
def test_spikes_follow_from_the_weights(coding: Any, bits: int, quarters: int) -> None:
    snn, x = network(coding=coding, firing_boundary=quarters / 4)
    chip = IntegerNetwork(snn, weight_bits=bits)
    trace, weights = chip.trace(x), chip.weights()
    first, second = snn.sites
    assert list(weights) == [first, second, "linear read-out"]
    fraction = weights[first].fraction.numpy()
    levels, membranes = fired(list(trace.currents[first].numpy()), fraction, coding, quarters=quarters)
    assert np.array_equal(levels, trace.levels[first].numpy())
    assert np.array_equal(membranes, trace.membranes[first].numpy())

    (synapse,) = weights[second].synapses
    assert (synapse.source, synapse.op, synapse.num_levels) == (first, "conv2d_1", 4)
    assert int(synapse.weight.abs().max()) < 2 ** (bits - 1)
    bias = weights[second].bias
    assert bias is not None
    currents = []
    for t, pulses in enumerate(levels, start=1):
        spikes = (np.sign(pulses) << (4 - np.abs(pulses)) * (pulses != 0)).sum(0)
        arrived = convolved(spikes, synapse.weight.numpy()) << synapse.shift.numpy()
        currents.append(arrived + (bias.numpy() if t == 1 or coding == "rate" else 0))
    levels, membranes = fired(currents, weights[second].fraction.numpy(), coding, quarters=quarters)
    assert np.array_equal(levels, trace.levels[second].numpy())
    assert np.array_equal(membranes, trace.membranes[second].numpy())
    # with rates and the boundary at the level itself, a neuron never sends too much
    assert (levels < 0).any() == (quarters == 3 or coding == "differential")
    assert (levels[:, 1] != 0).any()
    assert torch.equal(trace.answer, chip.run(x))


# Thresholds beside the largest activation, so that no channel sits on a boundary at every step.
BESIDE = {"thresholds": "quantile", "threshold_scale": 1.0371}
IF = {"coding": "rate", "num_levels": 1, "burst": 1, "signed": False, "num_steps": 16}


@pytest.mark.parametrize("settings", [{}, {"firing_boundary": 1.0}, {"firing_boundary": 1.0, **IF}], ids=str)
def test_wide_weights_fire_what_the_float_network_fires(settings: dict[str, Any]) -> None:
    snn, x = network(**settings, **BESIDE)
    trace, twin = IntegerNetwork(snn, weight_bits=16, membrane_bits=40).trace(x), snn.twin().trace(x)
    recorded = snn.record(x)
    assert list(trace.levels) == list(twin.levels)
    for site, levels in trace.levels.items():
        assert levels.dtype == twin.levels[site].dtype
        assert torch.equal(levels, twin.levels[site])
        assert torch.equal(levels, recorded[site].levels)
    for wire, signals in trace.signals.items():
        assert torch.allclose(signals, twin.signals[wire])
        assert torch.allclose(trace.estimates(wire), twin.estimates(wire))


def test_the_file_holds_what_a_layer_needs(tmp_path: Path) -> None:
    """Read by NumPy alone, the second layer's currents are those of the run."""
    snn, x = network(burst=1)
    chip = IntegerNetwork(snn, weight_bits=6)
    chip.save(tmp_path / "chip.npz")
    trace, (first, second) = chip.trace(x), snn.sites
    with np.load(tmp_path / "chip.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays.pop("header").tobytes())
    assert all(array.dtype == np.int64 for array in arrays.values())
    assert (header["format"], header["version"]) == ("spikecast-integers", 1)
    assert (header["coding"], header["division"], header["num_steps"]) == ("differential", "divide", T)
    assert (header["weight_bits"], header["membrane_bits"]) == (6, 24)
    assert [layer["name"] for layer in header["layers"]] == [first, second, "linear read-out"]
    (way,) = header["layers"][1]["synapses"]
    assert (way["source"], way["op"], way["num_levels"]) == (first, "conv2d_1", 4)
    currents = []
    for t, level in enumerate(trace.levels[first][:, 0].long().numpy()):
        spikes = np.sign(level) << (4 - np.abs(level)) * (level != 0)
        arrived = convolved(spikes, arrays[f"{second}/0/weight"]) << arrays[f"{second}/0/shift"]
        currents.append(arrived + (arrays[f"{second}/bias"] if t == 0 else 0))
    levels, membranes = fired(currents, arrays[f"{second}/fraction"], "differential", burst=1)
    assert np.array_equal(levels, trace.levels[second].numpy())
    assert np.array_equal(membranes, trace.membranes[second].numpy())
    assert "linear read-out/bias" not in arrays
    with pytest.raises(ConfigError, match=r"chip.bin: the name must end in .npz; give such a name$"):
        chip.save(tmp_path / "chip.bin")


def test_a_plain_if_adds_compares_and_subtracts() -> None:
    """The neurons of NIR's profile portable: fire where the membrane is one or more, and take one away."""
    snn, x = network(firing_boundary=1.0, **IF, **BESIDE)
    chip = IntegerNetwork(snn)
    trace, weights = chip.trace(x), chip.weights()
    first, second = snn.sites
    (synapse,) = weights[second].synapses
    v = [np.zeros_like(trace.membranes[site][0].numpy()) for site in (first, second)]
    bias = weights[second].bias
    assert bias is not None
    for t, current in enumerate(trace.currents[first].numpy()):
        v[0] = v[0] + current
        spikes = (v[0] >= 1 << weights[first].fraction.numpy()).astype(np.int64)
        v[0] = v[0] - (spikes << weights[first].fraction.numpy())
        assert np.array_equal(spikes, trace.levels[first][t, 0].numpy())
        v[1] = v[1] + (convolved(spikes, synapse.weight.numpy()) << synapse.shift.numpy()) + bias.numpy()
        spikes = (v[1] >= 1 << weights[second].fraction.numpy()).astype(np.int64)
        v[1] = v[1] - (spikes << weights[second].fraction.numpy())
        assert np.array_equal(spikes, trace.levels[second][t, 0].numpy())
        assert np.array_equal(v[1], trace.membranes[second][t].numpy())
    assert trace.levels[second].bool().any()


def test_estimates_have_the_gain_of_the_division() -> None:
    snn, x = network()
    trace = IntegerNetwork(snn, weight_bits=12, division="shift").trace(x)
    assert trace.division == "shift"
    for wire, signals in trace.signals.items():
        by_hand = signals[0] + signals[1] / 2 + signals[2] / 2 + signals[3] / 4 + signals[4] / 4
        assert torch.allclose(trace.estimates(wire)[-1], by_hand)


def test_events_are_those_of_the_integer_neurons() -> None:
    snn, x = network()
    chip = IntegerNetwork(snn, weight_bits=4)
    trace, events = chip.trace(x), record_events(chip, x)
    assert events.samples == len(x)
    for index, (site, levels) in enumerate(trace.levels.items()):
        for t in range(1, T + 1):
            for sample in range(len(x)):
                for pulse, (places, found) in enumerate(events.at(t).pulses_of(index, sample)):
                    expected = levels[t - 1, pulse, sample].flatten().numpy()
                    assert np.array_equal(places, np.flatnonzero(expected)), site
                    assert np.array_equal(found, expected[places])
    floats = record_events(snn, x)
    assert len(events) != len(floats)  # four bits fire otherwise
    with pytest.raises(ConfigError, match=r"^events of a network with division='shift': .*levels of trace\(x\)$"):
        record_events(IntegerNetwork(snn, division="shift"), x)
