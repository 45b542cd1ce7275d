"""Figures for papers: accuracy against time and against energy, drawn by matplotlib (extra `report`)."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spikecast.costs import COSTS
from spikecast.errors import ConfigError, MissingExtraError
from spikecast.page.data import NetworkData, ReportData
from spikecast.storage.files import write_whole

FORMATS = ("svg", "pdf", "png")
# The colours of the page, and a mark each, so that a black-and-white print still tells the curves apart.
COLOURS = ("#1f5fbf", "#b4470b", "#1b7a48", "#7a3fb5", "#a3245f", "#0f7285", "#7a5c00", "#4b5563")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters, as publishers ask
    "svg.fonttype": "none",
    "svg.hashsalt": "spikecast",  # the same data makes the same file
}


def write_plots(report: ReportData, path: str | os.PathLike[str], *, costs: str = "paper") -> Path:
    """Write the curves as SVG, PDF or PNG, as the file's name says; `costs` price the energy."""
    if costs not in COSTS:
        raise ConfigError(f"costs={costs!r} is not one of {', '.join(COSTS)}; give one of them")
    return _write(path, lambda figure: _draw(figure, report, costs))


def format_of(path: str | os.PathLike[str]) -> str:
    """What a figure of this name is written as; refuses other names."""
    kind = Path(path).suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise ConfigError(f"{path} ends in none of {', '.join('.' + f for f in FORMATS)}; give such a name")
    return kind


def write_front(
    points: Sequence[tuple[float, float]],
    front: Sequence[tuple[float, float, str]],
    path: str | os.PathLike[str],
    metric: str,
) -> Path:
    """Write (energy, metric) in per cent of many settings, and a line through those that none beats, with names."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.scatter(*zip(*points, strict=True), s=8, color="0.7", label="other settings")
        axes.plot([x for x, _, _ in front], [y for _, y, _ in front], color=COLOURS[0], marker="o", label="the front")
        for x, y, name in front:
            axes.annotate(name, (x, y), xytext=(3, -7), textcoords="offset points", fontsize=5)
        axes.set_xlabel("energy, % of the ANN's")
        axes.set_ylabel(metric)
        axes.legend(loc="lower right")

    return _write(path, draw)


def _write(path: str | os.PathLike[str], draw: Callable[[Any], None]) -> Path:
    kind = format_of(path)
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib; install it with: pip install 'spikecast[report]'") from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.9, 2.6), layout="constrained")
        draw(figure)
        out = io.BytesIO()
        date = {"svg": "Date", "pdf": "CreationDate"}.get(kind)
        figure.savefig(out, format=kind, dpi=300, metadata={date: None} if date else None)
    return write_whole(path, out.getvalue())


def _draw(figure: Any, report: ReportData, costs: str) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    for i, network in enumerate(report.networks):
        values = [100 * x for x in network.steps[report.metric]]
        look = {"color": COLOURS[i % len(COLOURS)], "marker": MARKS[i % len(MARKS)], "label": _label(network)}
        left.plot(range(1, len(values) + 1), values, **look)
        ratio = network.energy[costs]["ratio"]
        if ratio is not None:
            right.plot([100 * x for x in ratio], values, **look)
    for axes in (left, right):
        axes.axhline(100 * report.ann[report.metric], color="0.35", linewidth=0.8, linestyle=(0, (4, 3)), label="ANN")
    left.set_xlabel("time-steps")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.set_ylabel(f"{report.metric} (%)")
    right.set_xlabel(f"energy, % of the ANN's ({costs} costs)")
    left.legend(loc="lower right")


def _label(network: NetworkData) -> str:
    """The name of a network; where a step has several pulse slots, how many."""
    return network.name if network.slots[0] == 1 else f"{network.name}, {network.slots[0]} slots a step"
