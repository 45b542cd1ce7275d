"""spikecast inspect: what would become of a model, without any data."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from spikecast.cli import checks, common
from spikecast.cli.convert import Strict
from spikecast.cli.options import JsonOption, MachineOptions, ModelOptions, grouped
from spikecast.cli.source import on_random_inputs, open_source
from spikecast.config import Config
from spikecast.conversion.pipeline import convert
from spikecast.errors import ConfigError
from spikecast.text import many

Shape = Annotated[
    str,
    typer.Option(help="sizes of one input without its batch, as in 1,28,28; else an image", callback=checks.shape),
]


@grouped
def command(
    model: ModelOptions,
    machine: MachineOptions,
    output: JsonOption,
    shape: Shape = "",
    strict: Strict = False,
) -> None:
    """Say what each op of MODEL would become and what a spike of each site costs, or what is in a FILE.spikecast.

    \b
    spikecast inspect torchvision:resnet18
    spikecast inspect mine.py:net --trust --shape 1,28,28
    spikecast inspect digits.spikecast --json
    """
    source = open_source(model, machine)
    network = source.network
    if shape or source.example is not None:
        source = dataclasses.replace(source, takes_images=False)
    if network is not None and (shape or strict):
        option = f"--shape {shape}" if shape else "--strict"
        raise ConfigError(f"{option} is for a model, and {model.model} is converted already; leave it out")
    if network is None:
        # The thresholds do not matter here; those that random inputs give are thrown away.
        config = Config(num_steps=1, thresholds="quantile")
        with on_random_inputs(source, shape):
            network = convert(source.model, [source.inputs(2, shape)], config, strict=strict, regions=source.regions)
    data: dict[str, Any] = {**source.about, **network.about, **network.report.to_json()}
    prepared = f"; {source.preparation}" if source.takes_images else ""
    lines = [f"{data['model']}: {data['task']}{prepared}"]
    if source.network is not None:
        data["config"] = network.config.to_json()
        data["neurons"] = {n: {"num_levels": s.num_levels, "burst": s.burst} for n, s in network.neurons.items()}
        lines += [f"converted: {settings(network.config)}", f"neurons: {common.neurons(network)}"]
        lines.append(f"T = {network.config.num_steps}, {many(network.slots()[-1], 'pulse slot')}")
    common.show("\n".join([str(network.report), *lines]), data, as_json=output.as_json)


def settings(config: Config) -> str:
    """A configuration in few words: what differs from the default, and the steps, levels and burst."""
    usual = Config().to_json()
    kept = ("num_steps", "num_levels", "burst", "coding")
    return ", ".join(f"{k}={v}" for k, v in config.to_json().items() if k in kept or v != usual[k])
