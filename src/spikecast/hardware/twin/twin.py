"""The spike view of a converted network: what a chip would see on every wire, one step at a time.

A wire carries signals x[t] and nothing else. Synapses have no bias; a bias is a source (Thm 4.5): under differential
coding the value r[0] at which a wire rests, which a neuron holds as m_r[1] and a graded unit as its first input; under
rate coding a signal at every step. Written to be read and to check the value view (`network`) with, not for speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spikecast.config import Coding
from spikecast.errors import ConfigError
from spikecast.hardware.circuit.circuit import whole
from spikecast.hardware.twin.run import Run
from spikecast.network.answers import with_time
from spikecast.network.spiking import SpikingNetwork
from spikecast.theory.coding import receive
from spikecast.theory.firing import level_index


@dataclass(frozen=True)
class Trace:
    """All that happened in a run: by wire its rest value r[0] and its signals [T, ...], by site the levels it fired.

    Levels are [T, burst, ...]; the signal of a step is the sum of its pulses. A wire is called like the op that sends
    on it (an input by its own name).
    """

    answer: Any
    rest: Mapping[str, Tensor]
    signals: Mapping[str, Tensor]
    levels: Mapping[str, Tensor]
    coding: Coding

    def estimates(self, wire: str) -> Tensor:
        """What a wire stood for after each step, [T, ...]: the receivers' sum of what was sent."""
        value, values = self.rest[wire], []
        for t, signal in enumerate(self.signals[wire], start=1):
            value = receive(value, signal, t, self.coding)
            values.append(value)
        return torch.stack(values)


class Twin:
    """The network as hardware would run it; it answers like the network, step by step.

    With `dtype` everything is computed in that type, thresholds and weights as the network has them.
    """

    def __init__(self, network: SpikingNetwork, dtype: torch.dtype | None = None) -> None:
        if dtype not in (None, torch.float32, torch.float64):
            raise ConfigError(f"dtype={dtype} is no type a twin computes in; give torch.float32 or torch.float64")
        self.network, self.dtype = whole(network), dtype

    @torch.no_grad()
    def run(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Any:
        """The answer after each step, in the form of `SpikingNetwork.run`."""
        run, total = self._start(args, kwargs, num_steps)
        return with_time([run.advance(t) for t in range(1, total + 1)])

    @torch.no_grad()
    def trace(
        self, *args: Any, num_steps: int | None = None, follow: Mapping[str, Tensor] | None = None, **kwargs: Any
    ) -> Trace:
        """The same, with every signal on the way.

        `follow` names levels by site, [T, burst, ...]: the neurons send these, whatever they would have fired
        themselves, which is what `levels` says then. So spikes that differ on their own account are told from all that
        follows.
        """
        run, total = self._start(args, kwargs, num_steps)
        run.follow = follow or {}
        answers, steps, levels = [], [], []
        for t in range(1, total + 1):
            answers.append(run.advance(t))
            steps.append({n: x for n, x in run.sent.items() if isinstance(x, Tensor) and n in run.wires})
            levels.append({site: level_index(pulses) for site, pulses in run.fired.items()})
        signals = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        fired = {site: torch.stack([step[site] for step in levels]) for site in levels[0]}
        rest = {name: run.rest[name] for name in signals}
        return Trace(with_time(answers), rest, signals, fired, self.network.config.coding)

    def _start(self, args: Sequence[Any], kwargs: Mapping[str, Any], num_steps: int | None) -> tuple[Run, int]:
        plan, tensors = self.network.prepare_call(args, kwargs)
        return Run(self.network, plan.program, tensors, self.dtype), self.network.config.steps_or(num_steps)


def twin(network: SpikingNetwork, dtype: torch.dtype | None = None) -> Twin:
    """The spike view of a network: signals on every wire, step by step, as hardware would run it.

    Args:
        network: The network, converted whole.
        dtype: torch.float32 or torch.float64, to compute everything in; the network's own type unless given.

    Returns:
        A Twin: `.run(x)` answers like the network, `.trace(x)` has every signal and every level that fired.

    Example:
        >>> bool((hardware.twin(snn).run(x) - snn.run(x)).abs().max() < 1e-4)
        True
    """
    return Twin(network, dtype)
