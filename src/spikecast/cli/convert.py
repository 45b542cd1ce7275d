"""spikecast convert: a model becomes a spiking network in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spikecast.cli import checks, common
from spikecast.cli.job import open_job, save
from spikecast.cli.options import JobOptions, JsonOption, SettingOptions, grouped
from spikecast.cli.source import SUFFIX

Strict = Annotated[bool, typer.Option("--strict", help="refuse ops that would not be fed by spikes")]


@grouped
def command(
    given: JobOptions,
    out: Annotated[
        Path, typer.Option("--out", help="the file to write, which ends in .spikecast", callback=checks.ending(SUFFIX))
    ],
    settings: SettingOptions,
    output: JsonOption,
    strict: Strict = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="what became of every op, and why")] = False,
) -> None:
    """Convert MODEL with images of --data and write the network to --out.

    \b
    spikecast convert demo:cnn --data demo:digits --out digits.spikecast
    spikecast convert torchvision:resnet18 --weights resnet18.pt --data imagefolder:images --out resnet18.spikecast
    spikecast convert mine.py:net --trust --size 32 --mean 0.5 --std 0.25 --data imagefolder:images --out mine.spikecast
    """
    job = open_job(given)
    job.source.refuse_saved()
    network = job.network(job.config(settings, given.seed), strict=strict)
    common.skipped(job.calibrating)
    save(network, out)
    report = network.report
    text = str(report) if verbose else f"{report.brief(3)}\n--verbose says what became of every op"
    lines = [
        text,
        f"neurons: {common.neurons(network)}",
        f"T = {network.config.num_steps}, {network.slots()[-1]} pulse slots; what it is worth: "
        f"spikecast eval {out} --data {given.data}{' --trust' if given.trust else ''}",
    ]
    common.show("\n".join(lines), report.to_json(), as_json=output.as_json)
