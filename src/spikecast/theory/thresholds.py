"""Thresholds for a ReLU whose input is normal: the least quantisation error, and the paper's own iteration.

Everything is computed for a unit normal input: with ratio = mean/std, threshold/std depends on ratio and N only.
Where the ratio is negative the error is kept divided by the density at 0, so that channels whose positive mass is
far below the smallest float still have a meaningful minimum.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spikecast.errors import ConfigError

# Quanta of at most this width, in units of the density's decay length, are integrated by the Euler-Maclaurin series;
# wider ones are summed. There the first dropped term of the series is below 1e-8 of the error.
_SMOOTH_WIDTH = 0.5
# Boundaries in the sum: those beyond the 58 that matter at that width hold less than e^-29 of the mass.
_MAX_BOUNDARIES = 60
# (-1)^(m+1) eta(2m+2) / (pi^2 (2 pi)^(2m)) for m = 1, 2, 3, 4.
_SERIES = (7 / 2880, -31 / 483840, 127 / 77414400, -73 / 1751777280)
_LEAST_RATIO = -20.25  # below it less than 1e-90 of the mass is positive: a dead channel
_CONSTANT_RATIO = 1e8  # above it the spread is lost in the rounding of the mean: a constant channel
_GRID_POINTS = 48
_REFINE_POINTS = 9
_REFINE_ROUNDS = 3
_TIE = 1e-3  # minima this close in relative terms count as equal, and the smallest threshold is taken


def quantization_error(threshold: Tensor, mean: Tensor, std: Tensor, num_quanta: int) -> Tensor:
    """Mean squared error of a ReLU rounded to num_quanta steps of threshold / num_quanta, for a normal input.

    QE of Definition 4.7 (Eq. 23), divided by sqrt(2 pi) std so that it is an expectation; float64, arguments broadcast.
    """
    _check_num_quanta(num_quanta)
    threshold, mean, std = torch.broadcast_tensors(threshold.double(), mean.double(), std.double())
    constant = (std == 0) | (mean.abs() >= _CONSTANT_RATIO * std)
    unit = torch.where(constant, 1.0, std)
    ratio = torch.where(constant, 0.0, mean / unit)
    density = torch.where(ratio < 0, _density(ratio), 1.0)
    relative = (threshold / unit).clamp_max(1e100)  # far beyond the mass already, and its square is finite
    error = unit.square() * density * _scaled_error(relative, ratio, num_quanta)
    quantum = threshold / num_quanta
    rounded = quantum * (mean / quantum + 0.5).floor().clamp(0, num_quanta)
    return torch.where(constant, (rounded - mean.clamp_min(0)).square(), error)


def optimal_threshold(mean: Tensor, std: Tensor, num_quanta: int) -> tuple[Tensor, Tensor]:
    """The threshold of least quantisation error for each channel, and which channels are active at all.

    The global minimum that Thm 4.10 aims at. Inactive channels (no positive mass, or statistics that are not finite)
    get threshold 1; the caller replaces it. A channel that is constant and positive is represented exactly.
    """
    _check_num_quanta(num_quanta)
    mean, std = torch.broadcast_tensors(mean.double(), std.double())
    ratio = mean / std
    valid = mean.isfinite() & std.isfinite() & (std >= 0)
    constant = valid & (mean > 0) & ~(ratio < _CONSTANT_RATIO)
    spread = valid & (ratio >= _LEAST_RATIO) & (ratio < _CONSTANT_RATIO)
    threshold = torch.where(constant, mean, 1.0)
    threshold[spread] = std[spread] * _unit_threshold(ratio[spread], num_quanta)
    # Subnormal or huge deviations can still underflow or overflow in the product.
    active = (constant | spread) & threshold.isfinite() & (threshold > 0)
    return torch.where(active, threshold, 1.0), active


def paper_iteration(mean: Tensor, std: Tensor, num_quanta: int, num_updates: int = 100) -> Tensor:
    """The thresholds that the published results rest on: a fixed number of float32 updates from threshold 1.

    Algorithm 1 with Eq. 27, whose sum bound n is N; a channel that ends as NaN keeps the initial 1.
    """
    _check_num_quanta(num_quanta)
    mean, std = torch.broadcast_tensors(mean.float(), std.float())
    odd = 2 * torch.arange(1, num_quanta + 1, dtype=torch.float32, device=mean.device) - 1
    threshold = torch.ones_like(mean).reshape(-1)
    block = max(1, 2**20 // num_quanta)  # bounds the (channels, N) table of terms
    for start in range(0, threshold.numel(), block):
        part = slice(start, start + block)
        threshold[part] = _iterate(mean.reshape(-1)[part], std.reshape(-1)[part], odd, num_updates)
    return torch.where(threshold.isnan(), 1.0, threshold).reshape(mean.shape)


def _iterate(mean: Tensor, std: Tensor, odd: Tensor, num_updates: int) -> Tensor:
    """Algorithm 1 for one block of channels; odd holds 2i - 1 for i = 1..N (Eq. 27)."""
    n = odd.numel()
    threshold = torch.ones_like(mean)
    for _ in range(num_updates):
        distance = odd / (2 * n) * threshold[:, None] - mean[:, None]
        erf = torch.erf(distance / (math.sqrt(2) * std[:, None]))
        gauss = torch.exp(-distance.square() / (2 * std.square()[:, None]))
        denominator = 1 - (odd / n**2 * erf).sum(1)
        centre = mean / threshold * (1 - (erf / n).sum(1)) / denominator
        edge = std / (math.sqrt(math.pi / 2) * threshold) * (gauss / n).sum(1) / denominator
        threshold = (centre + edge) * threshold
    return threshold


def _unit_threshold(ratio: Tensor, num_quanta: int) -> Tensor:
    """The minimiser of the error for std 1: a log grid, the best basin of it, then a finer grid inside that basin.

    Thm 4.10 claims one stationary point, but above a ratio of 3.9 there are several minima, up to N: hence the grid.
    """
    log_grid = _search_grid(ratio)
    log_error = _log_error(log_grid, ratio, num_quanta)
    best = _first_best_basin(log_error)
    for _ in range(_REFINE_ROUNDS):
        bracket = log_grid.gather(1, best + torch.tensor([-1, 1], device=ratio.device))
        log_grid = bracket[:, :1] + (bracket[:, 1:] - bracket[:, :1]) * _steps(_REFINE_POINTS, ratio)
        log_error = _log_error(log_grid, ratio, num_quanta)
        best = log_error[:, 1:-1].argmin(1, keepdim=True) + 1
    offset, _ = _vertex(log_error)
    step = log_grid[:, 1:2] - log_grid[:, :1]
    return (log_grid.gather(1, best) + step * offset.gather(1, best - 1)).exp().squeeze(1)


def _log_error(log_grid: Tensor, ratio: Tensor, num_quanta: int) -> Tensor:
    """Logarithm of the scaled error: closer to a parabola than the error, which falls by orders of magnitude."""
    return _scaled_error(log_grid.exp(), ratio[:, None], num_quanta).clamp_min(1e-300).log()


def _search_grid(ratio: Tensor) -> Tensor:
    """Logarithms of the thresholds to try: from just below the mean of the positive part to its 1e-14 tail.

    A smaller threshold clips the bulk of the mass; a larger one only widens the quanta.
    """
    magnitude = ratio.abs()
    tail = _mills(magnitude)
    # ratio + density / P(x > 0), written without the cancellation at negative ratios.
    hazard = torch.where(ratio < 0, 1 / tail, _density(ratio) / (1 - _density(ratio) * tail))
    positive_mean = ratio + hazard
    low = (positive_mean - 0.1 * positive_mean.clamp_max(1)).log()
    high = torch.where(ratio < 0, 64 / ((ratio.square() + 64).sqrt() + magnitude), ratio + 8).log()
    return low[:, None] + (high - low)[:, None] * _steps(_GRID_POINTS, ratio)


def _first_best_basin(log_error: Tensor) -> Tensor:
    """Index, (channels, 1), of the smallest threshold whose basin is as deep as the deepest, up to 0.1 %."""
    middle = log_error[:, 1:-1]
    basin = (middle <= log_error[:, :-2]) & (middle <= log_error[:, 2:])
    basin.scatter_(1, middle.argmin(1, keepdim=True), True)
    depth = torch.where(basin, _vertex(log_error)[1], math.inf)
    tied = depth <= depth.amin(1, keepdim=True) + _TIE
    return tied.double().argmax(1, keepdim=True) + 1


def _vertex(value: Tensor) -> tuple[Tensor, Tensor]:
    """Offset, in grid steps, and height of the parabola through each inner point and its two neighbours."""
    left, middle, right = value[:, :-2], value[:, 1:-1], value[:, 2:]
    slope, bend = (right - left) / 2, left - 2 * middle + right
    offset = torch.where(bend > 0, -slope / bend, 0.0).clamp(-1, 1)
    return offset, middle + offset * (slope + offset * bend / 2)


def _scaled_error(threshold: Tensor, ratio: Tensor, num_quanta: int) -> Tensor:
    """The error for std 1; for negative ratios divided by the density at 0, where it would vanish otherwise."""
    threshold, ratio = torch.broadcast_tensors(threshold, ratio)
    smooth = threshold * (-ratio).clamp_min(1) <= _SMOOTH_WIDTH * num_quanta
    error = torch.empty_like(threshold)
    error[smooth] = _integrated_error(threshold[smooth], ratio[smooth], num_quanta)
    error[~smooth] = _summed_error(threshold[~smooth], ratio[~smooth], num_quanta)
    return error.clamp_min(0)


def _summed_error(threshold: Tensor, ratio: Tensor, num_quanta: int) -> Tensor:
    """The error as a sum over the boundaries between quanta that lie within the mass.

    One quantum fits all x up to (x - centre)^2; each boundary b between it and x takes 2 quantum |x - b| off.
    """
    quantum = threshold / num_quanta
    nearest = (ratio / quantum).round().clamp(0, num_quanta)
    count = min(num_quanta, _MAX_BOUNDARIES)
    first = (nearest - count // 2).clamp(0, num_quanta - count)
    gain = torch.zeros_like(threshold)
    for k in range(count):
        boundary = (first + k + 0.5) * quantum
        distance = (boundary - ratio).abs()
        gain += _relative_density(boundary, ratio) * (1 - distance * _mills(distance))
    square = 1 + (ratio - nearest * quantum).square() - _density(ratio) * _square_tail(ratio)
    return torch.where(ratio < 0, _square_tail(-ratio), square) - 2 * quantum * gain


def _integrated_error(threshold: Tensor, ratio: Tensor, num_quanta: int) -> Tensor:
    """The error for narrow quanta: quantum^2 / 12 of the mass below the threshold, and what is clipped above it.

    The ends at 0 and at the threshold are centres of quanta; Euler-Maclaurin gives their part.
    """
    quantum = threshold / num_quanta
    distance = threshold - ratio
    upper = _relative_density(threshold, ratio)
    lower = torch.where(ratio < 0, 1.0, _density(ratio))
    tail = upper * _mills(distance.abs())
    above = torch.where(distance < 0, 1 - tail, tail)
    square = upper * _square_tail(distance.abs())
    clipped = torch.where(distance < 0, 1 + distance.square() - square, square)
    positive = torch.where(ratio < 0, _mills(ratio.abs()), 1 - lower * _mills(ratio.abs()))
    error = quantum.square() / 12 * (positive - above) + clipped
    power = quantum.square()
    for factor, at_zero, at_threshold in zip(_SERIES, _odd_hermite(ratio), _odd_hermite(distance), strict=True):
        power = power * quantum.square()
        error = error + factor * power * (at_zero * lower + at_threshold * upper)
    return error


def _relative_density(x: Tensor, ratio: Tensor) -> Tensor:
    """Density of the input at x; for negative ratios divided by that at 0, in one exponent so nothing underflows."""
    return torch.where(ratio < 0, torch.exp(-x * (x / 2 - ratio)), _density(x - ratio))


def _density(x: Tensor) -> Tensor:
    return torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)


def _mills(x: Tensor) -> Tensor:
    """P(Z > x) over the density at x, for x >= 0 (erfcx keeps it exact where both underflow)."""
    scaled: Tensor = torch.special.erfcx(x / math.sqrt(2))
    return scaled * math.sqrt(math.pi / 2)


def _square_tail(x: Tensor) -> Tensor:
    """E[max(Z - x, 0)^2] over the density at x, for x >= 0."""
    return (1 + x.square()) * _mills(x) - x


def _odd_hermite(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """He_1, He_3, He_5, He_7: the odd derivatives of the density over the density, with opposite sign."""
    s = x.square()
    return x, x * (s - 3), x * ((s - 10) * s + 15), x * (((s - 21) * s + 105) * s - 105)


def _steps(count: int, like: Tensor) -> Tensor:
    return torch.linspace(0, 1, count, dtype=like.dtype, device=like.device)


def _check_num_quanta(num_quanta: int) -> None:
    if num_quanta < 1:
        raise ConfigError(f"num_quanta is {num_quanta}, but a threshold needs at least 1 quantum: use N = T * 2**n.")
