"""A table of the paper measured again: what was published beside what comes out here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.measure.evaluate import Evaluation
from spikecast.paper import Row, Table
from spikecast.text import columns, comma_separated

HEAD = ("model", "n", "coding", "thresholds", "c", "T", "published", "measured", "energy published", "energy measured")
RANDOM = "random weights: the figures say nothing of the method"


@dataclass(frozen=True)
class Cell:
    """One column of one row: percent and energy ratio, as published and as measured."""

    row: Row
    num_steps: int
    published: float | None
    measured: float
    published_energy: float | None
    measured_energy: float | None

    def fields(self) -> tuple[Any, ...]:
        """What HEAD names, in full precision."""
        r = self.row
        settings = (r.model, r.num_levels, r.coding, r.thresholds, r.threshold_scale, self.num_steps)
        return (*settings, self.published, self.measured, self.published_energy, self.measured_energy)

    def texts(self) -> tuple[str, ...]:
        """The same for people."""
        settings, figures = self.fields()[:6], self.fields()[6:]
        words = [f"{x:g}" if isinstance(x, float) else str(x) for x in settings]
        return (*words, *("" if x is None else f"{x:.2f}" for x in figures))


@dataclass(frozen=True)
class Reproduction:
    """The cells that were measured, and the ANNs; `is_random` where these had random weights, which every row says."""

    name: str
    metric: str
    cells: list[Cell]
    anns: dict[str, tuple[float, float]]  # by model: published, measured
    samples: int
    is_random: bool = False

    def table(self) -> str:
        """Published beside measured."""
        lines = [f"{model}: ANN {ours:.2f} here, {theirs:.2f} published" for model, (theirs, ours) in self.anns.items()]
        note = f"{self.metric} in percent of {self.samples} images, energy over the ANN's; T steps are T pulse slots"
        marks = ((), ()) if not self.is_random else (("",), ("random weights",))
        rows = [(*HEAD, *marks[0]), *((*c.texts(), *marks[1]) for c in self.cells)]
        return "\n".join([columns(rows), note, *lines, *([RANDOM] if self.is_random else [])])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The cells in full precision; each says whether the weights were trained."""
        weights = "random" if self.is_random else "trained"
        return [{**dict(zip(HEAD, c.fields(), strict=True)), "weights": weights} for c in self.cells]

    def to_csv(self) -> str:
        """The same as comma-separated values."""
        return comma_separated(self.rows)

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        figures = {"metric": self.metric, "samples": self.samples, "anns": self.anns}
        return {"table": self.name, **figures, "cells": self.rows}


def chosen_rows(
    table: Table, *, models: Sequence[str] = (), levels: Sequence[int] = (), max_steps: int | None = None
) -> list[Row]:
    """The rows of some models and numbers of levels that have a result within some steps."""
    known = {row.model for row in table.rows}
    for model in models:
        if model not in known:
            raise ConfigError(
                f"the table has no model {model!r}; it has {', '.join(sorted(known)) or 'published figures only'}"
            )
    rows = [
        row
        for row in table.rows
        if (not models or row.model in models)
        and (not levels or row.num_levels in levels)
        and (max_steps is None or min(row.steps) <= max_steps)
    ]
    if not rows:
        raise ConfigError("no row of the table is left; choose fewer conditions, or a table with rows to measure")
    return rows


def steps_of(row: Row, max_steps: int | None) -> int:
    """How many steps of a row are measured; its thresholds are those of its longest run."""
    longest = row.config().num_steps
    return longest if max_steps is None else min(longest, max_steps)


def reproduce(
    name: str,
    table: Table,
    rows: Iterable[Row],
    evaluate: Callable[[Row, Config], Evaluation],
    *,
    max_steps: int | None = None,
    is_random: bool = False,
) -> Reproduction:
    """Measure rows of a table; `evaluate` converts a row's model with a configuration and runs the data through it."""
    cells: list[Cell] = []
    anns: dict[str, tuple[float, float]] = {}
    samples = 0
    for row in rows:
        config = row.config()
        last = steps_of(row, max_steps)
        evaluation = evaluate(row, config)
        samples = evaluation.samples
        if evaluation.ann is not None:
            anns[row.model] = (row.ann, 100 * evaluation.ann[table.metric])
        ratios = None if evaluation.energy is None else evaluation.energy.ratio
        for t, metric, energy in zip(row.steps, row.metric, row.energy, strict=True):
            if t <= last:
                ratio = None if ratios is None else ratios[t - 1]
                cells.append(Cell(row, t, metric, 100 * evaluation.steps[table.metric][t - 1], energy, ratio))
    return Reproduction(name, table.metric, cells, anns, samples, is_random)


def published(table: Table) -> str:
    """The lines of a table that has nothing to measure."""
    steps = sorted({t for line in table.published for t in line.steps})
    rows: list[Sequence[str]] = [["method", "type", "architecture", "params, M", "ANN", *(f"T={t}" for t in steps)]]
    for line in table.published:
        known = dict(zip(line.steps, line.metric, strict=True))
        figures = [known.get(t) for t in steps]
        cells = ["" if x is None else f"{x:.2f}" for x in (line.ann, *figures)]
        rows.append([line.method, line.type, line.arch, f"{line.params:g}", *cells])
    return f"{columns(rows)}\n{table.metric} in percent, as published in the paper"
