"""The page: one HTML file with its style, its script and its data inside, that asks for nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template

from spikecast._version import __version__
from spikecast.measure.figures import NOT_COUNTED
from spikecast.measure.intervals import Interval
from spikecast.measure.tasks import Metric
from spikecast.page.data import NetworkData, ReportData
from spikecast.text import si

SCRIPTS = ("base.js", "curves.js", "layers.js", "graph.js", "neurons.js", "examples.js")
METRICS = {"top1": "Accuracy", "miou": "Mean IoU", "map": "mAP", "perplexity": "Perplexity", "error": "Error"}
SHARE = Metric()
SHOWN = "paper"  # the costs that the page opens with


def page(report: ReportData) -> str:
    """The whole page. What comes from the data is escaped, and a policy lets only the page's own script run."""
    style = _read("report.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_read(name) for name in SCRIPTS) + "})();\n"
    metric = METRICS.get(report.metric, report.metric)
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
    return Template(_read("template.html")).substitute(
        policy=policy,
        version=escape(__version__),
        title=escape(report.title),
        style=style,
        script=script,
        data=embedded(report.to_json()),
        lede=_lede(report),
        figures=_figures(report, metric),
        metric=escape(metric),
        unit=" in %" if report.how.unit else "",
        samples=f"{report.samples:,}",
        costs=SHOWN,
        steps=_steps(report),
        command=escape(report.command),
        facts=_facts({"made": report.made.replace("T", " ").replace("+00:00", " UTC"), **report.versions}),
        configs="".join(_config(network) for network in report.networks),
    )


