"""The head of the page: its headline, its four figures, how it was measured, and the words it uses.

What depends on the costs is written once for each, and the script shows the one that is chosen; without a script it is
the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

from spikecast.config import Config
from spikecast.costs import COSTS
from spikecast.measure.figures import NOT_COUNTED
from spikecast.page.data import NetworkData, ReportData
from spikecast.page.headline import Headline, headline
from spikecast.page.numbers import (
    SHARE,
    SPACE,
    difference_with_ends,
    ends,
    figure,
    figure_with_unit,
    joules,
    percent,
    prefixed,
)

SHOWN = "paper"  # the costs that the page opens with
METRICS = {"top1": "Accuracy", "miou": "Mean IoU", "map": "mAP", "perplexity": "Perplexity", "error": "Error"}
_SAID = ("num_steps", "num_levels", "burst", "coding", "thresholds", "seed", "output", "budget_costs", "overrides")


def for_costs(tag: str, inside: Callable[[str], str], kind: str = "") -> str:
    """An element for each of the costs, all but one of them hidden."""
    look = f' class="{kind}"' if kind else ""
    return "".join(
        f'<{tag}{look} data-costs="{costs}"{"" if costs == SHOWN else " hidden"}>{inside(costs)}</{tag}>'
        for costs in COSTS
    )


def metric_name(report: ReportData) -> str:
    """The metric as people call it."""
    return METRICS.get(report.metric, report.metric)


def wrapping(text: str) -> str:
    """Text that may be long: a line may end after the signs inside a name, and not within a word."""
    return re.sub(r"((?:&[^;]+;|[/:._\-])+)(?=\w)", r"\1<wbr>", escape(text))


def lede(report: ReportData) -> str:
    """The sentence that a reader wants, for each of the costs."""
    return for_costs("p", lambda costs: _sentence(report, costs), "lede")


def _sentence(report: ReportData, costs: str) -> str:
    found, how = headline(report, costs), report.how
    network, t = report.networks[found.place], found.step - 1
    value, ann = network.steps[report.metric][t], report.ann[report.metric]
    apart = difference_with_ends(value - ann, network.less_ann[t], how)
    ours = f"<b>{wrapping(network.name)}</b>"
    name = escape(metric_name(report).lower())
    figures = f"Its {name} is {figure_with_unit(value, how)}, the ANN’s {figure_with_unit(ann, how)}: {_apart(apart)}."
    if found.holds:
        return (
            f"{_when(found, network)} the answers of {ours} are as good as the ANN’s within the 95{SPACE}% interval, "
            f"for {_spent(network, costs, t)}. {figures}"
        )
    begin = (
        f"There is <b>no step</b> from which on the answers are as good as the ANN’s within the 95{SPACE}% interval."
    )
    if not found.known:
        begin = "There are <b>too few samples</b> to say from which step on the answers are as good as the ANN’s."
    return f"{begin} Nearest comes {ours} after <b>step {found.step}</b>, for {_spent(network, costs, t)}. {figures}"


def _apart(difference: str) -> str:
    return f"a difference of {difference}".replace(" points", f"{SPACE}points")


def _when(found: Headline, network: NetworkData) -> str:
    if len(network.agreement) == 1:
        return "After <b>one step</b>"
    last = found.step == len(network.agreement)
    return f"After <b>step {found.step}</b>, the last," if last else f"From <b>step {found.step}</b> on"


def _spent(network: NetworkData, costs: str, t: int) -> str:
    energy = network.energy[costs]
    if energy["ratio"] is None:
        return f"<b>{joules(energy['snn'][t])}</b> a sample (the ANN’s energy is not counted)"
    return f"<b>{percent(energy['ratio'][t])}</b> of its energy"


def figures(report: ReportData) -> str:
    """Four figures, for each of the costs: at the step of which the headline speaks."""
    return for_costs("dl", lambda costs: _tiles(report, costs), "figures")


def _tiles(report: ReportData, costs: str) -> str:
    found, how, name, metric = headline(report, costs), report.how, report.metric, metric_name(report)
    network, t = report.networks[found.place], found.step - 1
    slots = network.slots[t]
    after = f"after step {found.step} ({slots} slot{'s' if slots > 1 else ''})"
    energy, ours, same = network.energy[costs], network.intervals[name][t], network.intervals["agreement"][t]
    spent, ann = joules(energy["snn"][t]), NOT_COUNTED
    number, unit = prefixed(energy["snn"][t], "J")
    if energy["ratio"] is not None:
        number, unit, ann = figure(energy["ratio"][t], SHARE), "% of ANN", joules(energy["ann"])
    rows = (
        (figure(report.ann[name], how), how.unit, f"{metric}, ANN", f"95{SPACE}%: {ends(report.ann_interval, how)}"),
        (figure(network.steps[name][t], how), how.unit, f"{metric}, SNN {after}", f"95{SPACE}%: {ends(ours, how)}"),
        (figure(network.agreement[t], SHARE), "%", "Same answer as the ANN", f"95{SPACE}%: {ends(same, SHARE)}"),
        (number, unit, f"Energy, {costs} costs", f"SNN{SPACE}{spent}, ANN{SPACE}{ann}"),
    )
    return "".join(
        f"<div><dt>{escape(what)}<span>{escape(more)}</span></dt><dd>{escape(number)}<small>{escape(unit)}</small></dd></div>"
        for number, unit, what, more in rows
    )


def measured(report: ReportData) -> dict[str, str]:
    """On how many samples, and with which settings."""
    found = {"Measured on": _samples(report.samples)}
    calibrated = {network.name: network.calibrated for network in report.networks}
    if set(calibrated.values()) != {None}:
        found["Thresholds from"] = _common({name: _samples(number) for name, number in calibrated.items()})
    settings = {network.name: setting(network) for network in report.networks}
    shared = [part for part in next(iter(settings.values())) if all(part in own for own in settings.values())]
    apart = {name: ", ".join(p for p in own if p not in shared) for name, own in settings.items()}
    own = [f"{name}: {text}" for name, text in apart.items() if text and text != f"{name} coding"]
    found["Setting"] = "; ".join([", ".join(shared), *own])
    return found


def setting(network: NetworkData) -> list[str]:
    """What a network was converted with, in a few words; of the rarer settings those that are not the default."""
    config, steps = network.config, len(network.agreement)
    goals = [name for name in ("energy_budget", "fidelity") if config.get(name) is not None]
    parts = [f"{steps} step{'s' if steps > 1 else ''}"]
    if not goals:
        parts.append(f"{config['num_levels']} level{'s' if config['num_levels'] > 1 else ''}")
        parts.append(f"bursts of {config['burst']}" if config["burst"] > 1 else "one spike a step")
        parts.append(f"{config['thresholds']} thresholds")
    parts.append(f"{config['coding']} coding")
    usual = Config().to_json()
    changed = [name for name, value in config.items() if name not in _SAID and value != usual.get(name)]
    parts += [f"{name} {config[name]}" for name in changed]
    number = len(config.get("overrides") or ())
    return [*parts, f"{number} override{'s' if number > 1 else ''}"] if number else parts


def _samples(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,} sample{'s' if number > 1 else ''}"


def _common(texts: dict[str, str]) -> str:
    """One text where it is the same for all, else each with its name."""
    return texts.popitem()[1] if len(set(texts.values())) == 1 else "; ".join(f"{k}: {v}" for k, v in texts.items())


def words() -> str:
    """The words of the page in two lines each."""
    paper = COSTS["paper"]
    said = {
        "Spiking network (SNN)": "The ANN itself, but its neurons send spikes in time-steps instead of numbers. "
        "Its answer comes nearer to the ANN’s with each step.",
        "Differential coding": "A spike says how a value changes: at step t it moves the value by 1/t of its level. "
        "Rate coding averages all spikes instead.",
        "Graded": "What no spike can pass, such as GELU, softmax or a product of two activations, is a graded unit: "
        "it sends changes as numbers.",
        "Costs": f"“paper”: {paper.accumulate:g} pJ for an addition by a spike, {paper.multiply:g} pJ for a product of "
        "the ANN. “honest” takes analog inputs as products; “full” adds neurons, graded units.",
    }  # fmt: skip
    return "".join(f"<div><dt>{escape(word)}</dt><dd>{escape(text)}</dd></div>" for word, text in said.items())
