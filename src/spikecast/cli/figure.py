"""spikecast figure: the figures of the paper, drawn again on a network and data of your own."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Annotated

import typer

from spikecast.cli import common
from spikecast.cli.compare import side_by_side
from spikecast.cli.job import open_job
from spikecast.cli.options import CURVE, MaybeMeasuredOptions, grouped
from spikecast.errors import ConfigError
from spikecast.page.neuron_plots import write_fits
from spikecast.paper.figures import CODINGS, NAMES, WAYS, figure_configs, fit, fits_table


@grouped
def command(
    name: Annotated[
        str, typer.Argument(metavar="FIGURE", help="fit (Figure 2), coding (Figure 4) or thresholds (Figure 5)")
    ],
    given: MaybeMeasuredOptions,
    levels: Annotated[
        str, typer.Option("--levels", "-n", help="thresholds per sign, with commas between; 4,8, and for fit 1")
    ] = "",
    steps: Annotated[
        int | None, typer.Option("--steps", "-T", help=f"time-steps; {CURVE} unless given, for fit 3")
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="multiplies the thresholds; unless given, as in the paper's figure")
    ] = None,
) -> None:
    """Draw a FIGURE of the paper: what a neuron fits, codings (DC, RC) or thresholds (TI, LA) side by side.

    \b
    spikecast figure fit --plot fit.svg --csv fit.csv
    spikecast figure fit --levels 1,4 --steps 4 --plot fit.pdf
    spikecast figure coding demo:cnn --data demo:digits --plot coding.svg --csv coding.csv
    spikecast figure thresholds timm:resnet34.a1_in1k --pretrained --data imagenet:/data/imagenet --plot thresholds.pdf
    """
    if name not in NAMES:
        raise ConfigError(f"figure {name!r} is not one of {', '.join(NAMES)}; give one of them")
    if name == "fit":
        _fit(given, levels or "1", 3 if steps is None else steps, scale)
        return
    if not given.model or not given.data:
        raise ConfigError(f"figure {name!r} is measured: give a MODEL and its --data")
    numbers = common.numbers(levels or "4,8", "levels")
    configs = partial(figure_configs, name, levels=numbers, num_steps=CURVE if steps is None else steps, scale=scale)
    configs(rectifiers=True)  # a wrong number is said before anything is read
    job = open_job(given)
    side_by_side(job, configs(rectifiers=job.has_rectifiers()), given, list(WAYS[name]))


def _fit(given: MaybeMeasuredOptions, levels: str, steps: int, scale: float | None) -> None:
    if given.model or given.data or scale is not None:
        raise ConfigError("figure 'fit' is of one neuron; leave MODEL, --data and --scale out")
    fits = [fit(coding, num_levels=n, num_steps=steps) for coding in CODINGS for n in common.numbers(levels, "levels")]
    common.figures(given, partial(write_fits, fits), lambda: [row for one in fits for row in one.rows()])
    data = [dataclasses.asdict(one) for one in fits]
    common.show(fits_table(fits), data, as_json=given.as_json, out=given.out)
