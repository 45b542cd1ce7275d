"""Figures for papers: accuracy against time and against energy, drawn by matplotlib (extra `report`)."""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spikecast.costs import COSTS
from spikecast.errors import ConfigError, MissingExtraError
from spikecast.measure.agreement import Agreement
from spikecast.measure.evaluate import Evaluation
from spikecast.measure.intervals import Interval
from spikecast.page.data import ReportData
from spikecast.storage.files import write_whole

FORMATS = ("svg", "pdf", "png")
NO_PLOTS = "plots need matplotlib; install it with: pip install 'spikecast[report]'"
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


@dataclass(frozen=True)
class Curve:
    """A figure after each step, its intervals, the energy over the ANN's, and the pulse slots up to each step.

    `steps` say where it is known, if not after each; `published` is what was published of the same, drawn with dots.
    """

    name: str
    values: Sequence[float]
    slots: Sequence[int]
    ratio: Sequence[float] | None = None
    intervals: Sequence[tuple[float, float]] | None = None
    steps: Sequence[int] | None = None
    published: Curve | None = None

    @property
    def label(self) -> str:
        """The name; where a step has several pulse slots, how many."""
        each = self.slots[0] // (self.steps[0] if self.steps else 1)
        return self.name if each == 1 else f"{self.name}, {each} slots a step"


def curve_of(name: str, evaluation: Evaluation) -> Curve:
    """The first figure of an evaluation."""
    metric = next(iter(evaluation.steps))
    ratio = None if evaluation.energy is None else evaluation.energy.ratio
    return Curve(name, evaluation.steps[metric], evaluation.slots, ratio, evaluation.intervals[metric])


def write_plots(report: ReportData, path: str | os.PathLike[str], *, costs: str = "paper") -> Path:
    """Write the curves of a report as SVG, PDF or PNG, as the file's name says; `costs` price the energy."""
    if costs not in COSTS:
        raise ConfigError(f"costs={costs!r} is not one of {', '.join(COSTS)}; give one of them")
    metric = report.metric
    curves = [
        Curve(n.name, n.steps[metric], n.slots, n.energy[costs]["ratio"], n.intervals[metric]) for n in report.networks
    ]
    return write_curves(curves, path, metric, ann=report.ann[metric], costs=costs, is_share=report.how.unit == "%")


def write_evaluations(
    evaluations: Mapping[str, Evaluation], path: str | os.PathLike[str], *, costs: str = "paper"
) -> Path:
    """Write the first figure of several evaluations of one model, by name, with the bands of their intervals."""
    first = next(iter(evaluations.values()))
    name, metric = next(iter(first.scores.task.metrics.items()))
    curves = [curve_of(each, evaluation) for each, evaluation in evaluations.items()]
    ann = None if first.ann is None else first.ann[name]
    return write_curves(curves, path, name, ann=ann, costs=costs, is_share=metric.unit == "%")


def write_curves(
    curves: Sequence[Curve],
    path: str | os.PathLike[str],
    metric: str,
    *,
    ann: float | None = None,
    costs: str = "paper",
    is_share: bool = True,
) -> Path:
    """Write a figure against time and against energy, and the ANN's as a line."""
    scale, word = (100, f"{metric} (%)") if is_share else (1, metric)

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for i, curve in enumerate(curves):
            for one, line in ((curve, "-"), (curve.published, ":")):
                if one is not None:
                    add_curve(left, one, one.steps or range(1, len(one.values) + 1), scale, i, line)
                if one is not None and one.ratio is not None:
                    add_curve(right, one, [100 * x for x in one.ratio], scale, i, line)
        if ann is not None:
            for axes in (left, right):
                axes.axhline(scale * ann, color="0.35", linewidth=0.8, linestyle=(0, (4, 3)), label="ANN")
        left.set_xlabel("time-steps")
        left.xaxis.get_major_locator().set_params(integer=True)
        left.set_ylabel(word)
        right.set_xlabel(f"energy, % of the ANN's ({costs} costs)")
        if any(curve.published for curve in curves):  # twice as many lines, and no room among them
            left.plot([], [], color="0.35", linestyle=":", label="published")
            figure.legend(*left.get_legend_handles_labels(), loc="outside right upper")
        else:
            left.legend(loc="best")

    return write_figure(path, draw)


