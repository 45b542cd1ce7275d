"""From a site's statistics to its base thresholds, by the method the configuration names."""

from __future__ import annotations

import torch
from torch import Tensor

from spikecast.config import Config, Method
from spikecast.conversion.statistics import Histogram, Moments
from spikecast.errors import ConfigError
from spikecast.network.plan import Site
from spikecast.theory.thresholds import optimal_threshold, paper_iteration

OF_MOMENTS: tuple[Method, ...] = ("iteration", "iteration_paper")  # the other methods take a histogram
SMALLEST, LARGEST = 2.0**-120, 2.0**120  # float32 holds their inverse too, with room for the scales of the search


def method_of(site: Site, config: Config) -> Method:
    """The method a site uses; `auto` is decided by what measured best (docs/method.md).

    Threshold iteration minimises the error of a ReLU; where there is none the paper takes the quantile (Alg. 2).
    """
    if config.thresholds in OF_MOMENTS and not site.is_rectifier:
        return "quantile"
    if config.thresholds != "auto":
        return config.thresholds
    if site.is_rectifier and config.num_levels < 4 and config.burst == 1:
        return "iteration"
    return "search" if config.threshold_scale == 1.0 else "quantile"


def num_quanta(config: Config) -> int:
    """N of the quantisation error: T for an IF neuron, 2^n·T for a multi-threshold one (Definition 4.7)."""
    return config.num_steps if config.num_levels == 1 else 2**config.num_levels * config.num_steps


def needs_moments(site: Site, config: Config) -> bool:
    return method_of(site, config) in OF_MOMENTS


def threshold_from(site: Site, config: Config, statistics: Moments | Histogram | None) -> Tensor:
    """Base thresholds per channel in float64, scaled by `threshold_scale`."""
    match method_of(site, config), statistics:
        case "iteration", Moments(mean=Tensor() as mean, std=std):
            threshold, active = optimal_threshold(mean, std, num_quanta(config))
        case "iteration_paper", Moments(mean=Tensor() as mean, std=std):
            threshold = paper_iteration(mean, std, num_quanta(config)).double()
            active = torch.ones_like(threshold, dtype=torch.bool)
        case "quantile" | "search", Histogram() as histogram:  # the search begins there
            threshold = histogram.quantile(config.quantile)
            active = threshold > 0
        case method, _:
            raise ConfigError(f"thresholds={method!r} has no formula for {type(statistics).__name__}; add one here")
    return (filled(threshold, active) * config.threshold_scale).clamp(SMALLEST, LARGEST)


def filled(threshold: Tensor, active: Tensor) -> Tensor:
    """A channel without activity takes the layer's median."""
    active = active & threshold.isfinite() & (threshold > SMALLEST)
    median = threshold[active].median() if bool(active.any()) else threshold.new_tensor(1.0)
    return torch.where(active, threshold, median)
