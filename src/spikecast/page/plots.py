"""Figures for papers: accuracy against time and against energy, drawn by matplotlib (extra `report`)."""

from __future__ import annotations

import io
import os
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
    kind = Path(path).suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise ConfigError(f"{path} ends in none of {', '.join('.' + f for f in FORMATS)}; give such a name")
    if costs not in COSTS:
        raise ConfigError(f"costs={costs!r} is not one of {', '.join(COSTS)}; give one of them")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plots need matplotlib; install it with: pip install 'spikecast[report]'") from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.9, 2.6), layout="constrained")
        _draw(figure, report, costs)
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
