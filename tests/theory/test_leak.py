"""A neuron with a leak: the leaky neuron of the authors' code, what a leak costs, and where it costs nothing."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spikecast.errors import ConfigError
from spikecast.theory.coding import receive
from spikecast.theory.neuron import Neuron, encode
from tests.strategies import SEEDS, neurons

CODINGS = pytest.mark.parametrize("coding", ["differential", "rate"])
LEAKS = st.floats(0.01, 0.9)
INTERVALS = [(-torch.inf, torch.inf), (0.0, torch.inf), (-0.5, 1.0)]


@settings(max_examples=30)
@given(seed=SEEDS, leak=LEAKS, num_steps=st.integers(1, 40))
def test_the_leaky_neuron_of_the_authors(seed, leak, num_steps) -> None:
    """One input after the other: the potential decays, is charged, fires from 1 on, and is reset by subtraction."""
    torch.manual_seed(seed)
    signals = torch.randn(num_steps, 50, dtype=torch.float64) + 0.5
    neuron = Neuron("rate", 1, signed=False, firing_boundary=1.0, initial_potential=0.5, leak=leak)
    tau = 1 - leak  # their name for what is left
    potential, fired, means = torch.full((50,), 0.5 / tau, dtype=torch.float64), [], [torch.zeros(50).double()]
    for t, signal in enumerate(signals, start=1):
        potential = tau * potential + signal
        fired.append(potential >= 1)
        potential = potential - fired[-1].double()
        means.append(receive(means[-1], signal, t, "rate"))
    encoded = encode(torch.stack(means[1:]), torch.ones((), dtype=torch.float64), neuron, want_levels=True)
    assert torch.equal(encoded.levels[:, 0] == 1, torch.stack(fired))


def test_by_hand() -> None:
    """θ = 1, one level, half of the potential leaks; differential coding, r_in = 0.6."""
    encoded = encode(torch.full((4, 1), 0.6), torch.ones(1), Neuron(num_levels=1, leak=0.5), want_levels=True)
    # m: 0.6, 0.3 + 0.6 (fires), (0.9 - 1)/2 + 0.1, 0.05/2 + 0.1; the receivers lack 0.1 from step 2 on
    assert encoded.levels.flatten().tolist() == [0, 1, 0, 0]
    assert encoded.estimates.flatten().tolist() == [0.0, 0.5, 0.5, 0.5]
    assert encoded.leaked.item() == pytest.approx(0.5 * (0.6 - 0.1 + 0.05 + 0.125))


@settings(max_examples=30)
@given(neuron=neurons(INTERVALS, leaks=(0.05, 0.6)), seed=SEEDS)
def test_one_step_has_nothing_to_lose(neuron, seed) -> None:
    torch.manual_seed(seed)
    inputs, threshold = torch.randn(1, 200), torch.rand(200) + 0.3
    plain = encode(inputs, threshold, dataclasses.replace(neuron, leak=0.0), want_levels=True)
    leaky = encode(inputs, threshold, neuron, want_levels=True)
    assert torch.equal(leaky.estimates, plain.estimates)
    assert torch.equal(leaky.levels, plain.levels)
    assert plain.leaked is None


@CODINGS
@settings(max_examples=20)
@given(seed=SEEDS, leak=LEAKS, num_levels=st.sampled_from([1, 4, 8]), burst=st.sampled_from([1, 3]))
def test_the_error_is_at_most_the_leak_times_the_potential(coding, seed, leak, num_levels, burst) -> None:
    """|r_in - r_out| <= (1/t + leak)·max|v|, for values the levels can reach: it stops to fall where 1/t < leak."""
    torch.manual_seed(seed)
    value, num_steps = torch.rand(200, dtype=torch.float64) * 2 - 1, 64
    neuron = Neuron(coding, num_levels, burst, leak=leak)
    leaked, state, largest = None, None, torch.zeros(200, dtype=torch.float64)
    for t in range(1, num_steps + 1):
        before = torch.zeros_like(largest) if leaked is None else leaked
        run = encode(value[None], torch.ones((), dtype=torch.float64), neuron, state=state, leaked=leaked, start=t)
        state, leaked = run.estimates[0], run.leaked
        potential = t * (value - state) - before
        largest = torch.maximum(largest, potential.abs())
        assert torch.allclose(leaked - before, leak * potential)
        assert ((value - state).abs() <= (1 / t + leak) * largest + 1e-12).all()
    assert largest.max() <= 1.0  # within the reach of the levels a potential is never above θ


@CODINGS
def test_a_leak_leaves_an_error_that_time_does_not_mend(coding) -> None:
    torch.manual_seed(0)
    steps = torch.rand(500).expand(256, 500)

    def errors(leak: float) -> torch.Tensor:
        return (encode(steps, torch.ones(1), Neuron(coding, 4, leak=leak)).estimates - steps).abs()

    none, small, large = ({t: errors(leak)[t - 1].mean().item() for t in (128, 256)} for leak in (0.0, 0.05, 0.2))
    assert none[256] < 0.6 * none[128]
    assert small[256] > 0.8 * small[128]
    assert large[256] > 0.8 * large[128]
    assert none[256] < 0.5 * small[256] < 0.2 * large[256]
    if coding == "differential":  # a silent neuron's potential comes to rest at what is lacking over the leak
        assert errors(0.2)[-1].max() < 0.75 * 0.2 / 8


@pytest.mark.parametrize("leak", [-0.1, 1.0, float("nan"), "0.1", True, None])
def test_a_leak_is_a_share(leak) -> None:
    with pytest.raises(ConfigError, match=r"leak=.* must be a number from 0 to below 1"):
        Neuron(leak=leak)
