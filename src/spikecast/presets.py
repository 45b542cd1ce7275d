"""Methods of the literature as settings of the same machinery, so that they can be compared on one network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from spikecast.config import Config
from spikecast.errors import ConfigError

# The methods of others take several steps, and all but hmt send one spike in each.
_STEPS: dict[str, Any] = {"num_steps": 8}
_SINGLE: dict[str, Any] = {**_STEPS, "burst": 1}
# Thresholds of the paper for networks without rectifiers: Alg. 2, and c = 4.
_TRANSFORMER: dict[str, Any] = {"thresholds": "quantile", "threshold_scale": 4.0, "encode_input": True}
# An IF neuron of the literature starts half way to its threshold, and fires when it is there.
_HALF_WAY: dict[str, Any] = {"num_levels": 1, "initial_potential": 0.5, "firing_boundary": 1.0}


class Preset(NamedTuple):
    """A method in few words, its settings, what is other without rectifiers, and what follows from the levels."""

    about: str
    settings: Mapping[str, Any]
    without_rectifiers: Mapping[str, Any] = {}
    by_levels: Callable[[int], Mapping[str, Any]] = lambda _: {}


# Each is a method as far as settings can say it; what the methods of others have besides is said beside them.
PRESETS: Mapping[str, Preset] = {
    # DCGS (ICML 2025), the paper, whole.
    "dcgs": Preset("the paper", {**_SINGLE, "coding": "differential", "thresholds": "iteration_paper"}, _TRANSFORMER),
    # Its published code where that differs (docs/errata.md). Not how it takes images: see `reproduce --as-published`.
    "dcgs_published": Preset(
        "its code",
        {**_SINGLE, "coding": "differential", "thresholds": "iteration_published", "granularity": "dim1"},
        {"thresholds": "quantile_published", "threshold_scale": 8.0, "encode_input": True},
    ),
    # ECMT: its multi-threshold neuron with rates. Not its expectation compensation (here graded units), nor its
    # normalisation of parameters (here the quantile).
    "ecmt": Preset("rate coding", {**_SINGLE, "coding": "rate", "thresholds": "quantile"}, _TRANSFORMER),
    # H-MT (AAAI-26): its neuron, which sends the binary digits of a value. Not its pair of a positive and a negative
    # neuron (here one signed membrane), nor its calibration of thresholds (here the quantile).
    "hmt": Preset(
        "rate coding, binary digits",
        {**_STEPS, "coding": "rate", "thresholds": "quantile", "firing_boundary": 1.0},
        by_levels=lambda n: {"burst": n, "initial_potential": 2.0**-n},
    ),
    # SNM: its signed IF neuron with memory, at rates. Not its normalisation neuron by neuron (here the quantile).
    "snm": Preset("rate coding, signed IF", {**_SINGLE, "coding": "rate", "thresholds": "quantile", **_HALF_WAY}),
    # TS: its neuron only, the classical IF neuron. It trains its ANN for the conversion; here nothing is trained.
    "ts": Preset(
        "rate coding, IF", {**_SINGLE, "coding": "rate", "thresholds": "quantile", "signed": False, **_HALF_WAY}
    ),
    "ours": Preset("the default", {}),  # what spikecast chooses: the default of Config
}


def preset(
    name: str, *, num_steps: int | None = None, num_levels: int = Config.num_levels, rectifiers: bool = True
) -> Config:
    """The settings of a method of the literature, as far as settings can say it.

    Args:
        name: "dcgs" (the paper), "dcgs_published" (its code, where that differs), "ecmt", "hmt", "snm", "ts", "ours".
        num_steps: T; 8 for the methods of others unless given, and what `Config` says for "ours".
        num_levels: n, thresholds per sign; 1 to 14. "snm" and "ts" always have 1.
        rectifiers: Whether the network has ReLUs, for which thresholds can be iterated.

    Example:
        >>> presets.preset("dcgs", num_steps=4).burst
        1
    """
    if name not in PRESETS:
        raise ConfigError(f"no preset is called {name!r}; there are {described()}")
    Config(num_levels=num_levels)  # which says what is wrong with the number
    _, settings, without_rectifiers, by_levels = PRESETS[name]
    given = {"num_levels": num_levels, **by_levels(num_levels), **settings}
    if not rectifiers:
        given |= without_rectifiers
    if num_steps is not None:
        given["num_steps"] = num_steps
    return Config(**given)


def described() -> str:
    """All presets, each with what it is."""
    return ", ".join(f"{name} ({of.about})" for name, of in PRESETS.items())
