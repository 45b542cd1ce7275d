"""What nonlinear units and products of activations transmit, so that every wire keeps standing for F(r_in[t]).

Thm 4.2 and 4.3 (with the membranes of step t-1, as the appendix proves it), and the same for rate coding.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from spikecast.config import Coding
from spikecast.theory.coding import signal_between


def graded_signal(f_now: Tensor, f_before: Tensor, t: int, coding: Coding) -> Tensor:
    """The signal x_out[t] of a unit whose function gives F(r_in[t]) now and gave F(r_in[t-1]) before (Thm 4.2)."""
    return signal_between(f_before, f_now, t, coding)


def product_signal(
    op: Callable[[Tensor, Tensor], Tensor],
    x_a: Tensor,
    x_b: Tensor,
    m_a_before: Tensor,
    m_b_before: Tensor,
    out_before: Tensor,
    t: int,
    coding: Coding,
) -> Tensor:
    """The signal x_out[t] of a bilinear op from the signals x[t] and the values m[t-1] of its inputs (Thm 4.3).

    Event-driven: each of the three products has a signal as a factor. Rate coding also lets its own value
    out_before = r_out[t-1] decay.
    """
    both = op(x_a, x_b) / t
    crossed = op(x_a, m_b_before) + op(m_a_before, x_b)
    if coding == "differential":
        return both + crossed
    return both + (crossed - out_before) * ((t - 1) / t)
