"""spikecast reproduce: a table of the paper, published beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from spikecast import distributed
from spikecast.cli import common
from spikecast.config import Config
from spikecast.data import SOURCES
from spikecast.experiments.reproduce import chosen_rows, reproduce
from spikecast.experiments.resume import evaluate_all
from spikecast.measure import Evaluation, Evaluator
from spikecast.pipeline import convert
from spikecast.zoo import MODELS, Row, table


def command(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="main, cnn, transformer, coding, thresholds, detection, ...")
    ],
    data: Annotated[str, typer.Option("--data", help="the folder of ImageNet, COCO or VOC; or KIND:DIR")],
    models: Annotated[str, typer.Option("--models", help="only these, with commas between")] = "",
    levels: Annotated[str, typer.Option(help="only these numbers of levels, with commas between")] = "",
    max_steps: Annotated[int | None, typer.Option(help="only columns up to this T")] = None,
    weights: common.Weights = None,
    pretrained: common.Pretrained = False,
    classes: common.Classes = None,
    size: common.Size = None,
    limit: common.Limit = None,
    calibrate: common.Images = 100,
    batch_size: common.BatchSize = 32,
    skip_corrupt: common.Skip = False,
    device: common.Device = "cpu",
    costs: common.Costs = "paper",
    resume: common.Resume = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="write comma-separated values as well")] = None,
    as_json: common.AsJson = False,
    out: common.Out = None,
) -> None:
    """Measure the rows of a TABLE of the paper on your copy of its data.

    spikecast reproduce cnn --models resnet34 --levels 4 --pretrained --data /data/imagenet --limit 1000
    """
    chosen = table(name)
    numbers = common.numbers(levels, "levels") if levels else []
    names = [m.strip() for m in models.split(",") if m.strip()]
    rows = chosen_rows(chosen, models=names, levels=numbers, max_steps=max_steps)
    spec = data if data.partition(":")[0] in SOURCES else f"{chosen.dataset}:{data}"
    opened: dict[str, common.Job] = {}

    def job_of(row: Row) -> common.Job:
        if row.model not in opened:
            opened[row.model] = common.job(
                MODELS[row.model].spec, spec, weights=weights, pretrained=pretrained, classes=classes, size=size,
                limit=limit, batch_size=batch_size, calibrate=calibrate, skip_corrupt=skip_corrupt, device=device,
            )  # fmt: skip
        return opened[row.model]

    def evaluate(row: Row, config: Config) -> Evaluation:
        # thresholds are those of the row's longest run; only the steps that are asked for are measured
        steps = config.num_steps if max_steps is None else min(config.num_steps, max_steps)
        return _evaluate(job_of(row), row, config, steps, costs, resume)

    found = reproduce(name, chosen, rows, evaluate, max_steps=max_steps)
    for job in opened.values():
        common.skipped(job.batches)
    if csv is not None and distributed.world()[0] == 0:
        common.write_whole(csv, found.to_csv())
    common.show(found.table(), found.to_json(), as_json=as_json, out=out)


def _evaluate(job: common.Job, row: Row, config: Config, steps: int, costs: str, resume: Path | None) -> Evaluation:
    regions = MODELS[row.model].regions

    def network() -> Any:
        if not regions:
            return convert(job.model, job.calibration(), config)
        return convert(job.model, job.calibration(), config, regions=regions)

    evaluator = Evaluator(network, job.loaded.task, model=job.model, preset=costs, num_steps=steps)
    label = f"{row.model} n={row.num_levels} {row.coding} {row.thresholds} x{row.threshold_scale:g}"
    folder = None if resume is None else resume / label.replace(" ", "-")
    said = {**job.said, "config": config.to_json(), "steps": steps}
    with common.progress(len(job.batches)) as done:
        return evaluate_all(evaluator, job.data(), folder=folder, job=said, progress=lambda images: done(images, label))
