"""Several ways to convert one network, measured on the same data, side by side."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from torch import nn

from spikecast.config import Config
from spikecast.conversion.pipeline import convert
from spikecast.costs import Costs
from spikecast.errors import ConfigError, GoalError
from spikecast.experiments.resume import Say, evaluate_all
from spikecast.measure.evaluate import Evaluation, Evaluator
from spikecast.measure.tasks import Metric, Task, task_named
from spikecast.measure.verdicts import Front, Setting, Verdicts
from spikecast.network.base import Network
from spikecast.presets import preset
from spikecast.text import columns

Batches = Callable[[], Iterable[Any]]  # makes a loader, as often as it is asked for


@dataclass(frozen=True)
class Comparison:
    """What each way reached; the ANN is the same for all. `unmet` says why a way with a goal is left out."""

    metric: str
    entries: dict[str, tuple[Config, Evaluation]]
    unmet: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        entries = {name: {"config": config.to_json(), **e.to_json()} for name, (config, e) in self.entries.items()}
        return {"metric": self.metric, "entries": entries, "unmet": self.unmet}

    def rows(self) -> list[dict[str, Any]]:
        """A row for each way and step."""
        return [{"setting": name, **row} for name, (_, e) in self.entries.items() for row in e.rows()]

    def against(self, methods: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], Verdicts]:
        """Each method beside each before it, at every energy over the ANN's that either reaches.

        A method is some of the ways, by their names; one without any is left out.
        """
        fronts = {method: self._front(names) for method, names in methods.items() if names}
        return {(first, second): fronts[first].beside(fronts[second]) for second, first in combinations(fronts, 2)}

    def _front(self, names: Iterable[str]) -> Front:
        settings = []
        for evaluation in (self.entries[name][1] for name in names):
            score, notes, draws = evaluation.scores.readings()
            settings += [Setting(*point) for point in zip(ratio_of(evaluation), notes, strict=True)]
        return Front(settings, score, draws=draws)

    def table(self, steps: Sequence[int] | None = None) -> str:
        """A row for each way: the metric, agreement and energy at some steps (1, 2, 4, 8, ... unless told)."""
        longest = max(len(e.steps[self.metric]) for _, e in self.entries.values())
        chosen = [t for t in (steps or [2**k for k in range(12)]) if t <= longest]
        words = [f"{what} T={t}" for what in (self.metric, "same", "E") for t in chosen]
        rows: list[Sequence[str]] = [["", "slots", *words, "at the end", "minus the ANN's"]]
        ann = None
        for name, (_, e) in self.entries.items():
            metric, energy = e.scores.task.metrics[self.metric], e.energy
            figures = ((metric, e.steps[self.metric]), (Metric(), e.agreement or ()))
            cells = [how.text(x[t - 1], 1) if t <= len(x) else "" for how, x in figures for t in chosen]
            ran = 0 if energy is None else energy.tally.num_steps
            slots = "/".join(str(e.slots[t - 1]) for t in chosen if t <= len(e.slots))
            cells += [energy.ratio_text(t) if energy and t <= ran else "" for t in chosen]
            rows.append([name, slots, *cells, e.text(-1), e.less_text()])
            ann = e.ann or ann
        note = "" if ann is None else f"\nANN: {self.metric} {metric.text(ann[self.metric])}"
        note += "".join(f"\nleft out: {name}: {why}" for name, why in self.unmet.items())
        words = ["slots: pulse slots at each T; E: energy up to it over the ANN's", "at the end: with 95 % intervals"]
        words += [f"{e.samples} samples"]
        if longest > 1:
            words += ["each row is one network, made for its last T: made for fewer steps it has other thresholds"]
        return f"{columns(rows)}{note}\n{'; '.join(words)}"


def compare(
    model: nn.Module,
    calibration: Batches,
    data: Batches,
    configs: Mapping[str, Config],
    *,
    task: str | Task = "classification",
    costs: str | Costs | None = "paper",
    regions: Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    job: Mapping[str, Any] | None = None,
    progress: Callable[[str, int], None] | None = None,
    say: Say = warnings.warn,
) -> Comparison:
    """Convert with each configuration and evaluate all on the same data.

    A budget or fidelity that cannot be met is left out, unless no other way is left.

    Args:
        model: The ANN.
        calibration: A function that makes a loader; it is gone through several times.
        data: The same, of (input, target).
        configs: Settings by name.
        task: As for `measure.evaluate`.
        costs: As for `measure.evaluate`.
        regions: As for `spikecast.convert`.
        folder: Finished batches are noted there, and not measured again.
        job: What is measured, in plain data; records of another job are refused.
        progress: Called with the name of a configuration and the number of samples of each batch.
        say: Told which records of the folder do not count; a warning unless given.

    Returns:
        A Comparison: `.entries`, `.table()`, and `.against({...})` for verdicts at every energy.

    Example:
        >>> ways = {name: presets.preset(name, num_steps=2) for name in ("dcgs", "ours")}
        >>> list(compare(model, lambda: batches, lambda: [(x, labels)], ways).entries)
        ['dcgs', 'ours']
    """
    if not configs:
        raise ConfigError("nothing to compare; give at least one configuration")
    entries: dict[str, tuple[Config, Evaluation]] = {}
    unmet: dict[str, str] = {}
    captured: list[Network] = []  # one for each way to place the neurons
    for name, config in configs.items():

        def network(config: Config = config) -> Network:
            for known in captured:
                if config.plans_like(known.config):
                    return known.reconfigure(config, calibration())
            captured.append(convert(model, calibration(), config, regions=regions))
            return captured[-1]

        try:
            evaluation = evaluate_all(
                Evaluator(network, task, model=model, costs=costs, num_steps=config.num_steps),
                data(),
                folder=None if folder is None else Path(folder) / _slug(name),
                job={**(job or {}), "config": config.to_json()},
                progress=None if progress is None else lambda n, name=name: progress(name, n),  # type: ignore[misc]
                say=say,
            )
        except GoalError as error:
            if len(configs) == len(unmet) + 1:
                raise
            unmet[name] = str(error)
            continue
        entries[name] = (config, evaluation)
    return Comparison(next(iter(task_named(task).metrics)), entries, unmet)


def ratio_of(evaluation: Evaluation) -> list[float]:
    """The energy over the ANN's up to each step; refuses where there is none."""
    energy = evaluation.energy
    if energy is None:
        raise ConfigError("settings are compared by their energy, which was left out; compare with costs")
    if energy.ratio is None:
        raise ConfigError(
            f"there is no energy over the ANN's: {energy.missing or 'it has no products'}; compare by steps"
        )
    return energy.ratio


