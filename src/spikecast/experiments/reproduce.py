"""A table of the paper measured again: what was published beside what comes out here."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.measure.evaluate import Evaluation
from spikecast.paper import Row, Table
from spikecast.text import columns

HEAD = ("model", "n", "coding", "thresholds", "c", "T", "published", "measured", "energy published", "energy measured")


@dataclass(frozen=True)
class Cell:
    """One column of one row: percent and energy ratio, as published and as measured."""

    row: Row
    num_steps: int
    published: float | None
    measured: float
    published_energy: float | None
    measured_energy: float | None

    def fields(self) -> tuple[str, ...]:
        r = self.row
        settings = (r.model, r.num_levels, r.coding, r.thresholds, f"{r.threshold_scale:g}", self.num_steps)
        figures = (self.published, self.measured, self.published_energy, self.measured_energy)
        return (*map(str, settings), *("" if x is None else f"{x:.2f}" for x in figures))


@dataclass(frozen=True)
class Reproduction:
    """The cells that were measured, and the ANNs."""

    name: str
    metric: str
    cells: list[Cell]
    anns: dict[str, tuple[float, float]]  # by model: published, measured
    samples: int

    def table(self) -> str:
        """Published beside measured."""
        lines = [f"{model}: ANN {ours:.2f} here, {theirs:.2f} published" for model, (theirs, ours) in self.anns.items()]
        note = f"{self.metric} in percent of {self.samples} images, energy over the ANN's; T steps are T pulse slots"
        return "\n".join([columns([HEAD, *(c.fields() for c in self.cells)]), note, *lines])

    def to_csv(self) -> str:
        """The same as comma-separated values."""
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(HEAD)
        writer.writerows(c.fields() for c in self.cells)
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        cells = [dict(zip(HEAD, c.fields(), strict=True)) for c in self.cells]
        return {"table": self.name, "metric": self.metric, "samples": self.samples, "anns": self.anns, "cells": cells}


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


def reproduce(
    name: str,
    table: Table,
    rows: Iterable[Row],
    evaluate: Callable[[Row, Config], Evaluation],
    *,
    max_steps: int | None = None,
) -> Reproduction:
    """Measure rows of a table; `evaluate` converts a row's model with a configuration and runs the data through it."""
    cells: list[Cell] = []
    anns: dict[str, tuple[float, float]] = {}
    samples = 0
    for row in rows:
        config = row.config()
        last = config.num_steps if max_steps is None else min(config.num_steps, max_steps)
        evaluation = evaluate(row, config)
        samples = evaluation.samples
        if evaluation.ann is not None:
            anns[row.model] = (row.ann, 100 * evaluation.ann[table.metric])
        ratios = None if evaluation.energy is None else evaluation.energy.ratio
        for t, metric, energy in zip(row.steps, row.metric, row.energy, strict=True):
            if t <= last:
                ratio = None if ratios is None else ratios[t - 1]
                cells.append(Cell(row, t, metric, 100 * evaluation.steps[table.metric][t - 1], energy, ratio))
    return Reproduction(name, table.metric, cells, anns, samples)
