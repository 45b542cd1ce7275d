"""What the neurons of one run hold: for each site the estimate its receivers have, and what leaked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.graph.execute.observer import Observer
from spikecast.graph.execute.run import Execution
from spikecast.kernels import Encoded, encode

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork


class Recorded(NamedTuple):
    """What one site did: estimates [T, ...], and the signed levels [T, burst, ...] it fired (0 silent, ±1 largest)."""

    estimates: Tensor
    levels: Tensor

    @classmethod
    def in_time(cls, steps: Sequence[Mapping[str, Recorded]]) -> dict[str, Recorded]:
        """What each site did at all steps, recorded step by step."""
        return {
            name: cls(*(torch.cat([step[name][i] for step in steps]) for i in (0, 1)))
            for name in steps[0]
            if all(name in step for step in steps)
        }


class NeuronStates(Observer):
    """The neurons of one run: for each site the estimate its receivers hold, and what leaked of its potentials."""

    def __init__(self, network: SpikingNetwork, record: Sequence[str] = ()) -> None:
        self.network = network
        self.estimates: dict[str, Tensor] = {}
        self.leaked: dict[str, Tensor] = {}  # of the sites with a leak
        self.t = 1
        self.wanted = set(record)
        self.recorded: dict[str, Recorded] = {}
        self.keep = True  # whether a later step will need the estimates
        self.peak = 0  # bytes that the run has held, if it weighs them

    def fire(self, site: str, steps: Tensor, *, may_overwrite: bool) -> Tensor:
        want, threshold = site in self.wanted, self.network.threshold(site)
        self._check(site, threshold.shape, steps.shape[1:])
        out = self.encode(site, steps, threshold, want_levels=want, overwrite=may_overwrite)
        if self.keep:  # a copy, where a view would keep all steps in memory
            self.estimates[site] = out.estimates[-1].clone() if len(steps) > 1 else out.estimates[-1]
            if out.leaked is not None:
                self.leaked[site] = out.leaked
        if want and out.levels is not None:
            self.recorded[site] = Recorded(out.estimates, out.levels)
        return out.estimates

    def _check(self, site: str, threshold: Sequence[int], shape: Sequence[int]) -> None:
        if len(threshold) != len(shape) or any(a not in (1, b) for a, b in zip(threshold, shape, strict=True)):
            raise DataError(
                f"site {site!r} has thresholds of shape {tuple(threshold)} and meets {tuple(shape)}; give inputs "
                "of the size it was calibrated with, or convert with granularity='channel'"
            )
        held = self.estimates.get(site)
        if held is not None and held.shape != shape:
            raise DataError(
                f"the input of site {site!r} has shape {tuple(shape)} at step {self.t} and {tuple(held.shape)} before; "
                "neurons need the same shape at every step: take a region of fixed shapes"
            )

    def weigh(self, held: int) -> None:
        self.peak = max(self.peak, held)

    def encode(self, site: str, steps: Tensor, threshold: Tensor, *, want_levels: bool, overwrite: bool) -> Encoded:
        """The neurons of one site; who counts as well does it here."""
        return encode(
            steps,
            threshold,
            self.network.neurons[site],
            **self.state_of(site),
            want_levels=want_levels,
            overwrite=overwrite,
        )

    def state_of(self, site: str) -> dict[str, Any]:
        """What `encode` needs to go on from the steps before."""
        return {"state": self.estimates.get(site), "leaked": self.leaked.get(site), "start": self.t}

    @property
    def nbytes(self) -> int:
        """What is kept from one pass to the next."""
        return sum(held.nbytes for held in (*self.estimates.values(), *self.leaked.values()))

    def keep_samples(self, execution: Execution, index: Tensor) -> None:
        """Forget all samples but those of the index."""
        neurons = execution.program.flow.neurons
        for kept in (self.estimates, self.leaked):
            for site, held in kept.items():
                kept[site] = execution.select(neurons[site].name, held, index)
