"""What the neurons of one run hold: for each site, the estimate its receivers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from spikecast.errors import DataError
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import NEURON
from spikecast.kernels import encode
from spikecast.theory.neuron import Encoded

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork


class Recorded(NamedTuple):
    """What one site did: its estimate after each step, and the signed level it fired (0 silent, ±1 largest)."""

    estimates: Tensor
    levels: Tensor


class NeuronStates:
    """The neurons of one run: for each site the estimate its receivers hold."""

    def __init__(self, network: SpikingNetwork, record: Sequence[str] = ()) -> None:
        self.network = network
        self.estimates: dict[str, Tensor] = {}
        self.t = 1
        self.wanted = set(record)
        self.recorded: dict[str, Recorded] = {}
        self.keep = True  # whether a later step will need the estimates

    def __call__(self, site: str, steps: Tensor) -> Tensor:
        return self._encode(site, steps, overwrite=False)

    def overwrite(self, site: str, steps: Tensor) -> Tensor:
        """The same on inputs that nobody needs afterwards, so that the estimates may take their place."""
        return self._encode(site, steps, overwrite=True)

    def _encode(self, site: str, steps: Tensor, *, overwrite: bool) -> Tensor:
        want, threshold = site in self.wanted, self.network.threshold(site)
        shape = steps.shape[1:]
        if len(threshold.shape) != len(shape) or any(
            a not in (1, b) for a, b in zip(threshold.shape, shape, strict=True)
        ):
            raise DataError(
                f"site {site!r} has thresholds of shape {tuple(threshold.shape)} and meets {tuple(shape)}; give inputs "
                "of the size it was calibrated with, or convert with granularity='channel'"
            )
        out = self.encode(site, steps, threshold, want_levels=want, overwrite=overwrite)
        if self.keep:  # a copy, where a view would keep all steps in memory
            self.estimates[site] = out.estimates[-1].clone() if len(steps) > 1 else out.estimates[-1]
        if want and out.levels is not None:
            self.recorded[site] = Recorded(out.estimates, out.levels)
        return out.estimates

    def encode(self, site: str, steps: Tensor, threshold: Tensor, *, want_levels: bool, overwrite: bool) -> Encoded:
        """The neurons of one site; who counts as well does it here."""
        return encode(
            steps,
            threshold,
            self.network.neurons[site],
            state=self.estimates.get(site),
            start=self.t,
            want_levels=want_levels,
            overwrite=overwrite,
        )

    def keep_samples(self, execution: Execution, index: Tensor) -> None:
        """Forget all samples but those of the index."""
        for node in execution.program.nodes:
            if node.target == NEURON and (site := node.kwargs["site"]) in self.estimates:
                self.estimates[site] = execution.select(node.name, self.estimates[site], index)
