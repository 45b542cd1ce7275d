"""spikecast eval: accuracy, agreement and energy after each step."""

from __future__ import annotations

from typing import Annotated

import typer

from spikecast.cli import checks, common
from spikecast.cli.job import open_job
from spikecast.cli.options import MeasuredOptions, SettingOptions, grouped
from spikecast.page.plots import write_evaluations


@grouped
def command(
    given: MeasuredOptions,
    settings: SettingOptions,
    time_axis: Annotated[
        int | None,
        typer.Option(
            help="axis of the inputs that holds frames, one for each step; the ANN takes their mean",
            callback=checks.at_least(1, "axis 0 is the batch"),
        ),
    ] = None,
    ops: Annotated[
        bool, typer.Option("--ops", help="say also where the energy goes, op by op (--json always does)")
    ] = False,
) -> None:
    """Convert MODEL and measure it on --data, beside the model itself; or measure a FILE.spikecast.

    \b
    spikecast eval demo:vit --data demo:digits --steps 4
    spikecast eval digits.spikecast --data demo:digits
    spikecast eval demo:vit --data demo:digits --ops --costs full
    spikecast eval demo:cnn --data demo:digits --steps 8 --plot curve.pdf --csv curve.csv
    spikecast eval timm:vit_tiny_patch16_224 --pretrained --data imagenet:/data/imagenet --limit 1000
    spikecast eval mine.py:yolo --data mine.py:images --task mine.py:boxes --trust
    spikecast eval mine.py:net --data mine.py:events --time-axis 1 --steps 10 --trust
    """
    job = open_job(given, time_axis)
    evaluation = job.evaluate(job.config(settings, given.seed), given)
    common.skipped(job.batches)
    common.figures(
        given,
        lambda path: write_evaluations({given.model: evaluation}, path, costs=given.costs),
        evaluation.rows,
    )
    table = evaluation.table()
    if ops and evaluation.energy is not None:
        table += f"\n\n{evaluation.energy.table(ops=True)}"
    common.show(table, evaluation.to_json(), as_json=given.as_json, out=given.out)
