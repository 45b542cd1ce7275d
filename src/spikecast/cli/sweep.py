"""spikecast sweep: many settings, the ones that none beats, and the best under a budget."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from spikecast.cli import common
from spikecast.cli.convert import Steps
from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.experiments.compare import compare
from spikecast.experiments.sweep import Sweep, grid, sweep_of


def command(
    model: common.ModelSpec,
    data: common.DataSpec,
    levels: Annotated[str, typer.Option(help="thresholds per sign, with commas between")] = "2,4,8",
    coding: Annotated[str, typer.Option(help="codings, with commas between")] = "differential",
    thresholds: Annotated[str, typer.Option(help="methods, with commas between")] = "quantile,search",
    scale: Annotated[str, typer.Option(help="threshold scales, with commas between")] = "1",
    steps: Steps = 8,
    budget: Annotated[str, typer.Option(help="energy=0.3 (of the ANN's) and/or steps=4, with a comma between")] = "",
    weights: common.Weights = None,
    pretrained: common.Pretrained = False,
    classes: common.Classes = None,
    trust: common.Trust = False,
    size: common.Size = None,
    limit: common.Limit = None,
    calibrate: common.Images = 100,
    batch_size: common.BatchSize = 32,
    skip_corrupt: common.Skip = False,
    device: common.Device = "cpu",
    costs: common.Costs = "paper",
    resume: common.Resume = None,
    as_json: common.AsJson = False,
    out: common.Out = None,
) -> None:
    """Try every combination of settings on MODEL; each step of each is a point of accuracy, energy and latency.

    spikecast sweep torchvision:resnet18 --pretrained --data imagenet:/data/imagenet --limit 500 --budget energy=0.3
    """
    limits = _budget(budget)
    settings: dict[str, list[Any]] = {
        "num_levels": common.numbers(levels, "levels"),
        "coding": [c.strip() for c in coding.split(",")],
        "thresholds": [t.strip() for t in thresholds.split(",")],
        "threshold_scale": [_number(s, "scale") for s in scale.split(",")],
    }
    configs = grid(Config(num_steps=steps), settings)
    job = common.job(
        model, data, weights=weights, pretrained=pretrained, classes=classes, trust=trust, size=size, limit=limit,
        batch_size=batch_size, calibrate=calibrate, skip_corrupt=skip_corrupt, device=device,
    )  # fmt: skip
    total = len(job.batches) * len(configs) if hasattr(job.batches, "__len__") else None
    with common.progress(total) as done:
        found = sweep_of(
            compare(
                job.model,
                job.calibration,
                job.data,
                configs,
                task=job.loaded.task,
                preset=costs,
                regions=job.loaded.regions,
                folder=resume,
                job=job.said,
                progress=lambda name, images: done(images, name),
            )
        )
    common.skipped(job.batches)
    common.show(*_answer(found, limits), as_json=as_json, out=out)


def _answer(found: Sweep, limits: dict[str, Any]) -> tuple[str, Any]:
    table, data = found.table(), found.to_json()
    if limits:
        best = found.within(**limits)
        table += f"\nbest within the budget: {best.name}, T = {best.num_steps}: {best.metric:.2%} at {best.energy:.1%}"
        data["best"] = {"name": best.name, "num_steps": best.num_steps, "metric": best.metric, "energy": best.energy}
    return table, data


def _budget(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if name not in ("energy", "steps"):
            raise ConfigError(f"--budget {part!r}: give energy=SHARE of the ANN's, steps=NUMBER, or both")
        found["energy" if name == "energy" else "num_steps"] = _number(value, "budget")
    return found


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"--{name}: {text!r} is not a number") from error
