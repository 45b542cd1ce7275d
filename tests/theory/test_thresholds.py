"""The quantisation error against quadrature, its minimiser against brute force, and Algorithm 1 against its formula."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spikecast.errors import ConfigError
from spikecast.theory import thresholds as iteration
from spikecast.theory.thresholds import optimal_threshold, paper_iteration, quantization_error

RATIOS = (-20.0, -9.0, -3.0, -1.0, -0.2, 0.0, 0.7, 2.0, 5.0, 12.0, 40.0)
QUANTA = (*range(1, 13), 16, 23, 32, 64, 100, 128, 256, 1000, 4096)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Many small tensors: threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def density_at_zero(ratio: Tensor) -> Tensor:
    """The factor that makes errors of negative ratios comparable; 1 for the others."""
    return torch.where(ratio < 0, torch.exp(-ratio.square() / 2) / math.sqrt(2 * math.pi), 1.0)


def positive_mean(ratio: Any) -> Any:
    """E[x | x > 0] for x ~ N(ratio, 1)."""
    return ratio + math.sqrt(2 / math.pi) / scipy.special.erfcx(-ratio / math.sqrt(2))


def quadrature(threshold: float, ratio: float, num_quanta: int, nodes: int = 12, pieces: int = 400) -> float:
    """QE for std 1 straight from its definition, by Gauss-Legendre between all jumps; over density_at_zero."""
    top = ratio + 12 if ratio >= 0 else math.sqrt(ratio**2 + 144) + ratio
    jumps = (np.arange(1, num_quanta + 1) - 0.5) * threshold / num_quanta
    edges = np.unique(np.concatenate([np.linspace(0, top, pieces), jumps[jumps < top]]))
    point, weight = scipy.special.roots_legendre(nodes)
    half = np.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half * (1 + point)
    level = np.clip(np.floor(num_quanta * x / threshold + 0.5), 0, num_quanta)
    squared = (threshold / num_quanta * level - x) ** 2
    log_density = -x * (x / 2 - ratio) if ratio < 0 else -((x - ratio) ** 2) / 2 - math.log(2 * math.pi) / 2
    return float((half * weight * squared * np.exp(log_density)).sum())


def brute_force_minimum(ratio: Tensor, num_quanta: int, points: int = 2500) -> Tensor:
    """Least QE for std 1 over thresholds from a fifth of the positive mean to four times the 1e-14 tail."""
    low = torch.from_numpy(positive_mean(ratio.numpy()) / 5).log()
    high = (4 * torch.where(ratio < 0, (ratio.square() + 64).sqrt() + ratio, ratio + 8)).log()
    grid = low[:, None] + (high - low)[:, None] * torch.linspace(0, 1, points, dtype=torch.float64)
    return quantization_error(grid.exp(), ratio[:, None], f64(1.0), num_quanta).amin(1)


def local_minima(ratio: float, num_quanta: int) -> tuple[Tensor, Tensor]:
    """Thresholds of the local minima and of the local maxima of QE for std 1."""
    grid = torch.linspace(math.log(0.5), math.log(40 * ratio), 40_001, dtype=torch.float64).exp()
    slope = quantization_error(grid, f64(ratio), f64(1.0), num_quanta).diff()
    slope = torch.where(slope.abs() < 1e-13, 0.0, slope).sign()
    return grid[1:-1][(slope[:-1] < 0) & (slope[1:] > 0)], grid[1:-1][(slope[:-1] > 0) & (slope[1:] < 0)]


# ---------------------------------------------------------------- quantization_error


@pytest.mark.parametrize("num_quanta", [1, 2, 4, 7, 32, 130, 1000, 4096])
def test_error_equals_quadrature(num_quanta: int) -> None:
    std = 0.37
    for ratio in RATIOS:
        scale = float(positive_mean(np.float64(ratio)))
        thresholds = [scale * k for k in (0.05, 0.5, 1.0, 1.3, 2.0, 4.0, 30.0)]
        got = quantization_error(f64(*thresholds) * std, f64(ratio * std), f64(std), num_quanta)
        got = got / density_at_zero(f64(ratio)) / std**2
        want = [quadrature(threshold, ratio, num_quanta) for threshold in thresholds]
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-8, err_msg=f"ratio {ratio}, thresholds {thresholds}")


@pytest.mark.parametrize(("threshold", "mean", "std", "num_quanta"), [(2.0, 0.3, 1.1, 4), (5.0, -1.0, 2.0, 8)])
def test_error_equals_the_adaptive_integral_of_the_definition(
    threshold: float, mean: float, std: float, num_quanta: int
) -> None:
    def integrand(x: float) -> float:
        level = min(max(math.floor((num_quanta * x + threshold / 2) / threshold), 0), num_quanta)
        squared = (threshold / num_quanta * level - max(x, 0)) ** 2
        return squared * math.exp(-((x - mean) ** 2) / (2 * std**2)) / (math.sqrt(2 * math.pi) * std)

    edges = [-12 * std, 0.0, *((i - 0.5) * threshold / num_quanta for i in range(1, num_quanta + 1)), 12 * std]
    want = sum(scipy.integrate.quad(integrand, a, b)[0] for a, b in pairwise(edges))
    got = quantization_error(f64(threshold), f64(mean), f64(std), num_quanta)
    assert got.item() == pytest.approx(want, rel=1e-9)


def test_error_is_exact_for_a_million_quanta() -> None:
    got = quantization_error(f64(6.0), f64(1.0), f64(1.0), 2**20).item()
    assert got == pytest.approx(quadrature(6.0, 1.0, 2**20, nodes=3), rel=1e-8)


@pytest.mark.parametrize("num_quanta", [1, 3, 16, 59, 61, 200, 4096])
def test_sum_and_series_meet_at_the_switch(num_quanta: int) -> None:
    """Both forms hold on either side of the switch, so neither carries an error of its own there."""
    ratio = torch.linspace(-20, 40, 601, dtype=torch.float64)
    for width in (0.4, 0.45, 0.5):
        threshold = width * num_quanta / (-ratio).clamp_min(1)
        summed = iteration._summed_error(threshold, ratio, num_quanta)
        integrated = iteration._integrated_error(threshold, ratio, num_quanta)
        torch.testing.assert_close(integrated, summed, rtol=2e-8, atol=0)
    inside = 0.9 * iteration._SMOOTH_WIDTH * num_quanta / (-ratio).clamp_min(1)
    assert torch.equal(
        iteration._scaled_error(inside, ratio, num_quanta), iteration._integrated_error(inside, ratio, num_quanta)
    )


def test_window_of_the_sum_holds_all_the_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    ratio = torch.linspace(-20, 40, 601, dtype=torch.float64)
    for width in (0.5, 0.7, 2.0):
        threshold = width * 1500 / (-ratio).clamp_min(1)
        windowed = iteration._summed_error(threshold, ratio, 1500)
        monkeypatch.setattr(iteration, "_MAX_BOUNDARIES", 1500)
        torch.testing.assert_close(windowed, iteration._summed_error(threshold, ratio, 1500), rtol=1e-9, atol=0)
        monkeypatch.undo()


def test_error_of_a_constant_is_its_rounding_error() -> None:
    mean = f64(1.0, 0.9, -1.0, 7.0, 0.0, 1e-300)
    for std in (0.0, 1e-320):
        got = quantization_error(f64(2.0), mean, f64(std), 4)
        torch.testing.assert_close(got, f64(0.0, 0.01, 0.0, 25.0, 0.0, 0.0))


# ---------------------------------------------------------------- optimal_threshold


@pytest.mark.parametrize("num_quanta", QUANTA)
def test_optimum_is_the_global_minimum(num_quanta: int) -> None:
    ratio = torch.linspace(-20, 40, 61, dtype=torch.float64)
    threshold, active = optimal_threshold(ratio, f64(1.0), num_quanta)
    error = quantization_error(threshold, ratio, f64(1.0), num_quanta)
    assert active.all()
    assert (error <= 1.002 * brute_force_minimum(ratio, num_quanta)).all()


@settings(max_examples=80, deadline=None)
@given(st.floats(-20, 40), st.integers(1, 4096), st.floats(1e-6, 1e6))
def test_optimum_is_the_global_minimum_anywhere(ratio: float, num_quanta: int, std: float) -> None:
    threshold, active = optimal_threshold(f64(ratio * std), f64(std), num_quanta)
    error = quantization_error(threshold, f64(ratio * std), f64(std), num_quanta) / std**2
    assert active.all()
    assert error.item() <= 1.01 * brute_force_minimum(f64(ratio), num_quanta).item()


@pytest.mark.parametrize(("ratio", "num_quanta"), [(-20.0, 3), (-2.0, 1), (0.0, 8), (1.5, 200), (5.0, 4), (20.0, 8)])
def test_optimum_beats_every_threshold_by_quadrature(ratio: float, num_quanta: int) -> None:
    """The same as above with an error that shares no code with the package."""
    threshold = optimal_threshold(f64(ratio), f64(1.0), num_quanta)[0].item()
    others = np.geomspace(0.3, 20, 150) * positive_mean(np.float64(ratio))
    least = min(quadrature(float(other), ratio, num_quanta, nodes=6, pieces=100) for other in others)
    assert quadrature(threshold, ratio, num_quanta) <= 1.002 * least


@pytest.mark.parametrize("num_quanta", [1, 8, 64, 2048, 2**20])
def test_optimum_is_stationary_to_many_digits(num_quanta: int) -> None:
    ratio = torch.linspace(-20, 3, 47, dtype=torch.float64)
    threshold, _ = optimal_threshold(ratio, f64(1.0), num_quanta)
    steps = f64(-1e-3, 0.0, 1e-3)
    left, middle, right = quantization_error(threshold * steps.exp()[:, None], ratio, f64(1.0), num_quanta)
    newton = 1e-3 * (right - left) / (2 * (left - 2 * middle + right))
    assert newton.abs().max() < 5e-5


@settings(max_examples=40, deadline=None)
@given(st.floats(-20, 40), st.integers(1, 4096), st.floats(1e-3, 1e3), st.integers(-40, 40), st.floats(1e-9, 1e9))
def test_optimum_scales_with_the_input(ratio: float, num_quanta: int, std: float, power: int, factor: float) -> None:
    mean = ratio * std
    threshold, _ = optimal_threshold(f64(mean), f64(std), num_quanta)
    exact, _ = optimal_threshold(f64(mean * 2.0**power), f64(std * 2.0**power), num_quanta)
    assert torch.equal(exact, threshold * 2.0**power)
    # Any other factor rounds the ratio, which may tip a tie between two minima: their errors are equal.
    scaled, _ = optimal_threshold(f64(mean * factor), f64(std * factor), num_quanta)
    errors = [quantization_error(t, f64(mean), f64(std), num_quanta).item() for t in (threshold, scaled / factor)]
    assert errors[1] == pytest.approx(errors[0], rel=2e-3)


def test_ties_take_the_smallest_threshold() -> None:
    """A narrow input far from 0 fits any level: all minima are equal, and the mean itself is the smallest."""
    assert (quantization_error(f64(40.0, 80.0, 160.0), f64(40.0), f64(1.0), 4) - 1).abs().max() < 1e-3
    assert optimal_threshold(f64(40.0), f64(1.0), 4)[0].item() == pytest.approx(40, rel=1e-4)


@pytest.mark.parametrize("num_quanta", [1, 4, 128, 4096, 2**20])
def test_dead_channels_are_inactive_and_get_one(num_quanta: int) -> None:
    mean = f64(0.0, -1.0, -1.0, -25.0, -1e300, math.nan, 1.0, math.inf, 1.0, 1.0, 0.0, 0.0)
    std = f64(0.0, 0.0, 1e-310, 1.0, 1e-300, 1.0, math.nan, 1.0, math.inf, -1.0, 1.7e308, 5e-324)
    threshold, active = optimal_threshold(mean, std, num_quanta)
    assert not active[:-2].any()
    assert torch.equal(threshold[~active], torch.ones_like(threshold[~active]))
    assert (threshold.isfinite() & (threshold > 0)).all()


@pytest.mark.parametrize("num_quanta", [1, 4, 128, 4096, 2**20])
def test_constant_and_nearly_constant_channels_are_represented(num_quanta: int) -> None:
    mean = f64(3.0, 3.0, 3.0, 3.0, 1e-300, 5e-324, 1e300)
    std = f64(0.0, 1e-320, 3e-12, 3e-7, 0.0, 0.0, 1e280)
    threshold, active = optimal_threshold(mean, std, num_quanta)
    assert active.all()
    torch.testing.assert_close(threshold, mean, rtol=1e-6, atol=0)
    assert (quantization_error(threshold[:4], mean[:4], std[:4], num_quanta) <= 1.001 * std[:4].square()).all()


@pytest.mark.parametrize("num_quanta", [1, 4, 128, 4096])
def test_strongly_negative_channels_still_get_a_threshold_of_their_tail(num_quanta: int) -> None:
    """What is positive of such a channel is nearly exponential with mean std^2 / |mean|."""
    threshold, active = optimal_threshold(f64(-20.0, -15.0, -8.0), f64(1.0), num_quanta)
    assert active.all()
    assert (threshold * f64(20.0, 15.0, 8.0) > 1).all()
    assert (threshold * f64(20.0, 15.0, 8.0) < 20).all()


def test_shapes_broadcast_and_may_be_empty() -> None:
    threshold, active = optimal_threshold(torch.zeros(2, 1), torch.ones(3), 4)
    assert threshold.shape == active.shape == quantization_error(threshold, f64(0.0), f64(1.0), 4).shape == (2, 3)
    assert threshold.dtype == torch.float64
    assert optimal_threshold(torch.tensor(0.5), torch.tensor(1.0), 4)[0].shape == ()
    assert optimal_threshold(torch.zeros(0), torch.zeros(0), 4)[0].shape == (0,)
    assert paper_iteration(torch.zeros(0), torch.zeros(0), 4).shape == (0,)
    assert paper_iteration(torch.zeros(2, 1), torch.ones(3), 4).shape == (2, 3)


def test_no_quanta_is_an_error() -> None:
    with pytest.raises(ConfigError, match="num_quanta is 0"):
        optimal_threshold(f64(0.0), f64(1.0), 0)


# ---------------------------------------------------------------- the paper's claims


def test_the_error_has_several_minima() -> None:
    """Thm 4.10 claims one stationary point. There are three at ratio 5, N = 4 and 2N - 1 far from 0."""
    minima, maxima = local_minima(5.0, 4)
    assert (len(minima), len(maxima)) == (2, 1)
    assert [round(value, 1) for value in minima.tolist()] == [6.3, 19.9]
    assert [len(points) for points in local_minima(8.0, 4)] == [3, 2]
    assert [len(points) for points in local_minima(10.0, 4)] == [4, 3]
    assert [len(points) for points in local_minima(3.8, 4)] == [1, 0]


def test_algorithm_1_stops_in_the_wrong_minimum() -> None:
    mean, std = f64(0.25), f64(0.05)  # the start, 1, is 20 deviations: in the outer basin of ratio 5
    stuck = paper_iteration(mean, std, 4)
    best, _ = optimal_threshold(mean, std, 4)
    assert stuck.item() == pytest.approx(19.86 * 0.05, rel=1e-3)
    ratio = quantization_error(stuck, mean, std, 4) / quantization_error(best, mean, std, 4)
    assert ratio.item() == pytest.approx(4.2, rel=0.01)


def literal_algorithm_1(mean: float, std: float, n: int, num_updates: int) -> np.float32:
    """Eq. 27 term by term, for one channel, in numpy float32."""
    mu, sigma, theta = np.float32(mean), np.float32(std), np.float32(1)
    i = np.arange(1, n + 1).astype(np.float32)
    with np.errstate(all="ignore"):
        for _ in range(num_updates):
            boundary = (2 * i - 1) * theta / np.float32(2 * n)
            erf = scipy.special.erf((boundary - mu) / (np.float32(math.sqrt(2)) * sigma))
            exp = np.exp(-((boundary - mu) ** 2) / (2 * sigma**2))
            below = 1 - np.sum((2 * i - 1) / np.float32(n**2) * erf)
            k1 = mu / theta * (1 - np.sum(erf / np.float32(n))) / below
            k1 = k1 + sigma / (np.float32(math.sqrt(math.pi / 2)) * theta) * np.sum(exp / np.float32(n)) / below
            assert isinstance(k1, np.float32)
            theta = k1 * theta
    return np.float32(1) if np.isnan(theta) else theta


@pytest.mark.parametrize(("num_quanta", "num_updates"), [(1, 100), (4, 100), (32, 100), (128, 100), (1000, 7)])
def test_paper_iteration_is_the_printed_formula(num_quanta: int, num_updates: int) -> None:
    mean = [0.0, 0.3, -0.4, 1.0, -2.0, 5.0, 0.02, 3.0, -1.0, -9.0, 0.0]
    std = [1.0, 0.2, 0.5, 1.0, 1.5, 1.0, 0.03, 0.0, 0.0, 0.1, 0.0]
    got = paper_iteration(torch.tensor(mean), torch.tensor(std), num_quanta, num_updates)
    want = [literal_algorithm_1(*pair, num_quanta, num_updates) for pair in zip(mean, std, strict=True)]
    assert got.dtype == torch.float32
    # With the threshold far beyond the mass, 1 - sum keeps few float32 digits: the order of the sum shows.
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-3)
    assert got[-3:].tolist() == [1, 1, 1]


def test_paper_iteration_does_not_depend_on_its_blocks() -> None:
    mean, std = torch.linspace(-1, 2, 7), torch.linspace(0.5, 1.5, 7)
    alone = torch.cat([paper_iteration(m[None], s[None], 2**18, 2) for m, s in zip(mean, std, strict=True)])
    torch.testing.assert_close(paper_iteration(mean, std, 2**18, 2), alone)


@pytest.mark.parametrize(("num_quanta", "fraction"), [(8, 1.0), (128, 0.82), (1024, 0.68)])
def test_a_hundred_updates_are_too_few_for_many_quanta(num_quanta: int, fraction: float) -> None:
    """For the standard normal; the iteration contracts by 1 - O(1/N) only."""
    best, _ = optimal_threshold(f64(0.0), f64(1.0), num_quanta)
    assert paper_iteration(f64(0.0), f64(1.0), num_quanta).item() / best.item() == pytest.approx(fraction, abs=0.005)