def preset_configs(
    names: Sequence[str],
    *,
    rectifiers: bool,
    levels: Sequence[int] = (Config.num_levels,),
    num_steps: int | None = None,
) -> dict[str, Config]:
    """The presets by name, for each number of levels where a preset leaves it open; see `has_rectifiers`.

    A name may have steps of its own: "ours@1".
    """
    made = partial(preset, rectifiers=rectifiers)
    configs = []
    for name in names:
        method, at, steps = name.partition("@")
        if at and not steps.isdecimal():
            raise ConfigError(f"preset {name!r}: after @ comes a number of steps, as in {method}@4")
        configs += [(name, made(method, num_levels=n, num_steps=int(steps) if at else num_steps)) for n in levels]
    return {f"{name} n={config.num_levels}": config for name, config in configs}


def has_rectifiers(model: nn.Module, batches: Iterable[Any], *, regions: Sequence[str] | None = None) -> bool:
    """Whether a model, as it is planned for the first of the batches, has rectifying neurons.

    The presets iterate thresholds where there are any, and take quantiles at the other sites of such a model.
    """
    quick = Config(num_steps=1, thresholds="quantile")  # its thresholds are thrown away
    network = convert(model, islice(batches, 1), quick, regions=regions)
    return any(site.is_rectifier for site in network.sites.values())


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
