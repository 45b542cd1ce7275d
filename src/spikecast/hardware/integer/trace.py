"""What happened in a run in whole numbers, in the form of the float twin's trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from spikecast.config import Coding
from spikecast.hardware.integer.neuron import Division, gain
from spikecast.hardware.twin.twin import Trace


class Step(NamedTuple):
    """What the neurons of one site did at one step."""

    wire: str
    levels: Tensor  # [burst, ...]
    signal: Tensor
    current: Tensor
    membrane: Tensor


@dataclass(frozen=True)
class IntegerTrace(Trace):
    """The trace of a run in whole numbers: that of the float twin for the wires that neurons send on, and registers.

    `levels` has the names, the shape and the type of `snn.twin().trace(x).levels`, so the two can be compared site by
    site.

    Attributes:
        answer: What `run` returns.
        rest: r[0] of each wire, which is 0.
        signals: By wire, [T, ...] in units of the values.
        levels: By site, [T, burst, ...]: 0 is silence, ±1 the largest level.
        coding: "differential" or "rate".
        currents: By site, [T, ...] in units of the membrane: what the host adds, which is biases, and whatever it
            computes itself (what lies before the first neurons, graded units).
        membranes: By site, [T, ...] in units of the membrane (`IntegerNetwork.weights` has its bits below 1): what each
            neuron keeps after it has fired.
        division: "divide" or "shift".

    Example:
        >>> ours, floats = hardware.IntegerNetwork(snn).trace(x), snn.twin().trace(x)
        >>> {site: bool((ours.levels[site] != floats.levels[site]).float().mean() < 0.1) for site in ours.levels}
        {'1': True}
    """

    currents: Mapping[str, Tensor]
    membranes: Mapping[str, Tensor]
    division: Division

    def estimates(self, wire: str) -> Tensor:
        """What a wire stood for after each step, [T, ...], with the gain of this network's division."""
        if self.coding == "rate" or self.division == "divide":
            return super().estimates(wire)
        gains = torch.tensor([gain(t, self.division) for t in range(1, len(self.signals[wire]) + 1)])
        scaled = self.signals[wire] * gains.to(self.signals[wire]).reshape(-1, *[1] * self.rest[wire].dim())
        return self.rest[wire] + scaled.cumsum(0)


def trace_of(answer: Any, steps: Sequence[Mapping[str, Step]], coding: Coding, division: Division) -> IntegerTrace:
    """The steps of a run, one after the other, as one trace."""
    sites = {site: _in_time([step[site] for step in steps]) for site in steps[0]}
    return IntegerTrace(
        answer=answer,
        rest={s.wire: torch.zeros_like(s.signal[0]) for s in sites.values()},
        signals={s.wire: s.signal for s in sites.values()},
        levels={name: s.levels for name, s in sites.items()},
        coding=coding,
        currents={name: s.current for name, s in sites.items()},
        membranes={name: s.membrane for name, s in sites.items()},
        division=division,
    )


def _in_time(steps: Sequence[Step]) -> Step:
    tensors = zip(*((s.levels, s.signal, s.current, s.membrane) for s in steps), strict=True)
    return Step(steps[0].wire, *(torch.stack(values) for values in tensors))
