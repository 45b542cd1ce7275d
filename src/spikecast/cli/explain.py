"""spikecast explain: which layers lose most, and what would help."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from spikecast.cli import common
from spikecast.cli.job import open_job
from spikecast.cli.options import FigureOptions, JobOptions, OutputOptions, SettingOptions, grouped
from spikecast.cli.source import whole
from spikecast.measure import agreement
from spikecast.page.plots import check_plot, write_layers


@grouped
def command(
    given: JobOptions,
    settings: SettingOptions,
    output: OutputOptions,
    figures: FigureOptions,
    most: Annotated[int, typer.Option(help="name so many layers", min=1)] = 5,
) -> None:
    """Compare MODEL with its spiking network layer by layer; the ones that lose most, and what would help them.

    \b
    spikecast explain demo:vit --data demo:digits --limit 64
    spikecast explain digits.spikecast --data demo:digits --steps 4 --most 3 --plot layers.svg
    """
    check_plot(figures.plot)
    job = open_job(given)
    config = job.config(settings, given.seed)
    network = whole(job.network(config), given.model)
    compared = agreement(job.source.model, network, job.counted("comparing layers"), num_steps=config.num_steps)
    common.skipped(job.batches)
    common.figures(figures, partial(write_layers, compared), compared.rows)
    words = compared.explain(most)
    common.show(
        "\n".join([compared.table(), "", *words]),
        {**compared.to_json(), "explain": words},
        as_json=output.as_json,
        out=output.out,
    )
