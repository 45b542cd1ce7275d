"""The table at the head of the page: every network after some steps, where it is as good as the ANN, and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spikecast.measure.figures import NOT_COUNTED
from spikecast.measure.intervals import Interval
from spikecast.measure.tasks import Metric
from spikecast.page.data import NetworkData, ReportData
from spikecast.page.head import for_costs, metric_name, wrapping
from spikecast.page.headline import from_step
from spikecast.page.numbers import SHARE, difference, difference_ends, ends, figure, joules, percent, significant

FEW = 5  # steps that are all shown; of more, 1, 2, 4, ... and the last
_GOOD = ("From step", "For energy")
_LAST = ("Same answer", "Difference", "Slots", "Energy", "Spikes/neuron")


def step_table(report: ReportData) -> str:
    """Head and body: a row for the ANN and for each network."""
    longest = max(len(network.agreement) for network in report.networks)
    chosen = [t for t in range(1, longest + 1) if longest <= FEW or t & (t - 1) == 0 or t == longest]
    metric, good, last = f"{escape(metric_name(report))} after step", "As good as the ANN", "After the last step"
    groups = ((metric, len(chosen)), (good, len(_GOOD)), (last, len(_LAST)))
    top = "".join(f'<th scope="colgroup" colspan="{width}" class="gap">{name}</th>' for name, width in groups)
    heads = [f'<th scope="col"{_gap(i)}><span class="sr">{metric} </span>{t}</th>' for i, t in enumerate(chosen)]
    for names in (_GOOD, _LAST):
        heads += [f'<th scope="col"{_gap(i)}>{name}</th>' for i, name in enumerate(names)]
    head = f'<thead><tr><th rowspan="2" scope="col">Network</th>{top}</tr><tr>{"".join(heads)}</tr></thead>'
    rows = "".join(_row(network, i, report, chosen) for i, network in enumerate(report.networks))
    return f'{head}<tbody><tr class="reference">{_ann(report, chosen)}</tr>{rows}</tbody>'


def _ann(report: ReportData, chosen: Sequence[int]) -> str:
    value = _cell(report.ann[report.metric], report.ann_interval, report.how)
    spent = for_costs("span", lambda costs: _ann_joules(report.networks[0], costs))
    cells = [_td(value, metric_name(report), gap=True), *["<td></td>"] * (len(chosen) - 1)]
    cells += [
        '<td class="gap"></td><td></td>',
        '<td class="gap"></td><td></td><td></td>',
        _td(spent, "Energy"),
        "<td></td>",
    ]
    return f'<th scope="row">ANN</th>{"".join(cells)}'


def _row(network: NetworkData, place: int, report: ReportData, chosen: Sequence[int]) -> str:
    values, within, how = network.steps[report.metric], network.intervals[report.metric], report.how
    shown = [_cell(values[t - 1], within[t - 1], how) if t <= len(values) else "–" for t in chosen]
    cells = [_td(text, f"Step {t}", gap=not i) for i, (t, text) in enumerate(zip(chosen, shown, strict=True))]
    good = from_step(network)
    cells.append(_td("none" if good is None else str(good), f"As good as the ANN, {_GOOD[0].lower()}", gap=True))
    cost = "–" if good is None else for_costs("span", lambda costs: _ratio(network, costs, good - 1))
    cells.append(_td(cost, _GOOD[1]))
    same = _cell(network.agreement[-1], network.intervals["agreement"][-1], SHARE)
    apart = difference(values[-1] - report.ann[report.metric], how)
    apart += f"<small>{difference_ends(network.less_ann[-1], how)}</small>"
    spent = for_costs(
        "span", lambda costs: f"{joules(network.energy[costs]['snn'][-1])}<small>{_ratio(network, costs, -1)}</small>"
    )
    last = (same, apart, str(network.slots[-1]), spent, significant(network.spikes_per_neuron[-1]))
    cells += [_td(text, name, gap=not i) for i, (name, text) in enumerate(zip(_LAST, last, strict=True))]
    name = f'<span class="swatch s{place % 8}"></span>{wrapping(network.name)}'
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _gap(place: int) -> str:
    return "" if place else ' class="gap"'


def _td(text: str, label: str, *, gap: bool = False) -> str:
    """A cell that says what it holds, for where there is no room for heads."""
    return f'<td{_gap(not gap)} data-label="{escape(label)}">{text}</td>'


def _cell(value: float, interval: Interval, how: Metric) -> str:
    return f"{figure(value, how)}<small>{ends(interval, how)}</small>"


def _ratio(network: NetworkData, costs: str, t: int) -> str:
    ratio = network.energy[costs]["ratio"]
    return NOT_COUNTED if ratio is None else f"{percent(ratio[t])} of ANN"


def _ann_joules(network: NetworkData, costs: str) -> str:
    energy = network.energy[costs]
    return NOT_COUNTED if energy["ratio"] is None else joules(energy["ann"])
