"""spikecast bench: how long the spiking network takes beside the model, on this machine."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer

from spikecast.cli import checks, common
from spikecast.cli.inspect import Shape
from spikecast.cli.options import BatchSize, MachineOptions, ModelOptions, OutputOptions, SettingOptions, grouped
from spikecast.cli.source import on_random_inputs, open_source
from spikecast.conversion.pipeline import convert
from spikecast.errors import ConfigError
from spikecast.experiments.compare import has_rectifiers
from spikecast.progress import progress
from spikecast.sources import samples
from spikecast.text import columns, many


@grouped
def command(
    model: ModelOptions,
    settings: SettingOptions,
    machine: MachineOptions,
    output: OutputOptions,
    batch_size: BatchSize = 4,
    rounds: Annotated[
        int,
        typer.Option(
            help="times each is run; the median counts", callback=checks.at_least(1, "there would be nothing to time")
        ),
    ] = 5,
    shape: Shape = "",
) -> None:
    """Time T steps of the spiking network against MODEL itself, on random inputs; wants an idle machine.

    \b
    spikecast bench demo:cnn --batch-size 32
    spikecast bench torchvision:resnet34
    spikecast bench torchvision:resnet34 --steps 8 --levels 4 --burst 1
    """
    source = open_source(model, machine)
    if source.regions is not None or source.task == "detection":
        raise ConfigError(f"{model.model} is converted by region; time the regions with a script of your own")
    batch = source.inputs(batch_size, shape)
    batch_size = samples(batch)  # a model that has an example is given that
    network = source.network
    if network is None:
        with on_random_inputs(source, shape):
            config = settings.config(machine.seed, lambda: has_rectifiers(source.model, [batch]))
            if "thresholds" not in settings.given and not config.has_goal:
                config = dataclasses.replace(config, thresholds="quantile")  # found at once, and a step takes as long
            network = convert(source.model, [batch], config)
    steps = settings.steps or network.config.num_steps
    slots = network.slots(steps)[-1]
    calls = batch if isinstance(batch, tuple) else (batch,)
    repeated = tuple(x.repeat(steps, *[1] * (x.dim() - 1)) for x in calls)
    images = many(batch_size, "image")
    runs: dict[str, Callable[[], Any]] = {
        f"ANN, {images}": lambda: source.model(*calls),
        f"SNN, {images}, T = {steps}, {many(slots, 'slot')}": lambda: network.run(*calls, num_steps=steps),
    }
    if steps > 1:
        runs[f"ANN, {many(batch_size * steps, 'image')}"] = lambda: source.model(*repeated)
    seconds = _medians(runs, rounds, source.device)
    table, data = _answer(seconds, batch_size, steps)
    common.show(table, {**data, "slots": slots}, as_json=output.as_json, out=output.out)


@torch.no_grad()
def _medians(runs: dict[str, Callable[[], Any]], rounds: int, device: torch.device) -> dict[str, float]:
    """Seconds of each; in turns, so that a busy moment of the machine meets all of them."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    with progress(rounds + 1, "timing", "rounds") as done:
        for number in range(rounds + 1):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                if number:  # the first is to warm up: kernels are compiled, memory is fetched
                    taken[name].append(time.perf_counter() - start)
            done(1)
    return {name: statistics.median(values) for name, values in taken.items()}


def _answer(seconds: dict[str, float], batch: int, steps: int) -> tuple[str, dict[str, Any]]:
    ann, snn, *more = seconds.values()
    same = more[0] if more else ann  # one step is as much arithmetic as the ANN itself
    rows = [("", "ms", "images/s")]
    for (name, taken), images in zip(seconds.items(), (batch, batch, batch * steps), strict=False):
        rows.append((name, f"{1e3 * taken:.2f}", f"{images / taken:.1f}"))
    lines = [columns(rows), f"the SNN takes {snn / ann:.2f} times as long as the ANN on the same images"]
    if more:
        lines.append(
            f"and {snn / same:.2f} times as long as the ANN on {steps} times as many, which is as much arithmetic"
        )
    lines.append(f"{many(torch.get_num_threads(), 'thread')}; medians")
    data = {
        "batch_size": batch,
        "num_steps": steps,
        "threads": torch.get_num_threads(),
        "seconds": {"ann": ann, "ann_same_arithmetic": same, "snn": snn},
        "ratio": snn / ann,
        "ratio_same_arithmetic": snn / same,
    }
    return "\n".join(lines), data
