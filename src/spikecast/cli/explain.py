"""spikecast explain: which layers lose most, and what would help."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spikecast.cli import checks, common
from spikecast.cli.job import open_job
from spikecast.cli.options import FigureOptions, JobOptions, OutputOptions, SettingOptions, grouped
from spikecast.cli.source import whole
from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.measure import agreement
from spikecast.network.spiking import SpikingNetwork
from spikecast.page.neuron_plots import write_raster
from spikecast.page.plots import write_layers
from spikecast.page.traces import sample_of, trace
from spikecast.sources import Data


@grouped
def command(
    given: JobOptions,
    settings: SettingOptions,
    output: OutputOptions,
    figures: FigureOptions,
    most: Annotated[
        int, typer.Option(help="name so many layers", callback=checks.at_least(1, "there would be nothing to say"))
    ] = 5,
    raster: Annotated[
        Path | None,
        typer.Option(
            help="draw the spikes of one layer for one sample: .svg, .pdf or .png", callback=checks.plot_to_write
        ),
    ] = None,
    site: Annotated[str, typer.Option(help="of the raster; unless given, the layer that loses most")] = "",
    sample: Annotated[
        int,
        typer.Option(help="of the raster, counted from 0", callback=checks.at_least(0, "samples are counted from 0")),
    ] = 0,
) -> None:
    """Compare MODEL with its spiking network layer by layer; the ones that lose most, and what would help them.

    \b
    spikecast explain demo:vit --data demo:digits --limit 64
    spikecast explain digits.spikecast --data demo:digits --steps 4 --most 3 --plot layers.svg
    spikecast explain demo:cnn --data demo:digits --steps 4 --raster spikes.svg --site stem.2 --sample 7
    """
    if raster is None and (site or sample):
        raise ConfigError("--site and --sample are of the raster; say --raster FILE, or leave them out")
    job = open_job(given)
    count = len(job.batches) if isinstance(job.batches, Data) else None
    if count is not None and sample >= count:
        there = "is 1 image" if count == 1 else f"are {count} images"
        raise ConfigError(f"--sample {sample}: there {there}, counted from 0; give a lower one")
    config = job.config(settings, given.seed)
    network = whole(job.network(config), given.model)
    call, place = (None, 0) if raster is None else sample_of(_with_site(network, site), job.data(), sample)
    compared = agreement(job.source.model, network, job.counted("comparing layers"), num_steps=config.num_steps)
    common.skipped(job.batches)
    common.figures(figures, partial(write_layers, compared), compared.rows)
    if call is not None:
        shown = site or max(compared.sites, key=lambda s: s.own[-1]).site
        spikes = trace(network, shown, call, place, num_steps=config.num_steps)
        levels = network.neurons[shown].num_levels
        common.figures(FigureOptions(plot=raster), partial(write_raster, spikes, num_levels=levels), list)
    words = compared.explain(most)
    common.show(
        "\n".join([compared.table(), "", *words, *_energy(config)]),
        {**compared.to_json(), "explain": words},
        as_json=output.as_json,
        out=output.out,
    )


def _energy(config: Config) -> list[str]:
    """What the advice leaves out: it is about errors, and mostly costs energy."""
    now = "" if config.energy_budget is None else f", now {config.energy_budget:g}"
    return [
        f"for less energy: convert with --energy-budget SHARE (of the ANN's energy{now})",
        "where the energy goes: spikecast eval --ops, with the same MODEL and --data",
    ]


def _with_site(network: SpikingNetwork, site: str) -> SpikingNetwork:
    """The network, if it has the layer; without a name, if it has any."""
    if not network.sites:
        raise ConfigError("the network has no neurons, so there are no spikes to draw; leave --raster out")
    if site and site not in network.sites:
        raise ConfigError(f"--site {site!r} is no layer of neurons; there are {', '.join(network.sites)}")
    return network
