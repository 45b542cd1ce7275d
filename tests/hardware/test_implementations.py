"""Transmitted values, one-hot spikes and thermometers are one neuron: the same spikes, and the same at the synapse."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from spikecast.errors import ConfigError, DataError
from spikecast.hardware.implementations import Form, expanded_weight, levels_of, on_channels, size, spikes
from spikecast.theory.coding import prediction
from spikecast.theory.firing import fire_burst, fire_exponent, fire_one_hot, fire_thermometer, level_index
from spikecast.theory.neuron import Neuron, encode, rest_state, spike_step

FORMS: tuple[Form, ...] = ("value", "one_hot", "thermometer")
SEEDS = st.integers(0, 2**31 - 1)


def drawn_levels(seed, num_levels, shape):
    torch.manual_seed(seed)
    return torch.randint(-num_levels, num_levels + 1, shape).to(torch.int8)


@settings(max_examples=40)
@given(seed=SEEDS, num_levels=st.integers(1, 14), burst=st.sampled_from([1, 3]))
def test_the_forms_are_what_the_comparators_say(seed, num_levels, burst) -> None:
    torch.manual_seed(seed)
    u = torch.randn(200).double() * 2.0 ** torch.randint(-num_levels, 2, (200,))
    levels = fire_burst(fire_exponent, u, num_levels, burst)
    for form, comparators in zip(FORMS[1:], (fire_one_hot, fire_thermometer), strict=True):
        sent = spikes(levels, num_levels, form)
        assert sent.shape == (burst, 200, 2 * num_levels)
        assert torch.equal(sent.bool(), fire_burst(comparators, u, num_levels, burst))


@settings(max_examples=40)
@given(seed=SEEDS, num_levels=st.integers(1, 14), form=st.sampled_from(FORMS))
def test_no_form_loses_a_spike(seed, num_levels, form) -> None:
    levels = drawn_levels(seed, num_levels, (50,))
    sent = spikes(levels, num_levels, form)
    assert sent.shape == (50, size(form, num_levels))
    assert torch.equal(levels_of(sent, num_levels, form), levels)
    if form == "one_hot":
        assert torch.equal(sent.sum(-1), (levels != 0).float())
    if form == "thermometer":
        assert torch.equal(sent.sum(-1), torch.where(levels == 0, 0, num_levels + 1 - levels.abs()).float())


@settings(max_examples=30)
@given(
    seed=SEEDS,
    num_levels=st.integers(1, 8),
    form=st.sampled_from(FORMS),
    groups=st.sampled_from([1, 2]),
    one=st.booleans(),
)
def test_a_convolution_receives_the_same(seed, num_levels, form, groups, one) -> None:
    """Small whole numbers for weights and thresholds: every sum is exact, and so must equality be."""
    levels = drawn_levels(seed, num_levels, (2, 4, 5, 5))
    weight = torch.randint(-9, 10, (6, 4 // groups, 3, 3)).double()
    threshold = torch.randint(1, 9, (1 if one else 4,)).double()
    value = spikes(levels, num_levels, "value", torch.float64)[..., 0] * threshold.reshape(1, -1, 1, 1)
    expected = F.conv2d(value, weight, stride=2, padding=1, groups=groups)
    sent = on_channels(spikes(levels, num_levels, form, torch.float64), 1)
    wide = expanded_weight(weight, threshold, num_levels, form, groups=groups)
    assert torch.equal(F.conv2d(sent, wide, stride=2, padding=1, groups=groups), expected)


@settings(max_examples=30)
@given(seed=SEEDS, num_levels=st.integers(1, 8), form=st.sampled_from(FORMS))
def test_linear_and_transposed_receive_the_same(seed, num_levels, form) -> None:
    levels = drawn_levels(seed, num_levels, (3, 4))
    threshold = torch.rand(4).double() + 0.5
    value = spikes(levels, num_levels, "value", torch.float64)[..., 0] * threshold
    weight = torch.randn(5, 4).double()
    sent = on_channels(spikes(levels, num_levels, form, torch.float64), 1)
    wide = expanded_weight(weight, threshold, num_levels, form)
    torch.testing.assert_close(F.linear(sent, wide), F.linear(value, weight), rtol=1e-12, atol=1e-12)
    up = torch.randn(4, 2, 3).double()
    wide = expanded_weight(up, threshold, num_levels, form, axis=0)
    ours, theirs = F.conv_transpose1d(sent[..., None], wide), F.conv_transpose1d(value[..., None], up)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@settings(max_examples=15)
@given(
    seed=SEEDS,
    form=st.sampled_from(FORMS),
    coding=st.sampled_from(["differential", "rate"]),
    burst=st.sampled_from([1, 3]),
)
def test_a_guarded_neuron_in_any_form(seed, form, coding, burst) -> None:
    """A rectifying neuron over time, heard through a form, leaves its receivers with the value view's estimates."""
    torch.manual_seed(seed)
    neuron = Neuron(coding=coding, num_levels=4, burst=burst, lower=0.0)
    inputs, threshold = torch.randn(8, 30).double(), torch.rand(30).double() + 0.5
    estimates = encode(inputs, threshold, neuron).estimates
    state, heard, before = rest_state(torch.zeros(30).double(), neuron, threshold), torch.zeros(30).double(), None
    for t in range(1, 9):
        before = inputs[t - 2] if t > 1 else torch.zeros(30).double()
        pulses, state = spike_step(t * (inputs[t - 1] - prediction(before, t, coding)), state, t, threshold, neuron)
        sent = spikes(level_index(pulses), 4, form, torch.float64)
        assert sent.shape == (burst, 30, size(form, 4))
        weight = torch.stack([expanded_weight(torch.ones(1, 1).double(), th, 4, form)[0] for th in threshold])
        heard = prediction(heard, t, coding) + (sent * weight).sum((0, -1)) / t
        torch.testing.assert_close(heard, estimates[t - 1], rtol=1e-9, atol=1e-9)


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="'burst'"):
        spikes(torch.zeros(3, dtype=torch.int8), 4, cast(Any, "burst"))
    with pytest.raises(DataError, match="num_levels=2"):
        spikes(torch.tensor([3], dtype=torch.int8), 2, "one_hot")
