"""spikecast reproduce: a table of the paper, published beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spikecast import distributed
from spikecast.cli import common
from spikecast.cli.job import Job, open_job
from spikecast.cli.options import (
    DataOptions,
    JobOptions,
    MachineOptions,
    MeasureOptions,
    OutputOptions,
    WeightOptions,
    grouped,
)
from spikecast.config import Config
from spikecast.experiments.reproduce import chosen_rows, reproduce
from spikecast.measure import Evaluation
from spikecast.paper import MODELS, Row, table
from spikecast.sources import SOURCES
from spikecast.storage.files import write_whole


@grouped
def command(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="main, cnn, transformer, coding, thresholds, detection, ...")
    ],
    data: DataOptions,
    weights: WeightOptions,
    machine: MachineOptions,
    measured: MeasureOptions,
    output: OutputOptions,
    models: Annotated[str, typer.Option("--models", help="only these, with commas between")] = "",
    levels: Annotated[str, typer.Option(help="only these numbers of levels, with commas between")] = "",
    max_steps: Annotated[int | None, typer.Option(help="only columns up to this T")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="write comma-separated values as well")] = None,
) -> None:
    """Measure the rows of a TABLE of the paper on your copy of its data: --data DIR, or KIND:DIR.

    \b
    spikecast reproduce cnn --models resnet34 --levels 4 --pretrained --data /data/imagenet --limit 1000
    spikecast reproduce detection --pretrained --data /data/coco --resume records --csv detection.csv
    """
    chosen = table(name)
    numbers = common.numbers(levels, "levels") if levels else []
    rows = chosen_rows(chosen, models=common.names(models), levels=numbers, max_steps=max_steps)
    known = data.data.partition(":")[0] in SOURCES
    place = data.data if known else f"{chosen.dataset}:{data.data}"
    opened: dict[str, Job] = {}

    def evaluate(row: Row, config: Config) -> Evaluation:
        if row.model not in opened:
            parts = {**vars(weights), **vars(data), **vars(machine), "data": place}
            opened[row.model] = open_job(JobOptions(model=MODELS[row.model].spec, **parts))
        # thresholds are those of the row's longest run; only the steps that are asked for are measured
        steps = config.num_steps if max_steps is None else min(config.num_steps, max_steps)
        label = f"{row.model} n={row.num_levels} {row.coding} {row.thresholds} x{row.threshold_scale:g}"
        return opened[row.model].evaluate(config, measured, steps=steps, label=label)

    reproduction = reproduce(name, chosen, rows, evaluate, max_steps=max_steps)
    for job in opened.values():
        common.skipped(job.batches)
    if csv is not None and distributed.world()[0] == 0:
        write_whole(csv, reproduction.to_csv())
    common.show(reproduction.table(), reproduction.to_json(), as_json=output.as_json, out=output.out)
