"""spikecast compare: methods of the literature and ours, side by side on one model."""

from __future__ import annotations

from typing import Annotated

import typer

from spikecast.cli import common
from spikecast.cli.convert import Steps
from spikecast.experiments.compare import compare, preset_configs


def command(
    model: common.ModelSpec,
    data: common.DataSpec,
    presets: Annotated[str, typer.Option(help="dcgs, ecmt, snm, ts and ours, with commas between")] = "dcgs,ecmt,ours",
    levels: Annotated[str, typer.Option(help="thresholds per sign, with commas between")] = "4,8",
    steps: Steps = 8,
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
    """Convert MODEL by several methods and measure all on the same images.

    spikecast compare torchvision:vgg16_bn --pretrained --data imagenet:/data/imagenet --presets dcgs,snm,ours
    """
    job = common.job(
        model, data, weights=weights, pretrained=pretrained, classes=classes, trust=trust, size=size, limit=limit,
        batch_size=batch_size, calibrate=calibrate, skip_corrupt=skip_corrupt, device=device,
    )  # fmt: skip
    names = [name.strip() for name in presets.split(",") if name.strip()]
    configs = preset_configs(job.model, names, levels=common.numbers(levels, "levels"), num_steps=steps)
    total = len(job.batches) * len(configs) if hasattr(job.batches, "__len__") else None
    with common.progress(total) as done:
        found = compare(
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
    common.skipped(job.batches)
    common.show(found.table(), found.to_json(), as_json=as_json, out=out)
