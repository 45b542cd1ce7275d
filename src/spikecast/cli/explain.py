"""spikecast explain: which layers lose most, and what would help."""

from __future__ import annotations

from typing import Annotated

import typer

from spikecast.cli import common
from spikecast.cli.job import open_job
from spikecast.cli.options import JobOptions, OutputOptions, SettingOptions, grouped
from spikecast.cli.source import whole
from spikecast.measure import agreement


@grouped
def command(
    given: JobOptions,
    settings: SettingOptions,
    output: OutputOptions,
    most: Annotated[int, typer.Option(help="name so many layers", min=1)] = 5,
) -> None:
    """Compare MODEL with its spiking network layer by layer; the ones that lose most, and what would help them.

    \b
    spikecast explain demo:vit --data demo:digits --limit 64
    spikecast explain digits.spikecast --data demo:digits --steps 4 --most 3
    """
    job = open_job(given)
    config = job.config(settings, given.seed)
    network = whole(job.network(config), given.model)
    compared = agreement(job.source.model, network, job.counted("comparing layers"), num_steps=config.num_steps)
    common.skipped(job.batches)
    words = compared.explain(most)
    common.show(
        "\n".join([compared.table(), "", *words]),
        {**compared.to_json(), "explain": words},
        as_json=output.as_json,
        out=output.out,
    )
