"""Bursts: how much is left after B pulses, what one costs, and that one pulse is the paper's neuron."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spikecast import Config
from spikecast.errors import ConfigError
from spikecast.theory.firing import (
    fire_argmin,
    fire_burst,
    fire_exponent,
    fire_one_hot,
    fire_thermometer,
    level_value,
    thermometer_weights,
)
from spikecast.theory.neuron import Neuron, encode
from tests.strategies import SEEDS

BURSTS = st.integers(1, 14)
LEVELS = st.integers(1, 14)


def left_over(values, neuron, threshold=1.0):
    """What is missing after the first step, in units of the threshold; values are float64."""
    theta = torch.tensor(threshold, dtype=torch.float64)
    encoded = encode((values * theta).unsqueeze(0), theta, neuron, want_levels=True)
    return values - encoded.estimates[0] / theta, encoded.levels[0]


def uniform(seed, low, high, size=4000):
    torch.manual_seed(seed)
    edges = torch.tensor([2.0**-i * e for i in range(15) for e in (0.75, 1.0, 1.5)], dtype=torch.float64)
    values = torch.cat([torch.rand(size, dtype=torch.float64) * (high - low) + low, edges, -edges])
    return values[(values >= low) & (values <= high)]


@settings(max_examples=60)
@given(seed=SEEDS, num_levels=LEVELS, burst=BURSTS)
def test_each_pulse_leaves_a_third_of_an_identity_neuron(seed, num_levels, burst) -> None:
    """|m_{B+1}| <= max(3**-B |m_1|, 0.75 λ_n) for |m_1| <= 1.5 θ, and both can be met."""
    values = uniform(seed, -1.5, 1.5)
    left, _ = left_over(values, Neuron(num_levels=num_levels, burst=burst), threshold=1.7)
    smallest = 2.0 ** (1 - num_levels)
    assert (left.abs() <= torch.clamp(3.0**-burst * values.abs(), min=0.75 * smallest) + 1e-12).all()


def test_the_bound_is_met() -> None:
    left, _ = left_over(torch.tensor([1.5, 0.75], dtype=torch.float64), Neuron(num_levels=14, burst=1))
    assert left.tolist() == [0.5, -0.25]  # a third of each
    left, _ = left_over(torch.tensor([0.7499 / 8], dtype=torch.float64), Neuron(num_levels=4, burst=14))
    assert left.item() == 0.7499 / 8  # below the smallest level nothing is sent


@settings(max_examples=60)
@given(seed=SEEDS, num_levels=LEVELS, burst=BURSTS)
def test_each_pulse_leaves_a_half_of_a_rectifying_neuron(seed, num_levels, burst) -> None:
    """With a target inside the interval and any estimate before: max(2**-B |m_1|, λ_n)."""
    torch.manual_seed(seed)
    target, held = torch.rand(2, 4000, dtype=torch.float64) * 1.5
    neuron = Neuron(num_levels=num_levels, burst=burst, lower=0.0, upper=1.5)
    out = encode(target.unsqueeze(0), torch.ones((), dtype=torch.float64), neuron, state=held).estimates[0]
    bound = torch.clamp(2.0**-burst * (target - held).abs(), min=2.0 ** (1 - num_levels))
    assert ((target - out).abs() <= bound + 2 * neuron.tolerance).all()


@settings(max_examples=40)
@given(seed=SEEDS, num_levels=LEVELS, burst=BURSTS, boundary=st.floats(0.51, 1.0))
def test_other_boundaries(seed, num_levels, burst, boundary) -> None:
    """Boundary b: a pulse leaves max((1-b)/b, (2b-1)/2b), the dead zone is b λ_n, the range 2bθ."""
    values = uniform(seed, -2 * boundary, 2 * boundary)
    left, _ = left_over(values, Neuron(num_levels=num_levels, burst=burst, firing_boundary=boundary))
    ratio = max((1 - boundary) / boundary, (2 * boundary - 1) / (2 * boundary))
    bound = torch.clamp(ratio**burst * values.abs(), min=boundary * 2.0 ** (1 - num_levels))
    assert (left.abs() <= bound + 1e-9).all()


@settings(max_examples=40)
@given(seed=SEEDS, num_levels=LEVELS, burst=BURSTS)
def test_above_the_range_the_largest_level_repeats(seed, num_levels, burst) -> None:
    values = uniform(seed, 1.5, 14.0)
    left, levels = left_over(values, Neuron(num_levels=num_levels, burst=burst))
    # the largest fires until what is left is at most 1.5 θ
    repeats = torch.ceil(values - 1.5 - 1e-12).clamp(0, burst).long()
    for k in range(burst):
        assert (levels[k][repeats > k] == 1).all()
    assert (left.abs() <= torch.clamp(values - burst, min=0.75) + 1e-12).all()


@settings(max_examples=60)
@given(seed=SEEDS, num_levels=LEVELS, burst=st.integers(2, 14), lower=st.sampled_from([-math.inf, 0.0]))
def test_a_neuron_stops_at_its_first_silence(seed, num_levels, burst, lower) -> None:
    torch.manual_seed(seed)
    inputs, threshold = torch.randn(6, 300), torch.rand(300) + 0.3
    levels = encode(inputs, threshold, Neuron(num_levels=num_levels, burst=burst, lower=lower), want_levels=True).levels
    silent = levels == 0
    assert not (silent[:, :-1] & ~silent[:, 1:]).any()
    shorter = Neuron(num_levels=num_levels, burst=burst - 1, lower=lower)
    first = encode(inputs[:1], threshold, shorter, want_levels=True).levels
    assert torch.equal(first, levels[:1, :-1])  # a longer burst begins as a shorter one


@settings(max_examples=40)
@given(seed=SEEDS, num_levels=LEVELS)
def test_pulses_are_fewer_than_the_ones_of_the_binary_form(seed, num_levels) -> None:
    """A signed-digit form of a whole number of smallest levels: never more pulses than binary has ones."""
    torch.manual_seed(seed)
    codes = torch.randint(0, 2**num_levels, (500,))
    smallest = 2.0 ** (1 - num_levels)
    left, levels = left_over(codes.double() * smallest, Neuron(num_levels=num_levels, burst=14))
    assert not left.any()
    ones = torch.tensor([bin(code).count("1") for code in codes.tolist()])
    assert ((levels != 0).sum(0) <= ones).all()


def least_weight(code: int) -> int:
    """The fewest signed powers of two that sum up to a whole number: those of its non-adjacent form."""
    weight = 0
    while code:
        if code & 1:
            weight += 1
            code -= 2 - (code & 3)
        code //= 2
    return weight


def test_pulses_are_a_signed_digit_form_of_least_weight() -> None:
    """For every whole number that the levels reach without repeating the largest."""
    n = 9
    codes = torch.arange(0, 3 * 2 ** (n - 2) + 1)
    _, levels = left_over(codes.double() * 2.0 ** (1 - n), Neuron(num_levels=n, burst=14))
    assert (levels != 0).sum(0).tolist() == [least_weight(code) for code in codes.tolist()]


@pytest.mark.parametrize(("burst", "decibels"), [(1, 14.2), (2, 28.6), (3, 41.5)])
def test_signal_to_noise_of_a_gaussian(burst, decibels) -> None:
    torch.manual_seed(0)
    values = torch.randn(200_000, dtype=torch.float64)
    thresholds = 2.0 ** torch.arange(-1, 3, 0.25, dtype=torch.float64)
    best = 0.0
    for theta in thresholds:
        out = encode(values.unsqueeze(0), theta, Neuron(num_levels=8, burst=burst)).estimates[0]
        best = max(best, -10 * math.log10(float((out - values).square().mean())))
    assert best == pytest.approx(decibels, abs=0.5)


@settings(max_examples=50)
@given(seed=SEEDS, num_levels=LEVELS, burst=BURSTS, boundary=st.sampled_from([0.75, 0.72, 1.0]))
def test_all_forms_send_the_same_bursts(seed, num_levels, burst, boundary) -> None:
    torch.manual_seed(seed)
    u = torch.randn(200).double() * 2.0 ** torch.randint(-num_levels, 2, (200,))
    levels = fire_burst(fire_argmin, u, num_levels, burst, boundary)
    assert levels.shape == (burst, 200)
    assert torch.equal(fire_burst(fire_exponent, u, num_levels, burst, boundary), levels)
    one_hot = fire_burst(fire_one_hot, u, num_levels, burst, boundary)
    values = level_value(torch.arange(1, num_levels + 1), torch.float64)
    assert one_hot.shape == (burst, 200, 2 * num_levels)
    assert torch.equal(one_hot.double() @ torch.cat([values, -values]), level_value(levels, torch.float64))
    thermometer = fire_burst(fire_thermometer, u, num_levels, burst, boundary)
    weighted = thermometer.double() @ thermometer_weights(num_levels, torch.float64)
    assert torch.equal(weighted, level_value(levels, torch.float64))


@settings(max_examples=50)
@given(seed=SEEDS, num_levels=LEVELS, burst=BURSTS)
def test_the_neuron_fires_what_the_definition_says(seed, num_levels, burst) -> None:
    torch.manual_seed(seed)
    u = torch.randn(200).double() * 2.0 ** torch.randint(-num_levels, 2, (200,))
    _, levels = left_over(u, Neuron(num_levels=num_levels, burst=burst))
    assert torch.equal(levels, fire_burst(fire_argmin, u, num_levels, burst))


@settings(max_examples=25)
@given(seed=SEEDS, num_levels=LEVELS, burst=BURSTS)
def test_codings_coincide_at_the_first_step(seed, num_levels, burst) -> None:
    torch.manual_seed(seed)
    inputs, threshold = torch.randn(1, 300), torch.rand(300) + 0.3
    both = [encode(inputs, threshold, Neuron(c, num_levels, burst, lower=0.0)) for c in ("differential", "rate")]
    assert torch.equal(both[0].estimates, both[1].estimates)


def test_a_burst_by_hand() -> None:
    # θ = 1, n = 4: 1.3 -> 1, then 0.3 -> 1/4, then 0.05 is below 0.75/8. 0.85 -> 1, -0.15 -> -1/8, -0.025 -> nothing.
    inputs = torch.tensor([[1.3, 0.85]])
    encoded = encode(inputs, torch.tensor(1.0), Neuron(num_levels=4, burst=3), want_levels=True)
    assert encoded.levels[0].tolist() == [[1, 1], [3, -4], [0, 0]]
    assert encoded.estimates[0].tolist() == [1.25, 0.875]


def test_the_guard_sees_the_burst_so_far() -> None:
    # An estimate of 1 falls to -5 in steps of θ = 1 until it is 0, whatever the number of pulses.
    neuron = Neuron(num_levels=2, burst=3, lower=0.0)
    held = torch.tensor([1.0, 2.0, 1.5, 0.2])
    encoded = encode(torch.full((1, 4), -5.0), torch.tensor(1.0), neuron, state=held, start=1, want_levels=True)
    assert encoded.levels[0].T.tolist() == [[-1, 0, 0], [-1, -1, 0], [-1, -2, 0], [0, 0, 0]]
    assert encoded.estimates[0].tolist() == pytest.approx([0, 0, 0, 0.2])


def test_an_initial_potential_would_be_sent_as_an_error() -> None:
    Config(burst=3, num_levels=4, initial_potential=2.0**-4)
    with pytest.raises(ConfigError, match=r"initial_potential=0\.5 with burst=3"):
        Config(burst=3, num_levels=4, initial_potential=0.5)


def test_eleven_eighths_is_not_the_non_adjacent_form() -> None:
    _, levels = left_over(torch.tensor([11 / 8], dtype=torch.float64), Neuron(num_levels=4, burst=14))
    fired = [Fraction(1, 2 ** (abs(i) - 1)) * (1 if i > 0 else -1) for i in levels.flatten().tolist() if i]
    assert fired == [Fraction(1), Fraction(1, 2), Fraction(-1, 8)]
