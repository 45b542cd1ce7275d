"""A table of the paper measured again: what was published beside what comes out here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.measure.evaluate import Evaluation
from spikecast.page.plots import Curve
from spikecast.paper import Row, Table
from spikecast.paper.published import published_config
from spikecast.text import columns

HEAD = ("model", "n", "coding", "thresholds", "c", "T", "published", "measured", "energy published", "energy measured")
RANDOM = "random weights: the figures say nothing of the method"
PUBLISHED = "converted as the authors' code does it, not as the paper says"


@dataclass(frozen=True)
class Cell:
    """One column of one row: percent and energy ratio, published and measured, and 95 % of what was measured."""

    row: Row
    num_steps: int
    published: float | None
    measured: float
    published_energy: float | None
    measured_energy: float | None
    interval: tuple[float, float]

    def fields(self) -> tuple[Any, ...]:
        """What HEAD names, in full precision."""
        r = self.row
        settings = (r.model, r.num_levels, r.coding, r.thresholds, r.threshold_scale, self.num_steps)
        return (*settings, self.published, self.measured, self.published_energy, self.measured_energy)

    def texts(self) -> tuple[str, ...]:
        """The same for people."""
        settings, figures = self.fields()[:6], self.fields()[6:]
        words = [f"{x:g}" if isinstance(x, float) else str(x) for x in settings]
        published, measured, *energies = ("" if x is None else f"{x:.2f}" for x in figures)
        low, high = self.interval
        return (*words, published, f"{measured} ({low:.2f} to {high:.2f})", *energies)


@dataclass(frozen=True)
class Reproduction:
    """The cells that were measured, and the ANNs.

    Every row says whether the ANNs had random weights, and whether it was converted as the authors' code does it.
    """

    name: str
    metric: str
    cells: list[Cell]
    anns: dict[str, tuple[float, float]]  # by model: published, measured
    samples: int
    is_random: bool = False
    as_published: bool = False

    def table(self) -> str:
        """Published beside measured."""
        lines = [f"{model}: ANN {ours:.2f} here, {theirs:.2f} published" for model, (theirs, ours) in self.anns.items()]
        note = f"{self.metric} in percent of {self.samples} images, with 95 % intervals; energy over the ANN's; "
        note += "T steps are T pulse slots"
        marks = ((), ()) if not self.is_random else (("",), ("random weights",))
        rows = [(*HEAD, *marks[0]), *((*c.texts(), *marks[1]) for c in self.cells)]
        said = [*([PUBLISHED] if self.as_published else []), *([RANDOM] if self.is_random else [])]
        return "\n".join([columns(rows), note, *lines, *said])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The cells in full precision; each says whether the weights were trained, and whose settings it has."""
        marks = {
            "weights": "random" if self.is_random else "trained",
            "settings": "authors' code" if self.as_published else "paper",
        }
        names = [*(name.replace(" ", "_") for name in HEAD), "measured_low", "measured_high"]
        return [{**dict(zip(names, (*c.fields(), *c.interval), strict=True)), **marks} for c in self.cells]

    @property
    def curves(self) -> list[Curve]:
        """What was measured of each row, and beside it what was published; named by what tells the rows apart."""
        made = []
        rows = list(dict.fromkeys(cell.row for cell in self.cells))
        words = [row_name(row).split() for row in rows]
        kept = [i for i, column in enumerate(zip(*words, strict=True)) if i < 2 or len(set(column)) > 1]
        for row, own in zip(rows, words, strict=True):
            cells = [cell for cell in self.cells if cell.row == row]
            points = [(c.num_steps, c.published, c.published_energy) for c in cells]
            published = _curve("_", [point for point in points if None not in point])
            measured = _curve(
                " ".join(own[i] for i in kept), [(c.num_steps, c.measured, c.measured_energy) for c in cells]
            )
            bands = [(c.interval[0] / 100, c.interval[1] / 100) for c in cells]
            known = published if published.values else None
            made.append(dataclasses.replace(measured, intervals=bands, published=known))
        return made

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        figures = {"metric": self.metric, "samples": self.samples, "anns": self.anns}
        return {"table": self.name, **figures, "cells": self.rows}


def row_name(row: Row) -> str:
    """A row of a table in a few words."""
    return f"{row.model} n={row.num_levels} {row.coding} {row.thresholds} x{row.threshold_scale:g}"


def _curve(name: str, points: Sequence[tuple[int, Any, Any]]) -> Curve:
    """Points of (T, percent, energy ratio); one spike a step, so a step is a slot. "_" gets no entry of its own."""
    steps = [t for t, _, _ in points]
    ratio = [energy for _, _, energy in points]
    return Curve(name, [x / 100 for _, x, _ in points], steps, None if None in ratio else ratio, steps=steps)


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
    as_published: bool = False,
) -> Reproduction:
    """Measure rows of a table; `evaluate` converts a row's model with a configuration and runs the data through it.

    With `as_published` a row has the settings of the authors' code, else those of the paper.
    """
    settings = published_config if as_published else Row.config
    cells: list[Cell] = []
    anns: dict[str, tuple[float, float]] = {}
    samples = 0
    for row in rows:
        last = steps_of(row, max_steps)
        evaluation = evaluate(row, settings(row))
        samples = evaluation.samples
        if evaluation.ann is not None:
            anns[row.model] = (row.ann, 100 * evaluation.ann[table.metric])
        ratios = None if evaluation.energy is None else evaluation.energy.ratio
        bands = _intervals(evaluation, table.metric, [t for t in row.steps if t <= last])
        for t, metric, energy in zip(row.steps, row.metric, row.energy, strict=True):
            if t <= last:
                ratio = None if ratios is None else ratios[t - 1]
                cells.append(Cell(row, t, metric, 100 * evaluation.steps[table.metric][t - 1], energy, ratio, bands[t]))
    return Reproduction(name, table.metric, cells, anns, samples, is_random, as_published)


def _intervals(evaluation: Evaluation, metric: str, steps: Sequence[int]) -> dict[int, tuple[float, float]]:
    """95 % after some steps, in percent; those of boxes take long, so no other steps are drawn anew."""
    notes = [evaluation.scores.notes[t - 1] for t in steps]
    found = dataclasses.replace(evaluation.scores, notes=notes, ann=None, same=None).intervals()[metric]
    return {t: (100 * low, 100 * high) for t, (low, high) in zip(steps, found, strict=True)}


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
