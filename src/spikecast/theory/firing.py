"""Which level a multi-threshold neuron fires: one quantiser in four equal forms (Eq. 6 and Eq. 34).

Every form reads the same normalised potential u = m * inverse_threshold(θ, b), in which level i is 2**-(i-1), it
fires from 0.75 of itself on, a tie goes to the larger level, and anything from 0.75 up fires the largest. A level is
written as a signed index, int8: 0 is silence, ±1 the largest level θ, ±n the smallest. The forms agree bit for bit
because the factor is rounded once, before any of them looks at u.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from spikecast.config import MAX_LEVELS
from spikecast.errors import DataError
from spikecast.theory.modes import is_exporting

EDGE = 0.75  # midpoint of 1 and 1/2: 1.1 in binary, so that adding half a mantissa carries into the exponent


class FloatBits(NamedTuple):
    """How a float type lays out its bits below the sign."""

    integer: torch.dtype
    mantissa: int
    bias: int


FLOAT_BITS = {
    torch.float16: FloatBits(torch.int16, 10, 15),
    torch.bfloat16: FloatBits(torch.int16, 7, 127),
    torch.float32: FloatBits(torch.int32, 23, 127),
    torch.float64: FloatBits(torch.int64, 52, 1023),
}


class Scales(NamedTuple):
    """A threshold and its two inverses, each rounded once: `to_level` holds the boundary, `inverse` is 1/θ."""

    threshold: Tensor
    to_level: Tensor
    inverse: Tensor


def inverse_threshold(threshold: Tensor, boundary: float = EDGE) -> Tensor:
    """The factor (0.75/b)/θ that turns a potential into u, rounded once to the threshold's own type."""
    factor = (EDGE / boundary) / threshold.double()
    rounded = factor.to(threshold.dtype)
    if is_exporting():  # a trace has no values yet
        return rounded
    if not bool(((threshold > 0) & (rounded > 0) & rounded.isfinite()).all()):
        raise DataError("a threshold is zero, negative, NaN, or too extreme for its inverse; thresholds are positive")
    return rounded


def scales_of(threshold: Tensor, boundary: float, dtype: torch.dtype) -> Scales:
    """The constants of a site in the type its neurons compute in."""
    threshold = threshold.to(dtype)
    return Scales(threshold, inverse_threshold(threshold, boundary), inverse_threshold(threshold))


def refuse_nan(u: Tensor) -> None:
    """Stop at a potential that is not a number, whose bits would otherwise read as the largest spike."""
    if is_exporting():  # a trace has no values yet
        return
    if u.numel() and bool(u.amax().isnan()):  # amax carries NaN on and needs no mask as large as u
        raise DataError("a neuron's potential is NaN; look for NaN (or inf - inf) in the input or the weights")


def fire_argmin(u: Tensor, num_levels: int) -> Tensor:
    """The level nearest to u among all 2n: the definition to read, and the oracle of the other forms (Eq. 6)."""
    refuse_nan(u)
    magnitudes = level_value(torch.arange(1, num_levels + 1, device=u.device), torch.float64)
    # float64 keeps |u - λ| exact for halves; beyond ±2 nothing changes, and inf would be as far from every level
    bounded = u.double().clamp(-2, 2)
    distance = (bounded.unsqueeze(-1) - torch.cat([magnitudes, -magnitudes])).abs()
    nearest = distance.argmin(-1)  # the first of equals, which is the larger level
    level = nearest % num_levels + 1
    level = torch.where(nearest < num_levels, level, -level)
    return level.masked_fill(bounded.abs() < EDGE * magnitudes[-1], 0).to(torch.int8)


def fire_exponent(u: Tensor, num_levels: int) -> Tensor:
    """The level read off the sign and exponent bits of u; no levels, no comparisons with them (Eq. 34)."""
    refuse_nan(u)
    exponent = nearest_exponent(u).clamp_(max=0)
    level = (1 - exponent).masked_fill_(exponent <= -num_levels, 0)
    return torch.where(u < 0, -level, level).to(torch.int8)


def fire_thermometer(u: Tensor, num_levels: int) -> Tensor:
    """2n plain comparators on one membrane: bool [..., 2n], true from 0.75·λ_i on; its one-hot is implementation 2.

    Their sum weighted by `thermometer_weights` is the level's value; they are not n separate neurons.
    """
    refuse_nan(u)
    edges = EDGE * level_value(torch.arange(1, num_levels + 1, device=u.device), u.dtype)
    u = u.unsqueeze(-1)
    return torch.cat([u >= edges, u <= -edges], -1)


