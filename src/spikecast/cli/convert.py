"""spikecast convert: a model becomes a spiking network in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from spikecast import distributed
from spikecast.cli import common
from spikecast.config import Config
from spikecast.pipeline import convert

Steps = Annotated[int, typer.Option("--steps", "-T", help="time-steps")]
Levels = Annotated[
    int, typer.Option("--levels", "-n", help="thresholds per sign of a neuron; 1 is the signed IF neuron")
]
Coding = Annotated[str, typer.Option(help="differential or rate")]
Thresholds = Annotated[str, typer.Option(help="auto, iteration, iteration_paper, quantile or search")]
Scale = Annotated[float, typer.Option(help="multiplies the thresholds")]


def command(
    model: common.ModelSpec,
    data: common.DataSpec,
    out: Annotated[Path, typer.Option("--out", help="the file to write")],
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
    calibrate: common.Images = 100,
    batch_size: common.BatchSize = 32,
    skip_corrupt: common.Skip = False,
    device: common.Device = "cpu",
    seed: Annotated[int, typer.Option(help="of what is drawn at random")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="refuse ops that would not be fed by spikes")] = False,
    as_json: common.AsJson = False,
) -> None:
    """Convert MODEL with images of --data and write the network to --out.

    spikecast convert torchvision:resnet18 --weights resnet18.pt --data imagefolder:images --out resnet18.spikecast
    """
    config = Config(
        num_steps=steps,
        num_levels=levels,
        coding=coding,  # type: ignore[arg-type]
        thresholds=thresholds,  # type: ignore[arg-type]
        threshold_scale=scale,
        seed=seed,
    )
    job = common.job(
        model, data, weights=weights, pretrained=pretrained, classes=classes, trust=trust, size=size,
        batch_size=batch_size, calibrate=calibrate, skip_corrupt=skip_corrupt, device=device,
    )  # fmt: skip
    regions = job.loaded.regions
    network: Any = (
        convert(job.model, job.calibration(), config, strict=strict)
        if regions is None
        else convert(job.model, job.calibration(), config, strict=strict, regions=regions)
    )
    common.skipped(job.batches)
    if distributed.world()[0] == 0:
        network.save(out)
    common.note(f"written to {out}")
    common.show(str(network.report), network.report.to_json(), as_json=as_json, out=None)
