"""Settings of a conversion: frozen, checked when made, and the same after a trip through JSON."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from spikecast.errors import ConfigError

Coding = Literal["differential", "rate"]
Method = Literal[
    "auto", "iteration", "iteration_paper", "iteration_published", "quantile", "quantile_published", "search"
]
Granularity = Literal["layer", "channel", "neuron", "dim1"]
Output = Literal["auto", "logits", "values"]

MAX_LEVELS = 14  # 0.75 / 2**13 is the smallest boundary that is still a normal float16
MAX_BURST = 14
MAX_STEPS = 4096

# What may differ from site to site; the number of steps, the coding and the seed belong to the whole network.
SITE_FIELDS = (
    "num_levels",
    "burst",
    "thresholds",
    "threshold_scale",
    "granularity",
    "signed",
    "quantile",
    "search_penalty",
    "firing_boundary",
    "initial_potential",
    "leak",
)


@dataclass(frozen=True)
class Config:
    """How to convert: frozen, and checked when it is made.

    Args:
        num_steps: T, the time-steps that a run takes unless it is told otherwise; 1 to 4096.
        num_levels: n, thresholds per sign of a multi-threshold neuron; 1 to 14, and 1 is the signed IF neuron.
        burst: Spikes that a neuron may send in one step; 1 to 14, and 1 is the paper's neuron.
        coding: "differential" (the paper's: spikes say what changes) or "rate" (spikes are counted).
        thresholds: How the base threshold is found: "auto", "iteration", "iteration_paper", "quantile", "search"; as
            the authors' code does it: "iteration_published", "quantile_published".
        threshold_scale: c, multiplies what the method found; above 0. Not with "search", which finds its own.
        granularity: One threshold per "layer", per feature "channel", per "neuron", or per "dim1" (the authors' code).
        signed: False: only positive spikes, the classical IF neuron; rate coding only.
        encode_input: True: the network's analog input is sent as spikes too.
        quantile: p of the quantile method, and of the starting point of "search"; above 0, up to 1.
        search_penalty: λ of "search": what one spike per neuron costs in squared relative error; 0 or more.
        energy_budget: Share of the ANN's energy that `num_steps` steps may cost; above 0. Levels, bursts and thresholds
            of each site are chosen so that the answers suffer least. Where `num_levels` or `burst` is not the default,
            here or in `overrides`, no more are taken.
        budget_costs: The costs that the budget is counted in: "paper", "honest" or "full".
        fidelity: How far the answers may be from the ANN's after `num_steps` steps, at the least energy; above 0. In
            nats per answer where answers are scores of classes, else their squared relative error.
        output: What the answers are, for these two goals: "logits" (scores of classes), "values", or "auto": logits
            where the batches carry whole numbers as labels.
        firing_boundary: b: level λ fires from b·λ on; above 0.5, up to 1.
        initial_potential: v₀ as a fraction of the threshold; -1 to 1, and next to nothing with bursts.
        leak: Share of its potential that a neuron loses between two steps; from 0, which is the paper's, to below 1.
        overrides: {site name pattern: {field: value} or None}; None leaves a site analog; the last match wins.
        seed: Of whatever is drawn at random while converting; 0 or more.

    Raises:
        ConfigError: A value out of range, or two that do not go together.

    Example:
        >>> Config(num_steps=8, burst=1).num_levels  # the paper's neuron over eight steps
        8
        >>> Config(overrides={"fc*": {"num_levels": 4}, "head.input": None}).at("fc1").num_levels
        4
    """

    num_steps: int = 1
    num_levels: int = 8
    burst: int = 3
    coding: Coding = "differential"
    thresholds: Method = "auto"
    threshold_scale: float = 1.0
    granularity: Granularity = "channel"
    signed: bool = True
    encode_input: bool = False
    quantile: float = 0.999
    search_penalty: float = 0.0
    energy_budget: float | None = None
    budget_costs: str = "paper"
    fidelity: float | None = None
    output: Output = "auto"
    firing_boundary: float = 0.75
    initial_potential: float = 0.0
    leak: float = 0.0
    overrides: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        _whole("num_steps", self.num_steps, 1, MAX_STEPS)
        _whole("num_levels", self.num_levels, 1, MAX_LEVELS)
        _whole("burst", self.burst, 1, MAX_BURST)
        _one_of("coding", self.coding, get_args(Coding))
        _one_of("thresholds", self.thresholds, get_args(Method))
        _one_of("granularity", self.granularity, get_args(Granularity))
        _real("threshold_scale", self.threshold_scale, 0.0, 1e6, open_low=True)
        _real("quantile", self.quantile, 0.0, 1.0, open_low=True)
        _real("search_penalty", self.search_penalty, 0.0, 1e6)
        _one_of("output", self.output, get_args(Output))
        if not isinstance(self.budget_costs, str):
            raise ConfigError(f"budget_costs={self.budget_costs!r} is not a name; give paper, honest or full")
        self._check_goal()
        _real("firing_boundary", self.firing_boundary, 0.5, 1.0, open_low=True)
        _real("initial_potential", self.initial_potential, -1.0, 1.0)
        _real("leak", self.leak, 0.0, 1.0, open_high=True)
        _whole("seed", self.seed, 0, 2**63 - 1)
        for name in ("signed", "encode_input"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}={getattr(self, name)!r} is not a bool; give True or False")
        if self.coding == "differential" and not self.signed:
            raise ConfigError(
                "coding='differential' with signed=False cannot work: a differential estimate only falls through a "
                "negative spike, so every overshoot would stay; use coding='rate', or signed=True"
            )
        if self.burst > 1 and abs(self.initial_potential) > 2.0**-self.num_levels:
            raise ConfigError(
                f"initial_potential={self.initial_potential} with burst={self.burst}: a burst would send it on as an "
                f"error; give at most {2.0**-self.num_levels:g} (2**-num_levels), or burst=1"
            )
        if self.thresholds == "search" and self.threshold_scale != 1.0:
            raise ConfigError(
                f"threshold_scale={self.threshold_scale} with thresholds='search': the search already chooses the "
                "scale; leave threshold_scale at 1.0, or take another method"
            )
        if self.thresholds in ("iteration_published", "quantile_published") and self.initial_potential:
            raise ConfigError(
                f"initial_potential={self.initial_potential} with thresholds={self.thresholds!r}: a neuron that is to "
                "stay silent would fire; leave it at 0.0, or take another method"
            )
        self._check_overrides()

    def _check_goal(self) -> None:
        goals = {name: value for name in ("energy_budget", "fidelity") if (value := getattr(self, name)) is not None}
        for name, value in goals.items():
            if name == "energy_budget" and isinstance(value, int | float) and value > 10:
                raise ConfigError(
                    f"energy_budget={value} must be a number above 0 up to 10: a share of the ANN's energy; "
                    f"{value:g} % of it are {value / 100:g}"
                )
            _real(name, value, 0.0, 10.0 if name == "energy_budget" else 1e6, open_low=True)
            if self.thresholds not in ("auto", "search"):
                raise ConfigError(
                    f"{name}={value} with thresholds={self.thresholds!r}: a goal chooses the thresholds; "
                    "leave them at 'auto' or 'search'"
                )
        if len(goals) > 1:
            raise ConfigError("energy_budget and fidelity are two goals; give one of them")

    @property
    def has_goal(self) -> bool:
        """Whether levels, bursts and thresholds are chosen for an energy or a fidelity."""
        return self.energy_budget is not None or self.fidelity is not None

    def _check_overrides(self) -> None:
        if not isinstance(self.overrides, Mapping):
            raise ConfigError(f"overrides={self.overrides!r} is not a mapping; give {{site pattern: settings or None}}")
        for pattern, settings in self.overrides.items():
            if not isinstance(pattern, str):
                raise ConfigError(f"overrides: the pattern {pattern!r} is not a string; site names are in snn.report")
            if settings is None:
                continue
            if not isinstance(settings, Mapping):
                raise ConfigError(f"overrides[{pattern!r}]={settings!r} is neither None nor a mapping of settings")
            for name in settings:
                if name not in SITE_FIELDS:
                    raise ConfigError(
                        f"overrides[{pattern!r}] sets {name!r}, which cannot differ by site; "
                        f"one of {', '.join(SITE_FIELDS)} can"
                    )
            dataclasses.replace(self, overrides={}, **settings)  # the same checks, at once rather than at the site

    def at(self, site: str) -> Config | None:
        """The settings of one site; None where it is to stay analog."""
        chosen: Mapping[str, Any] | None = {}
        for pattern, settings in self.overrides.items():
            if fnmatch.fnmatchcase(site, pattern) if is_pattern(pattern) else site == pattern:
                chosen = settings
        return None if chosen is None else dataclasses.replace(self, overrides={}, **chosen)

    def plans_like(self, other: Config) -> bool:
        """Whether neurons go to the same places under other settings; all else can be chosen anew."""
        analog, theirs = ({p for p, s in c.overrides.items() if s is None} for c in (self, other))
        return self.encode_input == other.encode_input and analog == theirs

    def steps_or(self, num_steps: int | None) -> int:
        """The steps that a run takes: as many as it is told, or `num_steps` of these settings."""
        if num_steps is None:
            return self.num_steps
        _whole("num_steps", num_steps, 1, MAX_STEPS)
        return num_steps

    def to_json(self) -> dict[str, Any]:
        """A plain dict that json can write; `Config.from_json` reads it."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["overrides"] = {k: None if v is None else dict(v) for k, v in self.overrides.items()}
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Config:
        """The settings in a dict; an unknown key is an error that lists the known ones."""
        return cls(**values)


def is_pattern(name: str) -> bool:
    """Whether the name of a site stands for others too."""
    return re.search(r"[*?\[]", name) is not None


def _refusing_unknown(init: Callable[..., None]) -> Callable[..., None]:
    """The same __init__, which says of an unknown setting what the known ones are; its signature stays visible."""
    known = [f.name for f in dataclasses.fields(Config)]

    @functools.wraps(init)
    def checked(self: Config, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise ConfigError(f"unknown setting {name!r}{hint}; the settings are {', '.join(known)}")
        init(self, *args, **given)

    return checked


Config.__init__ = _refusing_unknown(Config.__init__)  # type: ignore[method-assign]


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} must be a whole number from {low} to {high}")


def _real(
    name: str, value: object, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    if not fits or (open_low and value == low) or (open_high and value == high):
        first, last = "above" if open_low else "from", "to below" if open_high else "up to"
        raise ConfigError(f"{name}={value!r} must be a number {first} {low:g} {last} {high:g}")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} must be one of {', '.join(map(repr, allowed))}")
