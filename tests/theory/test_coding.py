"""Coding schemes, graded units and products: what is transmitted adds up to what a wire stands for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from spikecast.theory.coding import prediction, receive, signal_between
from spikecast.theory.graded import graded_signal, product_signal

CODINGS = ["differential", "rate"]
SEEDS = st.integers(0, 2**31 - 1)


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def received(signals: torch.Tensor, rest: torch.Tensor, coding) -> torch.Tensor:
    """The values r[1..T] of a wire that rests at r[0] and carries these signals."""
    values = []
    for t, signal in enumerate(signals, start=1):
        rest = receive(rest, signal, t, coding)
        values.append(rest)
    return torch.stack(values)


def test_silence() -> None:
    estimate = torch.tensor([6.0, -3.0])
    assert torch.equal(prediction(estimate, 3, "differential"), estimate)
    assert torch.equal(prediction(estimate, 3, "rate"), torch.tensor([4.0, -2.0]))
    assert torch.equal(prediction(estimate, 1, "rate"), torch.zeros(2))


@settings(max_examples=40)
@given(seed=SEEDS, num_steps=st.integers(1, 40))
def test_differential_definition(seed, num_steps) -> None:
    """Definition 4.1: with e[t] = r[t-1] + x[t], r[t] is the mean of e; the rest value does not matter after t = 1."""
    signals, rest = random(seed, num_steps, 5), random(seed + 1, 5)
    values = received(signals, rest, "differential")
    encoded = torch.cat([rest[None], values[:-1]]) + signals
    steps = torch.arange(1, num_steps + 1, dtype=torch.float64)[:, None]
    torch.testing.assert_close(values, encoded.cumsum(0) / steps)
    torch.testing.assert_close(values, rest + (signals / steps).cumsum(0))


@settings(max_examples=40)
@given(seed=SEEDS, num_steps=st.integers(1, 40))
def test_rate_is_the_mean_of_the_signals(seed, num_steps) -> None:
    signals = random(seed, num_steps, 5)
    steps = torch.arange(1, num_steps + 1, dtype=torch.float64)[:, None]
    torch.testing.assert_close(received(signals, random(seed + 1, 5), "rate"), signals.cumsum(0) / steps)


@pytest.mark.parametrize("coding", CODINGS)
@settings(max_examples=40)
@given(seed=SEEDS, t=st.integers(1, 4096))
def test_signal_between_is_the_inverse(coding, seed, t) -> None:
    previous, now = random(seed, 2, 7)
    torch.testing.assert_close(receive(previous, signal_between(previous, now, t, coding), t, coding), now)


UNITS: dict[str, Callable[..., torch.Tensor]] = {
    "gelu": F.gelu,
    "silu": F.silu,
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "max_pool": lambda x: F.max_pool1d(x, 2),
}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=10)
@given(seed=SEEDS)
def test_graded_unit(unit, coding, seed) -> None:
    """Thm 4.2: the unit holds its input's value as a membrane; what it sends stands for F of it, bias and all."""
    function, rest = UNITS[unit], random(seed, 3, 8)
    membranes = received(random(seed + 1, 12, 3, 8), rest, coding)
    outputs = function(torch.cat([rest[None], membranes]).flatten(0, 1)).unflatten(0, (13, 3))
    sent = [graded_signal(outputs[t], outputs[t - 1], t, coding) for t in range(1, 13)]
    torch.testing.assert_close(received(torch.stack(sent), outputs[0], coding), outputs[1:])


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("op", [torch.matmul, torch.mul])
@settings(max_examples=20)
@given(seed=SEEDS)
def test_product(op, coding, seed) -> None:
    """Thm 4.3 with the membranes of step t-1: what is sent stands for the product of what the inputs stand for."""
    a, b = random(seed, 2, 4, 4)
    output = op(a, b)
    signals_a, signals_b = random(seed + 1, 2, 12, 4, 4)
    for t in range(1, 13):
        x_a, x_b = signals_a[t - 1], signals_b[t - 1]
        sent = product_signal(op, x_a, x_b, a, b, output, t, coding)
        a, b = receive(a, x_a, t, coding), receive(b, x_b, t, coding)
        output = receive(output, sent, t, coding)
        torch.testing.assert_close(output, op(a, b))


def test_product_of_silence_is_silence() -> None:
    a, b = random(0, 2, 4, 4)
    silence = torch.zeros(4, 4, dtype=torch.float64)
    sent = product_signal(torch.matmul, silence, silence, a, b, a @ b, 5, "differential")
    assert torch.equal(sent, silence)


@pytest.mark.parametrize("coding", CODINGS)
def test_linear_layer(coding) -> None:
    """Thm 4.5: differential coding keeps the bias at rest and sends none; rate coding sends it at every step."""
    weight, bias, value = random(0, 3, 5), random(1, 3), random(2, 5)
    output = F.linear(value, weight, bias)
    for t, signal in enumerate(random(3, 10, 5), start=1):
        value = receive(value, signal, t, coding)
        output = receive(output, F.linear(signal, weight, bias if coding == "rate" else None), t, coding)
        torch.testing.assert_close(output, F.linear(value, weight, bias))
