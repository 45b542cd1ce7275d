"""The page: one HTML file with its style, its script and its data inside, that asks for nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template

from spikecast._version import __version__
from spikecast.costs import COSTS
from spikecast.page.data import NetworkData, ReportData
from spikecast.page.head import SHOWN, figures, for_costs, lede, measured, metric_name, words, wrapping
from spikecast.page.headline import from_step
from spikecast.page.steps import step_table

PARTS = ("base", "save", "curves", "layers", "layer_plots", "graph", "neurons", "examples", "start")
SCRIPTS = tuple(f"{part}.js" for part in PARTS)


def page(report: ReportData) -> str:
    """The whole page. What comes from the data is escaped, and a policy lets only the page's own script run."""
    style = _read("report.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_read(name) for name in SCRIPTS) + "})();\n"
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
    return Template(_read("template.html")).substitute(
        policy=policy,
        version=escape(__version__),
        title=escape(report.title),
        heading=wrapping(report.title),
        style=style,
        script=script,
        data=embedded({**report.to_json(), "page": _drawn_from(report)}),
        lede=lede(report),
        measured=_facts(measured(report)),
        figures=figures(report),
        metric=escape(metric_name(report)),
        unit=" in %" if report.how.unit else "",
        samples=f"{report.samples:,}",
        costs=for_costs("span", str),
        steps=step_table(report),
        words=words(),
        command=_words(report.command),
        facts=_facts({"made": report.made.replace("T", " ").replace("+00:00", " UTC"), **report.versions}),
        configs="".join(_config(network) for network in report.networks),
    )


def embedded(data: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _drawn_from(report: ReportData) -> dict[str, object]:
    """What the script needs besides the data: names, and from which step on each network is as good as the ANN."""
    steps = [from_step(network) for network in report.networks]
    return {"metric": metric_name(report), "from": steps, "costs": list(COSTS), "shown": SHOWN}


def _read(name: str) -> str:
    return files("spikecast.page").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _words(command: str) -> str:
    """A command whose lines end between its words: browsers would end them behind any hyphen."""
    return " ".join(f"<span>{escape(word)}</span>" for word in command.split(" "))


def _facts(facts: Mapping[str, str]) -> str:
    return "".join(f"<div><dt>{escape(k)}</dt><dd>{wrapping(v)}</dd></div>" for k, v in facts.items())


def _config(network: NetworkData) -> str:
    text = escape(json.dumps(network.config, indent=1))
    return f"<details><summary>Settings of {wrapping(network.name)}</summary><pre>{text}</pre></details>"