def embedded(data: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def head_of(report: ReportData) -> NetworkData:
    """The network the head of the page speaks of: that with the best figure after its last step, then the cheapest."""
    sign = 1 if report.how.more else -1
    return max(report.networks, key=lambda n: (sign * n.steps[report.metric][-1], -n.energy[SHOWN]["snn"][-1]))


def _read(name: str) -> str:
    return files("spikecast.page").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _lede(report: ReportData) -> str:
    network, how, name = head_of(report), report.how, report.metric
    energy = network.energy[SHOWN]
    spent = f"{si(energy['snn'][-1], 'J')} (the ANN's energy is not counted)"
    if energy["ratio"] is not None:
        spent = f"{_percent(energy['ratio'][-1], 0)} of its energy"
    value, ann = network.steps[name][-1], report.ann[name]
    ours, anns = (how.text(x, 1).replace("%", "\N{NO-BREAK SPACE}%") for x in (value, ann))
    word = "" if how.unit else f"{escape(METRICS.get(name, name).lower())} "
    less = network.less_ann[-1].text(value - ann, "points" if how.unit else "", 1)
    return (
        f"After <b>{_time_steps(network, 'time-step')}</b> the spiking network <b>{escape(network.name)}</b> reaches "
        f"{word}<b>{ours}</b> where the ANN has {anns}: a difference of {less}. It agrees with the ANN on "
        f"{_percent(network.agreement[-1])} of the answers, and spends {spent}."
    )


def _figures(report: ReportData, metric: str) -> str:
    network, how, name = head_of(report), report.how, report.metric
    energy = network.energy[SHOWN]
    steps = f"{_time_steps(network, 'step')}, {network.slots[-1]} slots"
    ours, same = network.intervals[name][-1], network.intervals["agreement"][-1]
    rows = (
        (_number(report.ann[name], how), how.unit, f"{metric}, ANN; 95 %: {_range(report.ann_interval, how)}"),
        (_number(network.steps[name][-1], how), how.unit, f"{metric}, SNN after {steps}; 95 %: {_range(ours, how)}"),
        (_number(network.agreement[-1], SHARE), "%", f"Agreement of the two; 95 %: {_range(same, SHARE)}"),
        (*si(energy["snn"][-1], "J").split(" "), f"Energy, SNN; ANN {_ann_joules(network)}"),
    )
    return "".join(
        f"<div><dt>{escape(what)}</dt><dd>{escape(number)}<small>{escape(unit)}</small></dd></div>"
        for number, unit, what in rows
    )


def _time_steps(network: NetworkData, word: str) -> str:
    return f"{len(network.agreement)} {word}{'s' if len(network.agreement) > 1 else ''}"


def _number(value: float, how: Metric) -> str:
    """A figure without its unit."""
    return how.text(value, 1).removesuffix("%")


def _range(interval: Interval, how: Metric) -> str:
    """From–to, without a unit."""
    return "unknown" if interval.is_unknown else "–".join(_number(end, how) for end in interval)


def _cell(value: float, interval: Interval, how: Metric) -> str:
    return f"{_number(value, how)}<small>{_range(interval, how)}</small>"


def _steps(report: ReportData) -> str:
    """A row for the ANN and for each network, a column for each step, or for 1, 2, 4, ... where they are many."""
    longest = max(len(n.agreement) for n in report.networks)
    chosen = [t for t in range(1, longest + 1) if longest <= 8 or t & (t - 1) == 0 or t == longest]
    heads = "".join(f'<th scope="col"><span class="sr">after step </span>{t}</th>' for t in chosen)
    names = ("Less the ANN’s", "Slots", "Energy", "of ANN", "Spikes/neuron")
    extra = "".join(f'<th scope="col">{name}</th>' for name in names)
    figure, joules = _cell(report.ann[report.metric], report.ann_interval, report.how), _ann_joules(report.networks[0])
    blank = "<td></td>" * (len(chosen) - 1)
    cells = f'<td>{figure}</td>{blank}<td class="gap"></td><td></td><td></td><td>{joules}</td><td></td><td></td>'
    ann = f'<th scope="row">ANN</th>{cells}'
    rows = "".join(_step_row(n, i, report, chosen) for i, n in enumerate(report.networks))
    body = f'<tbody><tr class="reference">{ann}</tr>{rows}</tbody>'
    heads += '<th scope="col" class="gap">Agreement</th>'
    return f'<thead><tr><th scope="col">Network</th>{heads}{extra}</tr></thead>{body}'


def _step_row(network: NetworkData, i: int, report: ReportData, chosen: Iterable[int]) -> str:
    values, within, how = network.steps[report.metric], network.intervals[report.metric], report.how
    energy = network.energy[SHOWN]
    shown = [_cell(values[t - 1], within[t - 1], how) if t <= len(values) else "–" for t in chosen]
    cells = [f"<td>{text}</td>" for text in shown]
    cells.append(f'<td class="gap">{_cell(network.agreement[-1], network.intervals["agreement"][-1], SHARE)}</td>')
    less = network.less_ann[-1].text(values[-1] - report.ann[report.metric], "points" if how.unit else "", 1)
    cells.append("<td>{}<small>{}</small></td>".format(*less.removesuffix(")").split(" (")))
    ratio = NOT_COUNTED if energy["ratio"] is None else _percent(energy["ratio"][-1], 0)
    spikes = f"{network.spikes_per_neuron[-1]:.2f}"
    cells += [f"<td>{text}</td>" for text in (network.slots[-1], si(energy["snn"][-1], "J"), ratio, spikes)]
    return f'<tr><th scope="row"><span class="swatch s{i % 8}"></span>{escape(network.name)}</th>{"".join(cells)}</tr>'


def _facts(facts: Mapping[str, str]) -> str:
    return "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())


def _config(network: NetworkData) -> str:
    text = escape(json.dumps(network.config, indent=1))
    return f"<details><summary>Settings of {escape(network.name)}</summary><pre>{text}</pre></details>"


def _ann_joules(network: NetworkData) -> str:
    energy = network.energy[SHOWN]
    return NOT_COUNTED if energy["ratio"] is None else si(energy["ann"], "J")


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}\N{NO-BREAK SPACE}%"
