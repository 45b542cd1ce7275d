"""In-loop search: each site's thresholds are chosen on the inputs that the converted layers before it really make.

All steps of a small batch go through the network layer by layer, and beside them, as one more step, the ANN itself.
When a site is reached, a handful of scales of its starting threshold are tried with the real neuron, and the one that
comes closest to the ANN's own activation is kept per channel. Only neurons run repeatedly, never a convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from spikecast.calibration.channels import by_channel, channel_axes
from spikecast.config import Config
from spikecast.graph.plan import Site
from spikecast.kernels import encode
from spikecast.theory.neuron import Neuron

SAMPLES = 32
SCALES = tuple(2.0 ** (k / 2) for k in range(6, -5, -1))  # 8 … ¼, the largest first
TIE = 1e-4  # scores this close count as equal, and the larger threshold wins
ENOUGH = 2**21  # values of a site on which its scales are compared; more samples would not change the choice
FLOOR = 1e-6  # of the layer's mean power: a channel below it is as good as silent


@dataclass
class Search:
    """The neuron function of a run whose first step is the ANN; changes thresholds as it goes."""

    sites: Mapping[str, Site]
    neurons: Mapping[str, Neuron]
    config: Config
    thresholds: dict[str, Tensor]
    wanted: set[str]

    def __call__(self, name: str, steps: Tensor) -> Tensor:
        """The first step passes exactly; the others through the neuron with the best threshold."""
        site, neuron = self.sites[name], self.neurons[name]
        analog = steps[:1].clamp(site.lower, site.upper) if site.is_rectifier else steps[:1]
        threshold = self.thresholds[name]
        if name in self.wanted:
            threshold = self.thresholds[name] = self._best(site, neuron, steps[1:], analog[0], threshold)
        return torch.cat([analog, encode(steps[1:], threshold, neuron).estimates])

    def _best(self, site: Site, neuron: Neuron, steps: Tensor, target: Tensor, start: Tensor) -> Tensor:
        """The start times the scale with the least score, channel by channel."""
        own = self.config.at(site.name)
        assert own is not None
        axes = channel_axes(site, own.granularity)
        steps, target = _some_samples(site, steps, target)
        power = by_channel(target.float().square(), axes).mean(1)
        power = power.clamp_min(float(power.mean()) * FLOOR).clamp_min(torch.finfo(torch.float32).tiny)
        scores = torch.stack(
            [self._score(neuron, steps, target, start * s, axes, power, own.search_penalty) for s in SCALES]
        )
        first = (scores <= scores.amin(0) + TIE).int().argmax(0)  # of equals, the largest threshold
        return start * torch.tensor(SCALES, dtype=start.dtype, device=start.device)[first].reshape(start.shape)

    def _score(
        self, neuron: Neuron, steps: Tensor, target: Tensor, threshold: Tensor, axes: tuple[int, ...],
        power: Tensor, penalty: float,
    ) -> Tensor:  # fmt: skip
        """Mean over t ≥ 2 of the squared relative error, plus what the spikes cost."""
        out = encode(steps, threshold, neuron, want_levels=penalty > 0)
        late = out.estimates[1:] if len(steps) > 1 else out.estimates
        error = torch.zeros_like(power)
        for estimate in late:
            error += by_channel((estimate - target).float().square_(), axes).mean(1)
        score = error / (len(late) * power)
        if out.levels is not None:
            score = score + penalty * sum(by_channel((level != 0).float(), axes).mean(1) for level in out.levels)
        return score


def _some_samples(site: Site, steps: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """As many samples of a site as it takes to compare scales."""
    axis = site.meta.batch_axis
    if axis is None or target.numel() <= ENOUGH:
        return steps, target
    count = max(1, target.shape[axis] * ENOUGH // target.numel())
    return steps.narrow(axis + 1, 0, count), target.narrow(axis, 0, count)
