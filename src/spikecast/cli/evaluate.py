"""spikecast eval: accuracy, agreement and energy after each step."""

from __future__ import annotations

from typing import Any

from spikecast.cli import common
from spikecast.cli.convert import Coding, Levels, Scale, Steps, Thresholds
from spikecast.config import Config
from spikecast.experiments.resume import evaluate_all
from spikecast.measure import Evaluator
from spikecast.pipeline import convert


def command(
    model: common.ModelSpec,
    data: common.DataSpec,
    steps: Steps = 8,
    levels: Levels = 8,
    coding: Coding = "differential",
    thresholds: Thresholds = "auto",
    scale: Scale = 1.0,
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
    """Convert MODEL and measure it on --data, beside the model itself.

    spikecast eval timm:vit_tiny_patch16_224 --pretrained --data imagenet:/data/imagenet --limit 1000
    """
    config = Config(
        num_steps=steps,
        num_levels=levels,
        coding=coding,  # type: ignore[arg-type]
        thresholds=thresholds,  # type: ignore[arg-type]
        threshold_scale=scale,
    )
    job = common.job(
        model, data, weights=weights, pretrained=pretrained, classes=classes, trust=trust, size=size, limit=limit,
        batch_size=batch_size, calibrate=calibrate, skip_corrupt=skip_corrupt, device=device,
    )  # fmt: skip
    regions = job.loaded.regions

    def network() -> Any:
        if regions is None:
            return convert(job.model, job.calibration(), config)
        return convert(job.model, job.calibration(), config, regions=regions)

    evaluator = Evaluator(network, job.loaded.task, model=job.model, preset=costs, num_steps=steps)
    with common.progress(len(job.batches) if hasattr(job.batches, "__len__") else None) as done:
        found = evaluate_all(
            evaluator, job.data(), folder=resume, job={**job.said, "config": config.to_json()}, progress=done
        )
    common.skipped(job.batches)
    common.show(found.table(), found.to_json(), as_json=as_json, out=out)
