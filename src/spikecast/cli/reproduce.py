"""spikecast reproduce: a table of the paper, published beside measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spikecast.cli import common
from spikecast.cli.job import Job, open_job
from spikecast.cli.options import (
    DataOptions,
    FigureOptions,
    JobOptions,
    MachineOptions,
    MeasureOptions,
    OutputOptions,
    WeightOptions,
    grouped,
)
from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.experiments.reproduce import Reproduction, chosen_rows, published, reproduce, row_name, steps_of
from spikecast.measure import Evaluation
from spikecast.page.plots import write_curves
from spikecast.paper import MODELS, Row, table
from spikecast.paper.published import PREPARED, deviations
from spikecast.sources import SOURCES


@dataclass(frozen=True, kw_only=True)
class TableData(DataOptions):
    """The data of a table; one that only repeats published figures needs none."""

    data: Annotated[str, typer.Option(help="the folder of the table's data, or KIND:DIR")] = ""


AsPublished = Annotated[
    bool,
    typer.Option(
        "--as-published",
        help="as the authors' code does it where it differs from the paper; quantiles depend on --batch-size",
    ),
]


@grouped
def command(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="main, cnn, transformer, coding, thresholds, detection, ...")
    ],
    data: TableData,
    weights: WeightOptions,
    machine: MachineOptions,
    measured: MeasureOptions,
    output: OutputOptions,
    figures: FigureOptions,
    models: Annotated[str, typer.Option("--models", help="only these, with commas between")] = "",
    levels: Annotated[str, typer.Option(help="only these numbers of levels, with commas between")] = "",
    max_steps: Annotated[int | None, typer.Option(help="only columns up to this T")] = None,
    as_published: AsPublished = False,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="measure without trained weights; every row says so")
    ] = False,
) -> None:
    """Measure the rows of a TABLE of the paper on your copy of its data: --data DIR, or KIND:DIR.

    \b
    spikecast reproduce cnn --models resnet34 --levels 4 --pretrained --data /data/imagenet --limit 1000
    spikecast reproduce detection --pretrained --data /data/coco --resume records --csv detection.csv
    spikecast reproduce transformer --models vit_small --as-published --pretrained --data /data/imagenet --plot vit.svg
    spikecast reproduce comparison
    """
    chosen = table(name)
    _refuse_ignored(name, data, figures, as_published)
    if not chosen.rows:
        common.show(published(chosen), dataclasses.asdict(chosen), as_json=output.as_json, out=output.out)
        return
    place = _place(name, data)
    numbers = common.numbers(levels, "levels") if levels else []
    rows = chosen_rows(chosen, models=common.names(models), levels=numbers, max_steps=max_steps)
    _want_weights(weights, random_weights)
    opened: dict[str, Job] = {}
    _announce(name, [steps_of(row, max_steps) for row in rows], deviations(rows) if as_published else [])

    def evaluate(row: Row, config: Config) -> Evaluation:
        if row.model not in opened:
            parts = {**vars(weights), **vars(data), **vars(machine), "data": place}
            options = JobOptions(model=MODELS[row.model].spec, **parts)
            prepared = PREPARED.get(row.model, {}) if as_published else {}
            job = opened[row.model] = open_job(options, prepared=prepared, calibrate_on_measured=as_published)
            own = [steps_of(other, max_steps) for other in rows if other.model == row.model]
            common.note(f"{row.model}, rows: {len(own)}; {job.expected(sum(own))}")
        label = row_name(row) + (" as published" if as_published else "")
        return opened[row.model].evaluate(config, measured, steps=steps_of(row, max_steps), label=label)

    reproduction = reproduce(
        name, chosen, rows, evaluate, max_steps=max_steps, is_random=random_weights, as_published=as_published
    )
    for job in opened.values():
        common.skipped(job.batches)
    common.figures(figures, partial(_draw, reproduction, measured.costs), lambda: reproduction.rows)
    common.show(reproduction.table(), reproduction.to_json(), as_json=output.as_json, out=output.out)


def _refuse_ignored(name: str, data: TableData, figures: FigureOptions, as_published: bool) -> None:
    """Refuse options that would have no effect."""
    if not table(name).rows and (figures.plot or figures.csv or as_published):
        raise ConfigError(f"table {name!r} has only published figures; leave --plot, --csv, --as-published out")
    if as_published and data.calibrate != DataOptions.calibrate:
        raise ConfigError(
            f"--calibrate {data.calibrate}: with --as-published thresholds come from all images that are measured; "
            "leave it out, or give --limit"
        )


def _place(name: str, data: TableData) -> str:
    """The data as KIND:DIR; the table says the kind where it is left out."""
    dataset = table(name).dataset
    if not data.data:
        raise ConfigError(f"table {name!r} is measured on {dataset}; give its folder with --data DIR")
    return data.data if data.data.partition(":")[0] in SOURCES else f"{dataset}:{data.data}"


def _announce(name: str, steps: Sequence[int], changes: Sequence[str]) -> None:
    """How much there is to do, and what of it is not as the paper has it."""
    common.note(f"rows of table {name!r}: {len(steps)}, with {sum(steps)} steps of each image in all")
    for change in changes:
        common.note(f"as published: {change}")


def _draw(reproduction: Reproduction, costs: str, path: Path) -> None:
    """Measured beside published; with one model, the ANN's figure as a line."""
    anns = [ours / 100 for _, ours in reproduction.anns.values()]
    write_curves(reproduction.curves, path, reproduction.metric, ann=anns[0] if len(anns) == 1 else None, costs=costs)


def _want_weights(weights: WeightOptions, random_weights: bool) -> None:
    trained = weights.pretrained or weights.weights is not None
    if trained and random_weights:
        raise ConfigError("--random-weights goes with neither --pretrained nor --weights; leave one out")
    if not trained and not random_weights:
        raise ConfigError(
            "a table needs trained weights: say --pretrained, or --weights FILE (--random-weights to try it out)"
        )
