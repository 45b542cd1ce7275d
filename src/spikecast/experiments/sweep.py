"""Many settings of one conversion, and which of them are worth having: accuracy against energy against time.

The best of many is the best by luck too. So settings are chosen on every other sample, and what is said of those chosen
comes from the rest.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.experiments.compare import Comparison, ratio_of
from spikecast.measure.intervals import Interval
from spikecast.measure.scores import Scores
from spikecast.measure.tasks import Metric
from spikecast.page.plots import write_front
from spikecast.text import columns, many


@dataclass(frozen=True)
class Point:
    """One setting after some steps: the metric, the energy over the ANN's, and the pulse slots it takes.

    chosen_by  the metric on the samples that settings are chosen on
    reported   the metric on the others, with its 95 % interval
    """

    name: str
    num_steps: int
    slots: int
    chosen_by: float
    energy: float
    reported: float
    interval: Interval

    def beats(self, other: Point, sign: int = 1) -> bool:
        """At least as good in everything, and better in something; the sign is -1 where less of a metric is better."""
        mine, theirs = ((-sign * p.chosen_by, p.energy, p.num_steps, p.slots) for p in (self, other))
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


@dataclass(frozen=True)
class Choice:
    """The point to take under a budget, how many others keep to it, and those that it is not surely better than."""

    point: Point
    others: int
    rivals: list[Point]

    @property
    def cheaper(self) -> Point | None:
        """The cheapest of those that may be as good, if it needs less energy than the point."""
        least = min(self.rivals, key=lambda p: (p.energy, p.slots), default=self.point)
        return least if least.energy < self.point.energy else None

    @property
    def text(self) -> str:
        """What may be said of it: best only where no other may be as good."""
        if not self.others:
            return "the only setting within the budget"
        if not self.rivals:
            return f"the best of {self.others + 1} settings within the budget, beyond the interval of every difference"
        near = f"{len(self.rivals)} of {many(self.others, 'other setting')} within the budget"
        return f"chosen within the budget; {near} may be as good"


@dataclass(frozen=True)
class Sweep:
    """All points of a comparison.

    unmet   why a goal has none
    how     the metric is read
    scores  of each setting by name, on the samples that are reported
    varied  of each setting by name, what is not the same in all
    ann     the ANN's metric on the samples that are reported
    costs   by whose prices the energy is
    """

    metric: str
    points: list[Point]
    unmet: dict[str, str] = field(default_factory=dict)
    how: Metric = field(default_factory=Metric)
    scores: dict[str, Scores] = field(default_factory=dict)
    varied: dict[str, dict[str, Any]] = field(default_factory=dict)
    ann: float | None = None
    costs: str = "paper"

    @property
    def sign(self) -> int:
        return 1 if self.how.more else -1

    @property
    def front(self) -> list[Point]:
        """The points that none beats, by energy."""
        best = [p for p in self.points if not any(q.beats(p, self.sign) for q in self.points)]
        return sorted(best, key=lambda p: (p.energy, p.slots))

    def within(
        self, *, energy: float | None = None, num_steps: float | None = None, slots: float | None = None
    ) -> Choice:
        """What to take under a budget of energy (over the ANN's), of steps, of pulse slots, or of several.

        It scores most on the samples that settings are chosen on, and among equals needs least.
        """
        limits = {"energy": energy, "num_steps": num_steps, "slots": slots}
        given = {name: most for name, most in limits.items() if most is not None}
        fits = [p for p in self.points if all(getattr(p, name) <= most for name, most in given.items())]
        if not fits:
            least = min(self.points, key=lambda p: p.energy)
            raise ConfigError(
                f"no setting stays within the budget; the least energy is {least.energy:.1%} of the ANN's "
                f"({least.name}, T = {least.num_steps})"
            )
        taken = min(fits, key=lambda p: (-self.sign * p.chosen_by, p.energy, p.slots))
        others = [p for p in fits if p is not taken]
        return Choice(taken, len(others), [p for p in others if not self.is_better(taken, p)])

    def is_better(self, first: Point, second: Point) -> bool:
        """Whether a point scores more than another beyond the 95 % interval of their difference, where reported."""
        ours, theirs = self.scores[first.name], self.scores[second.name]
        low, high = ours.less(theirs, (first.num_steps, second.num_steps))[self.metric]
        return low > 0 if self.how.more else high < 0

    def table(self) -> str:
        """The front."""
        rows = [("setting", "T", "slots", "chosen by", self.metric, "energy over the ANN's")]
        for p in self.front:
            by = f"{p.chosen_by:.2%}" if self.how.unit else f"{p.chosen_by:.4g}"
            rows.append((p.name, str(p.num_steps), str(p.slots), by, self.text(p), f"{p.energy:.1%}"))
        left_out = "".join(f"\nleft out: {name}: {why}" for name, why in self.unmet.items())
        found = f"{len(self.front)} of {len(self.points)} points (a setting after a step) are beaten by none"
        halves = f"chosen by {self.metric} on every other sample; {self.metric} of the rest, with 95 % intervals"
        ann = "" if self.ann is None else f"; the ANN's {self.metric} on the rest {self.how.text(self.ann)}"
        return f"{columns(rows)}\n{found}: {halves}{ann}; costs: {self.costs}{left_out}"

    def text(self, point: Point) -> str:
        """What is reported of a point, with its interval."""
        return point.interval.text(point.reported, self.how.unit)

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        said = {"metric": self.metric, "ann": self.ann, "costs": self.costs}
        return {**said, "points": self.rows, "unmet": self.unmet}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every point, and whether none beats it."""
        front, found = set(self.front), []
        for p in self.points:
            fields = dataclasses.asdict(p)
            low, high = fields.pop("interval")
            own = self.varied.get(p.name, {})
            ends = {"reported_low": low, "reported_high": high}
            found.append({**fields, **ends, "costs": self.costs, "front": p in front, **own})
        return found

    def write_plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw all points and the front, metric against energy, as SVG, PDF or PNG."""
        scale, word = (100, f"{self.metric} (%)") if self.how.unit else (1, self.metric)
        front, names = [], _short({p.name for p in self.points})
        for p in self.front:
            within = None if p.interval.is_unknown else (scale * p.interval.low, scale * p.interval.high)
            front.append((100 * p.energy, scale * p.reported, within, f"{names[p.name]}, T = {p.num_steps}"))
        others = [(100 * p.energy, scale * p.reported) for p in self.points]
        ann = None if self.ann is None else scale * self.ann
        return write_front(others, front, path, word, ann=ann, costs=self.costs)


def _short(names: Iterable[str]) -> dict[str, str]:
    """Names without the settings that are the same in all, where any is left."""
    words = {name: name.split() for name in names}
    values = Counter(word.partition("=")[0] for word in set().union(*words.values()))  # by setting, how many
    return {
        name: " ".join([word for word in own if values[word.partition("=")[0]] > 1] or own)
        for name, own in words.items()
    }


def grid(base: Config, settings: Mapping[str, Sequence[Any]]) -> dict[str, Config]:
    """Every combination of some settings; combinations that make no sense are left out, if any does.

    Args:
        base: The other settings.
        settings: Values by the name of a setting.

    Example:
        >>> list(grid(Config(), {"num_levels": (4, 8), "burst": (1, 3)}))
        ['num_levels=4 burst=1', 'num_levels=4 burst=3', 'num_levels=8 burst=1', 'num_levels=8 burst=3']
    """
    configs: dict[str, Config] = {}
    reason: ConfigError | None = None
    for values in itertools.product(*settings.values()):
        chosen = dict(zip(settings, values, strict=True))
        try:
            configs[" ".join(f"{k}={v}" for k, v in chosen.items()) or "default"] = dataclasses.replace(base, **chosen)
        except ConfigError as error:
            reason = error
    if not configs and reason is not None:
        raise reason
    return configs


def sweep_of(comparison: Comparison) -> Sweep:
    """Every step of every entry of a comparison is a point: the answer after t steps costs the energy up to t.

    Args:
        comparison: What `compare` found.

    Returns:
        A Sweep: its front is chosen on one half of the samples and reported on the other.

    Example:
        >>> found = compare(model, lambda: batches, lambda: [(x, labels)], grid(Config(), {"burst": (1, 3)}))
        >>> len(sweep_of(found).points)
        2
    """
    points, how, scores, ann, costs = [], Metric(), {}, None, "paper"
    for name, (_, evaluation) in comparison.entries.items():
        ratio = ratio_of(evaluation)
        how = evaluation.scores.task.metrics[comparison.metric]
        first, second = evaluation.scores.halves()
        scores[name] = second
        ann = (second.of_ann() or {}).get(comparison.metric)
        costs = costs if evaluation.energy is None else evaluation.energy.costs_name
        chosen, reported = (half.steps()[comparison.metric] for half in (first, second))
        within = second.intervals()[comparison.metric]
        figures = zip(evaluation.slots, chosen, ratio, reported, within, strict=True)
        points += [Point(name, t, *figure) for t, figure in enumerate(figures, 1)]
    return Sweep(comparison.metric, points, comparison.unmet, how, scores, _varied(comparison), ann, costs)


def _varied(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Of each entry by name, the settings that are not the same in all; a point says its steps itself."""
    settings = {name: config.to_json() for name, (config, _) in comparison.entries.items()}
    every = list(settings.values())
    varied = [key for key in every[0] if key != "num_steps" and any(own[key] != every[0][key] for own in every)]
    return {name: {key: own[key] for key in varied} for name, own in settings.items()}
