"""Single neurons whose spikes can be worked out on paper, and the mistakes they refuse."""

from __future__ import annotations

import math

import pytest
import torch

from spikecast.errors import ConfigError, DataError
from spikecast.theory.neuron import Neuron, encode, rest_state, spike_step

ONE = torch.tensor(1.0)


def run(values, num_steps, neuron, threshold=ONE):
    """Levels and estimates of constant inputs, one row per input."""
    inputs = torch.tensor(values).expand(num_steps, -1)
    encoded = encode(inputs, threshold, neuron, want_levels=True)
    return encoded.levels[:, 0].T.tolist(), encoded.estimates.T


# Figure 2's setting, thresholds ±1 and T = 3: input, spikes and last estimate. 0.75 is an exact tie at t = 1 and 3.
DIFFERENTIAL = [
    (-2.0, [-1, -1, -1], -11 / 6),
    (-0.8, [-1, 0, 0], -1.0),
    (-0.3, [0, 0, -1], -1 / 3),
    (0.2, [0, 0, 0], 0.0),
    (0.4, [0, 1, 0], 1 / 2),
    (0.6, [0, 1, 0], 1 / 2),
    (0.75, [1, 0, -1], 2 / 3),
    (1.2, [1, 0, 0], 1.0),
    (1.4, [1, 1, 0], 3 / 2),
    (1.8, [1, 1, 1], 11 / 6),
    (2.0, [1, 1, 1], 11 / 6),
]
RATE = [
    (-2.0, [-1, -1, -1], -1.0),
    (-0.8, [-1, 0, -1], -2 / 3),
    (-0.3, [0, 0, -1], -1 / 3),
    (0.2, [0, 0, 0], 0.0),
    (0.4, [0, 1, 0], 1 / 3),
    (0.6, [0, 1, 1], 2 / 3),
    (0.75, [1, 0, 1], 2 / 3),
    (1.2, [1, 1, 1], 1.0),
    (1.4, [1, 1, 1], 1.0),
    (1.8, [1, 1, 1], 1.0),
    (2.0, [1, 1, 1], 1.0),
]


@pytest.mark.parametrize(("coding", "golden"), [("differential", DIFFERENTIAL), ("rate", RATE)])
def test_figure_2(coding, golden) -> None:
    values, spikes, last = zip(*golden, strict=True)
    levels, estimates = run(values, 3, Neuron(coding=coding, num_levels=1))
    assert levels == list(spikes)
    assert estimates[:, -1].tolist() == pytest.approx(last, abs=1e-6)


def test_differential_reaches_what_rate_cannot() -> None:
    _, differential = run([3.0], 64, Neuron(num_levels=1))
    _, rate = run([3.0], 64, Neuron(num_levels=1, coding="rate"))
    assert rate[0].tolist() == pytest.approx([1.0] * 64)
    error = (differential[0] - 3.0).abs() * torch.arange(1, 65)
    assert error[9:].max() <= 0.7501  # from t = 10 on, where 1 + 1/2 + ... + 1/t comes near 3
    assert error[8] > 0.7501


def test_relu_neuron_by_hand() -> None:
    # The input falls from 1 to -1 for good, far below -θ, but no spike may carry the estimate below 0:
    #   t=1: r = 1.  t=2: -θ, r = 1/2.  t=3: 3/2 is room for -θ, r = 1/6.  t=4: 2/3 is room for -θ/2, r = 1/24.
    #   t=5: 5/24 is less than the smallest level, silence.  t=6: 6/24 is room for -θ/4, which lands on 0.
    inputs = torch.tensor([1.0] + [-1.0] * 6)
    encoded = encode(inputs, ONE, Neuron(num_levels=3, lower=0.0), want_levels=True)
    assert encoded.levels[:, 0].tolist() == [1, -1, -1, -2, 0, -3, 0]
    assert encoded.estimates.tolist() == pytest.approx([1, 1 / 2, 1 / 6, 1 / 24, 1 / 24, 0, 0], abs=1e-6)


def test_guard_takes_the_largest_level_that_fits() -> None:
    # At t = 4 an estimate of 0.3 leaves room for 1.2, so θ fires; 0.15 leaves 0.6, so θ/2; 0.02 leaves room for none.
    state = torch.tensor([0.3, 0.15, 0.125, 0.1249, 0.02, 0.0])
    inputs = torch.full((1, 6), -5.0)
    encoded = encode(inputs, ONE, Neuron(num_levels=3, lower=0.0), state=state, start=4, want_levels=True)
    assert encoded.levels.tolist() == [[[-1, -2, -2, -3, 0, 0]]]
    up = encode(-inputs, ONE, Neuron(num_levels=3, upper=1.0), state=1 - state, start=4, want_levels=True)
    assert up.levels.tolist() == [[[1, 2, 2, 3, 0, 0]]]


def test_guard_forgives_a_thousandth_of_the_smallest_level() -> None:
    smallest = 0.25
    state = torch.tensor([smallest * (1 - 2**-10.1), smallest * (1 - 2**-9.9)])
    neuron = Neuron(num_levels=3, lower=0.0)
    encoded = encode(torch.full((1, 2), -1.0), ONE, neuron, state=state, start=1, want_levels=True)
    assert encoded.levels.tolist() == [[[-3, 0]]]
    assert encoded.estimates[0, 0] == 0.0


def test_unsigned_if_neuron() -> None:
    neuron = Neuron(coding="rate", num_levels=1, signed=False, firing_boundary=1.0, initial_potential=0.5)
    levels, estimates = run([0.4, -0.7, 1.0], 5, neuron)
    assert levels == [[0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
    assert estimates[0].tolist() == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2, 2 / 5])


