"""Thresholds of all sites from a pass of the ANN over the calibration batches, and in-loop search where asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from spikecast.config import Config
from spikecast.conversion.channels import by_channel, channel_axes, threshold_shape
from spikecast.conversion.statistics import Histogram, MeanQuantile, Moments
from spikecast.conversion.thresholds import method_of, statistics_for, threshold_from
from spikecast.distributed import world
from spikecast.errors import DataError
from spikecast.graph.execute.observer import Observer
from spikecast.network.plan import Site


@dataclass
class SiteStatistics:
    """What is noted of one site."""

    site: Site
    config: Config
    moments: Moments | None = None
    histogram: Histogram | None = None
    shape: tuple[int, ...] | None = None  # of the thresholds, once a batch has shown it
    axes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.axes = channel_axes(self.site, self.config.granularity)
        noted = statistics_for(self.site, self.config)
        if isinstance(noted, Histogram):
            self.histogram = noted
        else:
            self.moments = noted

    def observe(self, values: Tensor, clamped: Tensor, batch: int | None = None) -> None:
        """Take in one step of a site: its input, and what an exact neuron would send; the batch if it is noted."""
        shape = threshold_shape(values, self.axes)
        if self.shape is not None and shape != self.shape:
            raise DataError(
                f"site {self.site.name!r} has thresholds of shape {self.shape} and meets {shape}; "
                f"granularity={self.config.granularity!r} needs calibration batches of one size"
            )
        self.shape = shape
        if isinstance(self.moments, MeanQuantile):
            self.moments.samples = values.shape[self.site.meta.batch_axis or 0]
            values = clamped
        if self.moments is not None:
            self.moments.observe(by_channel(values, self.axes), batch)
        if self.histogram is not None:
            self.histogram.observe(by_channel(clamped, self.axes))

    def threshold(self) -> Tensor:
        """Base thresholds in the shape that broadcasts against the site."""
        assert self.shape is not None
        threshold = threshold_from(self.site, self.config, self.moments or self.histogram)
        return threshold.to(torch.float32).reshape(self.shape)


class Calibration(Observer):
    """The statistics of all sites, taken while the ANN runs."""

    def __init__(self, sites: Mapping[str, Site], config: Config) -> None:
        self.config = config
        self.batch = 0  # the number of the one that is observed
        self.statistics: dict[str, SiteStatistics] = {}
        for name, site in sites.items():
            own = config.at(name)
            assert own is not None
            self.statistics[name] = SiteStatistics(site, own)

    def fire(self, site: str, steps: Tensor, *, may_overwrite: bool) -> Tensor:
        """An exact neuron that notes what passes through it."""
        statistics = self.statistics[site]
        if steps.numel() and bool(steps.amax().isnan()):
            raise DataError(f"site {site!r} meets NaN in the model itself; look for 0/0 or inf - inf in its forward")
        sent = statistics.site.exact(steps)
        statistics.observe(steps[0], sent[0], self.batch if world()[1] > 1 else None)
        return sent

    def thresholds(self) -> dict[str, Tensor]:
        """What was found; a site that was never reached is an error."""
        for name, own in self.statistics.items():
            if own.shape is None:
                raise DataError(f"site {name!r} was never reached by the calibration batches; add such batches")
        return {name: own.threshold() for name, own in self.statistics.items()}

    @property
    def wants_search(self) -> set[str]:
        """Sites whose thresholds are to be searched in the loop."""
        return {n for n, own in self.statistics.items() if method_of(own.site, own.config) == "search"}
