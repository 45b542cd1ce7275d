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

    A wire is called like the op that sends on it (an input by its own name).

    Attributes:
        answer: What `run` returns.
        rest: r[0] of each wire.
        signals: By wire, [T, ...].
        levels: By site, [T, burst, ...]: 0 is silence, ±1 the largest level. A signal is the sum of its pulses.
        coding: "differential" or "rate".

    Example:
        >>> trace = snn.twin().trace(x)
        >>> {site: tuple(levels.shape) for site, levels in trace.levels.items()}
        {'1': (4, 3, 2, 4, 6, 6)}
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

    Args:
        network: A network that was converted whole.
        dtype: torch.float32 or torch.float64, in which everything is computed; the network's own type unless given.

    Example:
        >>> answers = hardware.Twin(snn, torch.float64).run(x)
        >>> torch.allclose(answers.float(), snn.run(x), atol=1e-4)
        True
    """

    def __init__(self, network: SpikingNetwork, dtype: torch.dtype | None = None) -> None:
        if dtype not in (None, torch.float32, torch.float64):
            raise ConfigError(f"dtype={dtype} is no type a twin computes in; give torch.float32 or torch.float64")
        self.network, self.dtype = whole(network), dtype

    def __repr__(self) -> str:
        return f"Twin({len(self.network.sites)} layers{f', {self.dtype}' if self.dtype else ''})"

    @torch.no_grad()
    def run(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Any:
        """The answer after each step, in the form of `SpikingNetwork.run`.

        Args:
            *args: What the model takes.
            num_steps: T; what the network was converted for unless given.
            **kwargs: The same, by name.

        Example:
            >>> tuple(snn.twin().run(x, num_steps=2).shape)
            (2, 2, 10)
        """
        run, total = self._start(args, kwargs, num_steps)
        return with_time([run.advance(t) for t in range(1, total + 1)])

    @torch.no_grad()
    def trace(
        self, *args: Any, num_steps: int | None = None, follow: Mapping[str, Tensor] | None = None, **kwargs: Any
    ) -> Trace:
        """The same, with every signal on the way.

        Args:
            *args: What the model takes.
            num_steps: T; what the network was converted for unless given.
            follow: Levels by site, [T, burst, ...]: the neurons send these, whatever they would have fired themselves,
                which is what `levels` says then. So spikes that differ on their own account are told from all that
                follows.
            **kwargs: What the model takes, by name.

        Example:
            >>> fired = snn.twin().trace(x).levels
            >>> torch.equal(snn.twin().trace(x, follow=fired).answer, snn.twin().run(x))
            True
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