def test_unsigned_neuron_waits_out_an_overshoot() -> None:
    inputs = torch.tensor([1.0, 0.2, 0.2, 0.2, 0.2])
    encoded = encode(inputs, ONE, Neuron(coding="rate", num_levels=1, signed=False), want_levels=True)
    assert encoded.levels[:, 0].tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize(("potential", "levels"), [(0.0, [0, 0, 1]), (0.1, [0, 1, 1]), (-0.1, [0, 0, 0])])
def test_initial_potential(potential, levels) -> None:
    fired, _ = run([0.6, 0.7, 0.8], 1, Neuron(num_levels=1, initial_potential=potential))
    assert fired == [[i] for i in levels]


def test_initial_potential_scales_with_the_threshold() -> None:
    neuron = Neuron(num_levels=1, initial_potential=0.5)
    threshold = torch.tensor([[1.0], [4.0]])
    encoded = encode(torch.tensor([[[0.2, 0.3], [0.9, 1.1]]]), threshold, neuron, want_levels=True)
    assert encoded.levels[:, 0].tolist() == [[[0, 1], [0, 1]]]
    assert rest_state(torch.zeros(2, 1), neuron, threshold).membrane.tolist() == [[0.5], [2.0]]


def test_only_differential_coding_starts_from_the_rest_value() -> None:
    rest = torch.tensor([0.6])
    assert rest_state(rest, Neuron(), ONE).residual.equal(rest)
    assert rest_state(rest, Neuron(coding="rate"), ONE).residual.equal(torch.zeros(1))


@pytest.mark.parametrize("boundary", [0.6, 0.72, 0.75, 1.0])
def test_boundary_moves_every_edge(boundary) -> None:
    threshold = 1.7
    edges = [boundary * threshold / 2**k for k in range(3)]
    values = [e * (1 + d) for e in edges for d in (-1e-5, 1e-5)]
    fired, _ = run(values, 1, Neuron(num_levels=3, firing_boundary=boundary), torch.tensor(threshold))
    assert fired == [[2], [1], [3], [2], [0], [3]]


def test_infinite_inputs_fire_the_largest_level() -> None:
    levels, estimates = run([math.inf, -math.inf], 3, Neuron(num_levels=4))
    assert levels == [[1, 1, 1], [-1, -1, -1]]
    assert estimates.isfinite().all()


def test_spike_view_by_hand() -> None:
    # x_in = 0 at all times, a bias of 0.6 at rest: v and m_r as the paper's recurrences give them.
    neuron = Neuron(num_levels=1)
    state = rest_state(torch.tensor(0.6, dtype=torch.float64), neuron, ONE)
    seen = []
    for t in range(1, 4):
        pulses, state = spike_step(torch.tensor(0.0, dtype=torch.float64), state, t, ONE, neuron)
        seen.append((pulses.item(), state.membrane.item(), state.residual.item(), state.estimate.item()))
    expected = [(0, 0.6, 0.6, 0), (1, 0.2, 0.1, 0.5), (0, 0.3, 0.1, 0.5)]
    assert [list(row) for row in seen] == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"signed": False}, "only falls through a negative spike"),
        ({"num_levels": 0}, "num_levels"),
        ({"num_levels": 15}, "num_levels"),
        ({"burst": 0}, "burst"),
        ({"burst": 15}, "burst"),
        ({"burst": 2, "num_levels": 4, "initial_potential": 0.07}, "at most 0.0625"),
        ({"firing_boundary": 0.5}, "firing_boundary"),
        ({"initial_potential": 1.5}, "initial_potential"),
        ({"coding": "phase"}, "coding"),
        ({"lower": 0.1}, "nonlinear"),
        ({"upper": -0.1}, "nonlinear"),
        ({"lower": math.nan}, "nonlinear"),
    ],
)
def test_impossible_neurons(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        Neuron(**settings)


def test_is_rectifier() -> None:
    assert Neuron(lower=0.0).is_rectifier
    assert Neuron(lower=-1.0, upper=1.0).is_rectifier
    assert not Neuron().is_rectifier


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_nan_is_an_error(dtype) -> None:
    good, bad = torch.ones(2, 3, dtype=dtype), torch.tensor([[0, 0, 0], [0, math.nan, 0]], dtype=dtype)
    with pytest.raises(DataError, match="NaN"):
        encode(bad, ONE, Neuron(lower=0.0))
    with pytest.raises(DataError, match="NaN"):
        encode(good, ONE, Neuron(), state=bad[1])
    with pytest.raises(DataError, match="NaN"):
        encode(good, torch.tensor([1, 1, math.nan]), Neuron())


def test_unusable_inputs() -> None:
    with pytest.raises(DataError, match="int64"):
        encode(torch.ones(2, 3, dtype=torch.int64), ONE, Neuron())
    with pytest.raises(DataError, match="floats"):
        encode(ONE, ONE, Neuron())
    with pytest.raises(DataError, match="start"):
        encode(torch.ones(2, 3), ONE, Neuron(), start=0)
    with pytest.raises(DataError, match=r"\(2,\)"):
        encode(torch.ones(2, 3), ONE, Neuron(), state=torch.zeros(2))


def test_shapes_and_what_is_returned() -> None:
    inputs = torch.ones(1, 2, 3, 4, requires_grad=True).expand(5, -1, -1, -1)
    encoded = encode(inputs, torch.rand(3, 1) + 0.5, Neuron())
    assert encoded.estimates.shape == (5, 2, 3, 4)
    assert encoded.estimates.is_contiguous()
    assert not encoded.estimates.requires_grad
    assert encoded.levels is None
    assert encode(torch.ones(0, 3), ONE, Neuron(), want_levels=True).levels.shape == (0, 1, 3)
    assert encode(torch.ones(2, 0), ONE, Neuron(lower=0.0)).estimates.shape == (2, 0)
