"""Methods of the literature as settings of the same machinery, so that they can be compared on one network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spikecast.config import Config
from spikecast.errors import ConfigError

# Thresholds of the paper for networks without rectifiers: Alg. 2, and c = 4.
_TRANSFORMER: dict[str, Any] = {"thresholds": "quantile", "threshold_scale": 4.0, "encode_input": True}
# An IF neuron of the literature starts half way to its threshold, and fires when it is there.
_HALF_WAY: dict[str, Any] = {"num_levels": 1, "initial_potential": 0.5, "firing_boundary": 1.0}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "dcgs": {"coding": "differential", "thresholds": "iteration_paper"},  # the paper
    "ecmt": {"coding": "rate", "thresholds": "quantile"},  # multi-threshold neurons with rates
    "snm": {"coding": "rate", "thresholds": "quantile", **_HALF_WAY},  # signed IF neurons with memory
    "ts": {"coding": "rate", "thresholds": "quantile", "signed": False, **_HALF_WAY},  # the classical IF neuron
    "ours": {},  # what spikecast chooses
}


def preset(
    name: str, *, num_steps: int = Config.num_steps, num_levels: int = Config.num_levels, rectifiers: bool = True
) -> Config:
    """The settings of a method; `rectifiers` says that the network has ReLUs, for which thresholds can be iterated."""
    if name not in PRESETS:
        raise ConfigError(f"no preset is called {name!r}; there are {', '.join(PRESETS)}")
    settings = {"num_steps": num_steps, "num_levels": num_levels, **PRESETS[name]}
    if not rectifiers and name in ("dcgs", "ecmt"):
        settings |= _TRANSFORMER
    return Config(**settings)
