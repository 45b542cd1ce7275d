"""From a site's statistics to its base thresholds, by the method the configuration names."""

from __future__ import annotations

import torch
from torch import Tensor

from spikecast.config import Config, Method
from spikecast.conversion.statistics import Histogram, MeanQuantile, Moments
from spikecast.errors import ConfigError
from spikecast.network.plan import SILENT, Site
from spikecast.theory.thresholds import optimal_threshold, paper_iteration

# Iterations are made for a ReLU. What they give way to where there is none; the paper takes the quantile (Alg. 2).
ITERATIONS: dict[Method, Method] = {
    "iteration": "quantile",
    "iteration_paper": "quantile",
    "iteration_published": "quantile_published",
}
SMALLEST, LARGEST = 2.0**-120, SILENT  # float32 holds their inverse too, with room for the scales of the search


def method_of(site: Site, config: Config) -> Method:
    """The method a site uses; `auto` is decided by what measured best (docs/method.md)."""
    if not site.is_rectifier and config.thresholds in ITERATIONS:
        return ITERATIONS[config.thresholds]
    if config.thresholds != "auto":
        return config.thresholds
    if site.is_rectifier and config.num_levels < 4 and config.burst == 1:
        return "iteration"
    return "search" if config.threshold_scale == 1.0 else "quantile"


def num_quanta(config: Config) -> int:
    """N of the quantisation error: T for an IF neuron, 2^n·T for a multi-threshold one (Definition 4.7).

    The authors' code takes a multi-threshold neuron with one threshold for n = 1, and so 2T.
    """
    is_if = config.num_levels == 1 and config.thresholds != "iteration_published"
    return config.num_steps if is_if else 2**config.num_levels * config.num_steps


def statistics_for(site: Site, config: Config) -> Moments | Histogram:
    """What has to be noted of a site for its method."""
    match method_of(site, config):
        case "quantile_published":
            return MeanQuantile(config.quantile)
        case method if method in ITERATIONS:
            return Moments()
        case _:
            return Histogram()


def threshold_from(site: Site, config: Config, statistics: Moments | Histogram | None) -> Tensor:
    """Base thresholds per channel in float64, scaled by `threshold_scale`."""
    match method_of(site, config), statistics:
        case "iteration", Moments(mean=Tensor() as mean, std=std):
            threshold, active = optimal_threshold(mean, std, num_quanta(config))
        case "iteration_paper", Moments(mean=Tensor() as mean, std=std):
            threshold = paper_iteration(mean, std, num_quanta(config)).double()
            active = torch.ones_like(threshold, dtype=torch.bool)
        case "iteration_published", Moments(mean=Tensor() as mean, std=std):
            return _or_silent(paper_iteration(mean, std, num_quanta(config)).double(), config)
        case "quantile_published", Moments(mean=Tensor() as mean):  # of the batches' quantiles
            return _or_silent(mean, config)
        case "quantile" | "search", Histogram() as histogram:  # the search begins there
            threshold = histogram.quantile(config.quantile)
            active = threshold > 0
        case method, _:
            raise ConfigError(f"thresholds={method!r} has no formula for {type(statistics).__name__}; add one here")
    return (filled(threshold, active) * config.threshold_scale).clamp(SMALLEST, LARGEST)


def _or_silent(threshold: Tensor, config: Config) -> Tensor:
    """What the authors' code does: a threshold that is not positive becomes 0, and spikes of size 0 say nothing."""
    return torch.where(threshold > 0, (threshold * config.threshold_scale).clamp(SMALLEST, LARGEST), SILENT)


def filled(threshold: Tensor, active: Tensor) -> Tensor:
    """A channel without activity takes the layer's median."""
    active = active & threshold.isfinite() & (threshold > SMALLEST)
    median = threshold[active].median() if bool(active.any()) else threshold.new_tensor(1.0)
    return torch.where(active, threshold, median)
