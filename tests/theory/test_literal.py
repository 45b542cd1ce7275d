"""The paper's formulas written out in NumPy, float64, with none of the package's code: neurons, layers, bit rule.

docs/errata.md says where a formula is read otherwise than printed: Eq. 6 is silent below 0.75·λ_n, Eq. 34 fires the
largest level for E > 0, and m_r[1] is the bias.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from spikecast import Config, convert
from spikecast.theory.firing import fire_exponent
from spikecast.theory.neuron import Neuron, encode

LEVELS = pytest.mark.parametrize("num_levels", [1, 4, 8])
STEPS = 24


def mth(potential: np.ndarray, threshold: np.ndarray, num_levels: int) -> np.ndarray:
    """Eq. 1, 3 and 6: what is sent, Σ s_i·λ_i, by the argmin over all 2n thresholds."""
    positive = threshold[:, None] / 2.0 ** np.arange(num_levels)
    levels = np.concatenate([positive, -positive], axis=1)
    nearest = np.abs(potential[:, None] - levels).argmin(1)
    sent = levels[np.arange(len(potential)), nearest]
    return np.where(np.abs(potential) < 0.75 * positive[:, -1], 0.0, sent)


def differential(signals: np.ndarray, bias: np.ndarray, threshold: np.ndarray, num_levels: int) -> np.ndarray:
    """Eq. 2 to 5 with the current of Thm 4.4 (Eq. 20, 21): the signals that the neuron sends."""
    membrane, residual, sent = np.zeros_like(bias), bias.copy(), []
    for t, signal in enumerate(signals, start=1):
        potential = membrane + residual + signal
        spike = mth(potential, threshold, num_levels)
        membrane = potential - spike
        residual = residual + signal / t - spike / t
        sent.append(spike)
    return np.stack(sent)


def rate(signals: np.ndarray, threshold: np.ndarray, num_levels: int) -> np.ndarray:
    """Eq. 2 to 5 as they are: the current is what arrives."""
    membrane, sent = np.zeros_like(signals[0]), []
    for signal in signals:
        potential = membrane + signal
        sent.append(mth(potential, threshold, num_levels))
        membrane = potential - sent[-1]
    return np.stack(sent)


def decoded(sent: np.ndarray, coding: str) -> np.ndarray:
    """What spikes stand for after each step: Eq. 14, or the mean of Eq. 7."""
    t = np.arange(1, len(sent) + 1)[:, None]
    return np.cumsum(sent / t, 0) if coding == "differential" else np.cumsum(sent, 0) / t


def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Signals [T, 500], the value the wire rests at, and thresholds."""
    found = np.random.default_rng(0)
    return found.normal(0, 1, (STEPS, 500)), found.normal(0, 1, 500), found.uniform(0.5, 1.5, 500)


@LEVELS
def test_differential_neuron(num_levels: int) -> None:
    signals, bias, threshold = drawn()
    values = bias + np.cumsum(signals / np.arange(1, STEPS + 1)[:, None], 0)  # r[t] = r[t-1] + x[t]/t from r[0] = bias
    neuron = Neuron(num_levels=num_levels)
    found = encode(torch.tensor(values), torch.tensor(threshold), neuron).estimates.numpy()
    expected = decoded(differential(signals, bias, threshold, num_levels), "differential")
    assert np.abs(found - expected).max() < 1e-12


@LEVELS
def test_rate_neuron(num_levels: int) -> None:
    signals, _, threshold = drawn()
    values = np.cumsum(signals, 0) / np.arange(1, STEPS + 1)[:, None]
    neuron = Neuron(coding="rate", num_levels=num_levels)
    found = encode(torch.tensor(values), torch.tensor(threshold), neuron).estimates.numpy()
    expected = decoded(rate(signals, threshold, num_levels), "rate")
    assert np.abs(found - expected).max() < 1e-12


@LEVELS
def test_a_network_of_linear_layers_and_gelu(num_levels: int) -> None:
    """Thm 4.2, 4.4 and 4.5 one after the other: every signal of a converted network, by the letter."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 4)).double().eval()
    x = torch.randn(1, 6, dtype=torch.float64)
    config = Config(num_steps=STEPS, num_levels=num_levels, burst=1, thresholds="quantile", encode_input=True)
    snn = convert(model, [x], config)
    first, last = (snn.thresholds[name].double().numpy().reshape(-1) for name in snn.sites)
    w1, b1, w2, b2 = (parameter.detach().numpy() for parameter in model.parameters())
    image = np.zeros((STEPS, 6))
    image[0] = x.numpy()  # sent once
    spikes = differential(image, np.zeros(6), np.broadcast_to(first, 6), num_levels)
    before, signals = b1, []  # m[0] of the graded unit is the bias (Eq. 15)
    for t, spike in enumerate(spikes, start=1):
        now = before + w1 @ spike / t
        signals.append(t * (gelu(now) - gelu(before)))  # Eq. 16
        before = now
    sent = differential(np.stack(signals), gelu(b1), np.broadcast_to(last, 9), num_levels)
    expected = b2 + decoded(sent, "differential") @ w2.T
    assert np.abs(snn.run(x)[:, 0].numpy() - expected).max() < 1e-9


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


@LEVELS
def test_bit_rule_on_a_million_values(num_levels: int) -> None:
    """Eq. 34: the level is read off the sign and exponent bits of 4/3·m, at θ = 1."""
    found = np.random.default_rng(num_levels)
    m = (found.normal(0, 1, 10**6) * 2.0 ** found.integers(-num_levels - 2, 3, 10**6)).astype(np.float32)
    bits = (m.astype(np.float64) * (4 / 3)).view(np.int64)
    sign, exponent = bits < 0, ((bits >> 52) & 0x7FF) - 1023
    index = 1 - np.minimum(exponent, 0)
    expected = np.where(index <= num_levels, np.where(sign, -index, index), 0)
    levels = fire_exponent(torch.from_numpy(m), num_levels).numpy()
    assert np.array_equal(levels, expected)
    by_argmin = mth(m.astype(np.float64), np.ones(len(m)), num_levels)
    assert np.array_equal(np.where(levels == 0, 0, np.sign(levels) * 2.0 ** (1.0 - np.abs(levels))), by_argmin)
    assert set(np.unique(levels)) == set(range(-num_levels, num_levels + 1))
