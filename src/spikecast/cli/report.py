"""spikecast report: one page about a model and its spiking networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from torch import Tensor

from spikecast import distributed
from spikecast.cli import checks, common
from spikecast.cli.job import Job, open_job
from spikecast.cli.options import JobOptions, JsonOption, SettingOptions, grouped
from spikecast.config import Coding
from spikecast.page.plots import write_plots
from spikecast.sources import Data, Preparation
from spikecast.text import many, printable, si

if TYPE_CHECKING:
    from spikecast.page import ReportData

COSTS = "paper"  # those that the page opens with
CODINGS: tuple[Coding, ...] = ("differential", "rate")


@grouped
def command(
    given: JobOptions,
    out: Annotated[Path, typer.Option("--out", help="the HTML file to write", callback=checks.ending(".html", ".htm"))],
    settings: SettingOptions,
    output: JsonOption,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            help="write the curves as .svg, .pdf or .png as well, for a paper",
            callback=checks.plot_to_write,
        ),
    ] = None,
) -> None:
    """Write one self-contained page about MODEL: curves, layers, spikes, disagreements.

    Of several steps it shows both codings side by side, unless --coding or --preset is given.

    \b
    spikecast report demo:cnn --data demo:digits --out digits.html
    spikecast report digits.spikecast --data demo:digits --limit 200 --out digits.html --plot curves.pdf
    """
    job = open_job(given)
    config = job.config(settings, given.seed)
    # At the first step rate and differential coding are the same.
    chosen = job.source.network is not None or settings.coding is not None or settings.preset is not None
    names = [config.coding] if chosen or config.num_steps == 1 else CODINGS
    networks = {name: job.network(dataclasses.replace(config, coding=name)) for name in names}
    page = built(job, networks, title=printable(given.model))
    common.skipped(job.batches)
    if distributed.world()[0] == 0:
        page.write_html(out)
        common.note(f"written to {out}")
        if plot is not None:
            write_plots(page, plot)
            common.note(f"written to {plot}")
    said = ("slots", "steps", "agreement", "intervals", "less_ann", "energy")
    figures = {n.name: {name: getattr(n, name) for name in said} for n in page.networks}
    words = _head(page)
    data = {"out": str(out), "ann": page.ann, "headline": words, **figures}
    common.show("\n".join([words, *_lines(page)]), data, as_json=output.as_json)


def _lines(page: ReportData) -> list[str]:
    """The figures of each network after its last step, and those of the ANN."""
    name, unit = page.metric, page.how.unit
    lines = []
    for n in page.networks:
        figure = n.intervals[name][-1].text(n.steps[name][-1], unit)
        same = n.intervals["agreement"][-1].text(n.agreement[-1])
        steps = f"T = {len(n.agreement)}, {many(n.slots[-1], 'slot')}"
        lines.append(f"{n.name}: {name} {figure}, agreement {same} at {steps}")
    return [*lines, f"ANN: {name} {page.ann_interval.text(page.ann[name], unit)}; 95 % intervals"]


def _head(page: ReportData) -> str:
    """What the page begins with, in one line."""
    from spikecast.page.headline import headline  # the page comes late, with what draws it

    found = headline(page, COSTS)
    network = page.networks[found.place]
    energy, last = network.energy[COSTS], len(network.agreement)
    ratio, spent = energy["ratio"], si(energy["snn"][found.step - 1], "J")
    share = f"{spent} a sample" if ratio is None else f"{ratio[found.step - 1]:.1%} of the ANN's energy"
    cost = f"for {share} (costs: {COSTS})"
    if found.holds:
        when = "after one step" if last == 1 else f"from step {found.step} on"
        return f"{network.name}: {when} as good as the ANN within the 95 % interval, {cost}"
    begin = "at no step as good as the ANN within the 95 % interval"
    if not found.known:
        begin = "too few samples to say from which step on it is as good as the ANN"
    return f"{begin}; nearest comes {network.name} after step {found.step}, {cost}"


def built(job: Job, networks: Mapping[Any, Any], *, title: str) -> ReportData:
    """The report of some networks of a job, with pictures that look as the images did."""
    from spikecast.page import build

    data = job.batches if isinstance(job.batches, Data) else None
    is_prepared = data is not None and job.source.takes_images  # others are made ready in a way of their own
    prepared = job.source.preparation
    return build(
        job.source.model,
        networks,
        job.counted("measuring"),
        title=title,
        task=job.task,
        classes=class_names([] if data is None else data.classes, job.source.classes),
        to_pixels=(lambda x: pixels(x, prepared)) if is_prepared else None,
    )


def class_names(of_data: Sequence[str], of_model: Sequence[str]) -> list[str]:
    """Names of the classes: those of the data, and those of the model where the data has none but numbers."""
    own = [name if name != str(i) else "" for i, name in enumerate(of_data)]
    known = list(of_model) if not own or len(of_model) == len(own) else [str(i) for i in range(len(own))]
    return [name or known[i] for i, name in enumerate(own)] if own else known


def pixels(image: Tensor, prepared: Preparation) -> Tensor:
    """An image as it was before mean and std, in 0..1."""
    mean, std = (torch.tensor(v, device=image.device).reshape(-1, 1, 1) for v in (prepared.mean, prepared.std))
    return (image * std + mean).clamp(0, 1)
