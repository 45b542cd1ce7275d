"""Methods of the literature as settings of the same machinery, so that they can be compared on one network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spikecast.config import Config
from spikecast.errors import ConfigError

# Thresholds of the paper for networks without rectifiers: Alg. 2, and c = 4.
_TRANSFORMER: dict[str, Any] = {"thresholds": "quantile", "threshold_scale": 4.0, "encode_input": True}
# An IF neuron of the literature starts half way to its threshold, and fires when it is there.
_HALF_WAY: dict[str, Any] = {"num_levels": 1, "initial_potential": 0.5, "firing_boundary": 1.0}


class Preset(NamedTuple):
    """The settings of a method, and what is other in networks without rectifiers."""

    settings: Mapping[str, Any]
    without_rectifiers: Mapping[str, Any] = {}


PRESETS: Mapping[str, Preset] = {
    "dcgs": Preset({"coding": "differential", "thresholds": "iteration_paper"}, _TRANSFORMER),  # the paper
    "ecmt": Preset({"coding": "rate", "thresholds": "quantile"}, _TRANSFORMER),  # multi-threshold neurons with rates
    "snm": Preset({"coding": "rate", "thresholds": "quantile", **_HALF_WAY}),  # signed IF neurons with memory
    "ts": Preset({"coding": "rate", "thresholds": "quantile", "signed": False, **_HALF_WAY}),  # the classical IF neuron
    "ours": Preset({}),  # what spikecast chooses
}


def preset(
    name: str, *, num_steps: int = Config.num_steps, num_levels: int = Config.num_levels, rectifiers: bool = True
) -> Config:
    """The settings of a method; `rectifiers` says that the network has ReLUs, for which thresholds can be iterated."""
    if name not in PRESETS:
        raise ConfigError(f"no preset is called {name!r}; there are {', '.join(PRESETS)}")
    settings, without_rectifiers = PRESETS[name]
    given = {"num_steps": num_steps, "num_levels": num_levels, **settings}
    return Config(**given if rectifiers else {**given, **without_rectifiers})
