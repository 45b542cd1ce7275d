"""spikecast sweep: many settings, the ones that none beats, and which to take under a budget."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from spikecast.cli import common
from spikecast.cli.job import open_job
from spikecast.cli.options import BURST, CURVE, METHODS, LevelList, MeasuredOptions, Steps, grouped
from spikecast.config import Config
from spikecast.errors import ConfigError
from spikecast.experiments.sweep import Point, Sweep, grid, sweep_of
from spikecast.text import many

GOAL = "--energy-budget {:g} also tries a conversion for that budget"


@grouped
def command(
    given: MeasuredOptions,
    levels: LevelList = "4,8",
    bursts: Annotated[str, typer.Option("--bursts", "--burst", help=f"{BURST}, with commas between")] = "1,2,3",
    coding: Annotated[str, typer.Option(help="codings, with commas between")] = "differential",
    thresholds: Annotated[str, typer.Option(help=f"{METHODS}, with commas between")] = "quantile,search",
    scale: Annotated[str, typer.Option(help="threshold scales, with commas between")] = "1",
    energy_budget: Annotated[
        str, typer.Option(help="shares of the ANN's energy to convert for as well, with commas between")
    ] = "",
    fidelity: Annotated[str, typer.Option(help="fidelities to convert for as well, with commas between")] = "",
    steps: Steps = CURVE,
    budget: Annotated[
        str, typer.Option(help="which to take within energy=0.3 (of the ANN's), steps=4, slots=6, with commas between")
    ] = "",
) -> None:
    """Try every combination of settings on MODEL; each step of each is a point of accuracy, energy and latency.

    \b
    spikecast sweep demo:cnn --data demo:digits --budget energy=0.3
    spikecast sweep demo:cnn --data demo:digits -T 2 --levels 8 --bursts 1,2,3 --energy-budget 0.1,0.2
    spikecast sweep torchvision:resnet18 --pretrained --data imagenet:/data/imagenet --limit 500 --budget steps=4
    """
    limits = _budget(budget)
    settings: dict[str, list[Any]] = {
        "num_levels": common.numbers(levels, "levels"),
        "burst": common.numbers(bursts, "bursts"),
        "coding": common.some_names(coding, "coding"),
        "thresholds": common.some_names(thresholds, "thresholds"),
        "threshold_scale": list(common.fractions(scale, "scale")),
    }
    base = Config(num_steps=steps, seed=given.seed)
    configs = grid(base, settings)
    for name, goals in (("energy_budget", energy_budget), ("fidelity", fidelity)):
        if goals:  # which choose levels, bursts and thresholds themselves
            configs |= grid(base, {name: common.fractions(goals, name.replace("_", "-"))})
    points = sweep_of(open_job(given).compare(configs, given))
    table, data = points.table(), points.to_json()
    hint = "" if energy_budget or "energy" not in limits else GOAL.format(limits["energy"])
    unmet: ConfigError | None = None
    try:
        found = points.within(**limits) if limits else None
    except ConfigError as error:  # said when all that was found is written
        found, unmet = None, ConfigError(f"{error}; {hint}" if hint else str(error))
    if found is not None:
        table += f"\n{_line(points, found.point)}: {found.text}"
        if found.cheaper is not None:
            table += f"\nthe cheapest of these: {_line(points, found.cheaper)}"
        table += hint and f"\n{hint}"
        cheaper = None if found.cheaper is None else dataclasses.asdict(found.cheaper)
        data["within the budget"] = {**dataclasses.asdict(found), "cheaper": cheaper}
    common.figures(given, points.write_plot, lambda: points.rows)
    common.show(table, data, as_json=given.as_json, out=given.out)
    if unmet is not None:
        raise unmet


def _line(points: Sweep, p: Point) -> str:
    """A point with its figures."""
    return f"{p.name}, T = {p.num_steps}, {many(p.slots, 'slot')}: {points.text(p)} at {p.energy:.1%}"


def _budget(text: str) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if name not in ("energy", "steps", "slots"):
            raise ConfigError(
                f"--budget {part!r}: give energy=SHARE of the ANN's, steps=NUMBER, slots=NUMBER, or several"
            )
        limit = common.fractions(value, "budget")[0]
        if not limit > 0 or (name != "energy" and limit < 1):
            least = "a share above 0" if name == "energy" else "1 or more"
            raise ConfigError(f"--budget {part}: nothing stays within it; give {least}")
        limits["num_steps" if name == "steps" else name] = limit
    return limits
