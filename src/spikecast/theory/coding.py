"""What a wire's transmitted signals mean: a coding scheme is a rule for predicting the next value.

Definition 4.1 (differential); Eq. 7, and step by step Eq. 12 (rate). Steps t count from 1; r[0] is the value at rest.
"""

from __future__ import annotations

from torch import Tensor

from spikecast.config import Coding


def prediction(estimate: Tensor, t: int, coding: Coding) -> Tensor:
    """The value the receiver holds at step t if nothing is sent, from its estimate r[t-1].

    Differential coding keeps the estimate; rate coding is a mean over time, so silence shrinks it.
    """
    return estimate if coding == "differential" else estimate * ((t - 1) / t)


def receive(estimate: Tensor, signal: Tensor, t: int, coding: Coding) -> Tensor:
    """The receiver's estimate r[t] once the signal x[t] has arrived at an estimate r[t-1]."""
    return prediction(estimate, t, coding) + signal / t


def signal_between(previous: Tensor, now: Tensor, t: int, coding: Coding) -> Tensor:
    """The signal x[t] that moves a wire's value from r[t-1] to r[t]; the inverse of `receive`."""
    return t * (now - prediction(previous, t, coding))