def thermometer_weights(num_levels: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What each comparator adds: λ_i - λ_{i+1} for i = 1..n with λ_{n+1} = 0, then their negatives; θ = 1."""
    levels = level_value(torch.arange(1, num_levels + 1), dtype)
    steps = levels - torch.cat([levels[1:], levels.new_zeros(1)])
    return torch.cat([steps, -steps])


def fire_one_hot(u: Tensor, num_levels: int) -> Tensor:
    """At most one event on a threshold axis of size 2n: λ_1..λ_n, -λ_1..-λ_n (paper's implementation 2)."""
    comparators = fire_thermometer(u, num_levels).reshape(*u.shape, 2, num_levels)
    events = comparators.clone()
    events[..., 1:] &= ~comparators[..., :-1]
    return events.flatten(-2)


def fire_burst(
    form: Callable[[Tensor, int], Tensor], u: Tensor, num_levels: int, burst: int, boundary: float = EDGE
) -> Tensor:
    """A form in `burst` passes, [burst, ...]: each fires on what the passes before have left of u."""
    passes = []
    for _ in range(burst):
        passes.append(form(u, num_levels))
        u = u - level_value(fire_exponent(u, num_levels), u.dtype) * (EDGE / boundary)
    return torch.stack(passes)


def level_value(levels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """What a signed level index stands for, in units of θ: ±2**-(i-1), and 0 for silence; exact."""
    powers = [2.0 ** (1 - i) for i in range(1, MAX_LEVELS + 1)]
    table = torch.tensor([-x for x in reversed(powers)] + [0.0] + powers, dtype=dtype, device=levels.device)
    return table[levels.long() + MAX_LEVELS]


def level_index(pulse: Tensor) -> Tensor:
    """The signed level index of a pulse in units of θ; the inverse of `level_value`."""
    level = 1 - floor_exponent(pulse.abs())
    return torch.where(pulse < 0, -level, level).masked_fill_(pulse == 0, 0).to(torch.int8)


def nearest_exponent(u: Tensor) -> Tensor:
    """e such that 2**e is the power of two nearest to |u|, at a tie the larger; u is not NaN.

    Adding half a mantissa before the mantissa is dropped moves the edge from 1 down to 0.75.
    """
    if is_exporting():
        return _level_reached(u.abs(), EDGE)
    integer, mantissa, bias = FLOAT_BITS[u.dtype]
    magnitude = u.view(integer) & torch.iinfo(integer).max
    return magnitude.add_((1 << mantissa - 1) - (bias << mantissa)).bitwise_right_shift_(mantissa)


def floor_exponent(x: Tensor) -> Tensor:
    """e such that 2**e is the largest power of two up to x; far below every level where x is zero or negative."""
    if is_exporting():
        return _level_reached(x, 1.0)
    integer, mantissa, bias = FLOAT_BITS[x.dtype]
    return (x.view(integer) >> mantissa).sub_(bias)


def signed_power(exponent: Tensor, sign: Tensor) -> Tensor:
    """The float with the sign of `sign` and the magnitude 2**exponent, put together from its bits."""
    if is_exporting():
        powers = torch.tensor([2.0**-k for k in range(MAX_LEVELS + 1)], dtype=sign.dtype, device=sign.device)
        magnitude = powers[-exponent]
        return torch.where(sign < 0, -magnitude, magnitude)
    integer, mantissa, bias = FLOAT_BITS[sign.dtype]
    return (exponent.add(bias) << mantissa).bitwise_or_(sign.view(integer) & torch.iinfo(integer).min).view(sign.dtype)


def _level_reached(x: Tensor, edge: float) -> Tensor:
    """The largest exponent from -MAX_LEVELS to 0 with edge·2**e <= x: what the bits say, as comparisons.

    Exported programs use it, since ONNX and many runtimes cannot look at the bits of a float. Further down no level
    fires, and further up only the largest does.
    """
    edges = torch.tensor([edge * 2.0**-k for k in range(MAX_LEVELS)], dtype=x.dtype, device=x.device)
    return (x.unsqueeze(-1) >= edges).sum(-1) - MAX_LEVELS