def add_curve(
    axes: Any,
    curve: Curve,
    places: Sequence[float],
    scale: float = 1,
    number: int = 0,
    line: str = "-",
    alpha: float = 0.12,
) -> None:
    """One curve with its band, in the colour and with the mark of its number."""
    colour = COLOURS[number % len(COLOURS)]
    look = {"color": colour, "marker": MARKS[number % len(MARKS)], "label": curve.label, "linestyle": line}
    axes.plot(places, [scale * x for x in curve.values], **look)
    if curve.intervals is None or any(Interval(*ends).is_unknown for ends in curve.intervals):
        return
    low, high = zip(*curve.intervals, strict=True)
    band = ([scale * x for x in low], [scale * x for x in high])
    if len(places) > 1:
        axes.fill_between(places, *band, color=colour, alpha=alpha, linewidth=0)
    else:
        axes.vlines(places, *band, color=colour, linewidth=0.8)


def write_layers(agreement: Agreement, path: str | os.PathLike[str]) -> Path:
    """Write the error of each layer of neurons after the last step, and how many of them fire in it."""
    sites = agreement.sites

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        places = range(1, len(sites) + 1)
        left.plot(places, [100 * s.error[-1] for s in sites], color=COLOURS[0], marker="o", label="in all")
        left.plot(places, [100 * s.own[-1] for s in sites], color=COLOURS[1], marker="s", label="of its own")
        left.set_ylabel("error against the ANN (%)")
        left.set_ylim(bottom=0)
        left.legend(loc="best")
        right.bar(places, [100 * s.firing[-1] for s in sites], color=COLOURS[0])
        right.set_ylabel("neurons that fire (%)")
        for axes in (left, right):
            axes.set_xlabel("layer of neurons")
            axes.xaxis.get_major_locator().set_params(integer=True)

    return write_figure(path, draw)


def check_plot(path: str | os.PathLike[str] | None) -> None:
    """Refuse a name that nothing is drawn to, and say what is missing to draw: before the work, not after."""
    if path is not None:
        format_of(path)
        if importlib.util.find_spec("matplotlib") is None:
            raise MissingExtraError(NO_PLOTS)


def format_of(path: str | os.PathLike[str]) -> str:
    """What a figure of this name is written as; refuses other names."""
    kind = Path(path).suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise ConfigError(f"{path} ends in none of {', '.join('.' + f for f in FORMATS)}; give such a name")
    return kind


def write_front(
    points: Sequence[tuple[float, float]],
    front: Sequence[tuple[float, float, tuple[float, float] | None, str]],
    path: str | os.PathLike[str],
    metric: str,
    *,
    ann: float | None = None,
    costs: str = "paper",
) -> Path:
    """Write (energy, metric) in per cent of many settings, and a line through those that none beats.

    Those have the interval of their metric as well, where it is known, and a name, which the legend says beside
    their number.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.scatter(*zip(*points, strict=True), s=8, color="0.7", label="other settings")
        axes.plot([x for x, *_ in front], [y for _, y, *_ in front], color=COLOURS[0], marker="o", label="the front")
        for number, (x, y, within, name) in enumerate(front, 1):
            if within is not None:
                axes.vlines(x, *within, color=COLOURS[0], linewidth=0.8)
            beside = (3, -8) if number % 2 else (-7, 3)  # so that two that lie close are told apart
            axes.annotate(str(number), (x, y), xytext=beside, textcoords="offset points", fontsize=6)
            axes.plot([], [], " ", label=f"{number}: {name}")
        if ann is not None:
            axes.axhline(ann, color="0.5", linewidth=0.8, linestyle="--", label="the ANN")
        axes.set_xlabel(f"energy, % of the ANN's ({costs} costs)")
        axes.set_ylabel(metric)
        figure.legend(loc="outside right upper", fontsize=6, handlelength=1)

    return write_figure(path, draw)


def write_figure(
    path: str | os.PathLike[str], draw: Callable[[Any], None], size: tuple[float, float] = (6.9, 2.6)
) -> Path:
    """Write what a function draws into a figure of so many inches; the same data makes the same file."""
    kind = format_of(path)
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(NO_PLOTS) from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        out = io.BytesIO()
        date = {"svg": "Date", "pdf": "CreationDate"}.get(kind)
        figure.savefig(out, format=kind, dpi=300, metadata={date: None} if date else None)
    return write_whole(path, out.getvalue())
