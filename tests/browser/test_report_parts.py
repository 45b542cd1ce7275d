"""Parts of the page that have a rule of their own: rounding, costs, axes, plots of layers, bursts, files, phones."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import time
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from spikecast.costs import COSTS
from spikecast.measure.intervals import Interval
from spikecast.measure.tasks import Metric
from spikecast.page.data import NetworkData, ReportData
from spikecast.page.head import measured
from spikecast.page.headline import from_step, headline
from spikecast.page.numbers import figure_with_unit, joules, percent, share, significant

pytestmark = pytest.mark.browser

READY = "document.documentElement.dataset.ready === 'true'"
VALUES = (0.0, 0.0625, 0.00049, 0.9995, 0.99949, 0.3079, 1.0, 1.2075, 0.125, 12.345, 999.96, 99999.5, 1e5, 123456.0,
          2.5e-7, 9.996e-7, 8.985e-7, 0.00099999, 1e-13, -0.0625, -2.5)  # fmt: skip

# Words of which a part lies on another line than the rest, where a line may end at a space or behind a sign only.
BROKEN = r"""(() => {
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, e = node.parentElement;
    if (!e.checkVisibility() || e.closest('script, style, noscript, option, svg, .sr, .skip')) continue;
    for (const word of node.data.matchAll(/[\p{L}\p{N}.,%]*[\p{L}\p{N}]/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) found.push(word[0]);
    }
  }
  return found;
})()"""


def opened(browser, report: ReportData, path: Path, width: int = 1280, *, dark: bool = False) -> Any:
    browser.size(width, dark=dark)
    browser.open(report.write_html(path / "page.html"))
    browser.wait(READY)
    return browser


def seen(page, selector: str) -> list[str]:
    """The text of elements that can be seen."""
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})].filter((e) => e.checkVisibility())"
    return [said.replace("\u00a0", " ") for said in page.run(f"{chosen}.map((e) => e.innerText)")]


def boxes(page, selector: str) -> list[dict[str, float]]:
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return page.run(f"{chosen}.map((e) => e.getBoundingClientRect()).map((b) => b.toJSON())")


def test_the_script_rounds_as_the_text_does(page) -> None:
    """Numbers are written by Python and by the script; both have one rounding."""
    base = files("spikecast.page").joinpath("assets", "base.js").read_text(encoding="utf-8")
    wanted = {
        "share": [share(x) for x in VALUES],
        "percent": [percent(x) for x in VALUES],
        "significant": [significant(x) for x in VALUES],
        "(x) => si(x, 'J')": [joules(x) for x in VALUES],
        "(x) => figureText(x, true)": [figure_with_unit(x, Metric()) for x in VALUES],
        "(x) => figureText(x, false)": [figure_with_unit(x, Metric("")) for x in VALUES],
    }
    for function, texts in wanted.items():
        assert page.run(f"(() => {{ {base}\nreturn {list(VALUES)}.map((x) => ({function})(x)); }})()") == texts


def test_costs_change_headline_tiles_and_table(page, report) -> None:
    for costs in ("full", "honest", "paper"):
        page.click(f"#head-controls input[value={costs}] + label")
        found = headline(report, costs)
        network, t = report.networks[found.place], found.step - 1
        ratio = percent(network.energy[costs]["ratio"][t]).replace("\u00a0", " ")
        (lede,) = seen(page, ".lede")
        assert f"for {ratio} of its energy" in lede
        (tiles,) = seen(page, ".figures")
        assert f"Energy, {costs} costs" in tiles
        assert ratio.removesuffix(" %") in tiles
        (rows,) = seen(page, ".steps tbody")
        for one in report.networks:
            assert percent(one.energy[costs]["ratio"][-1]).replace("\u00a0", " ") in rows
        (caption,) = seen(page, ".steps caption")
        assert f"{costs} costs" in caption
        checked = page.run("[...document.querySelectorAll('input:checked')].map((e) => e.value)")
        assert checked.count(costs) == 3  # at the head, at the curves and at the layers
    assert len({percent(n.energy[c]["ratio"][-1]) for n in report.networks for c in COSTS}) > 3  # they do differ


def flat(report: ReportData, samples: int, how: Metric, value: float) -> ReportData:
    """Figures that differ by one sample, and intervals that are as narrow."""
    one = 1 / samples if how.unit else value / 1000

    def changed(n: NetworkData) -> NetworkData:
        values = [value + one * (t % 2) for t in range(len(n.agreement))]
        within = {**n.intervals, "top1": [Interval(x - one, x) for x in values]}
        return dataclasses.replace(n, steps={"top1": values}, intervals=within)

    networks = [changed(n) for n in report.networks]
    return dataclasses.replace(report, samples=samples, how=how, ann={"top1": value}, networks=networks)


@pytest.mark.parametrize(
    ("samples", "how", "value", "height"),
    [
        (1000, Metric(), 0.99, 0.001 / 0.05),  # five points at least
        (50, Metric(), 0.97, 0.02 / 0.2),  # ten samples at least
        (1000, Metric("", more=False), 20.0, 0.001 / 0.1),  # a tenth of the ANN's
    ],
)
def test_one_sample_is_no_mountain(browser, report, tmp_path: Path, samples, how, value, height) -> None:
    page = opened(browser, flat(report, samples, how, value), tmp_path)
    (line, *_), (chart, *_) = boxes(page, "#curve-chart .line"), boxes(page, "#curve-chart > svg")
    plotted = chart["height"] - 22 - 46
    assert line["height"] / plotted == pytest.approx(height, rel=0.15)
    labels = page.run("[...document.querySelectorAll('#curve-chart svg text')].map((e) => e.textContent)")
    ticks = [float(said) for said in labels[: labels.index("1")] if re.fullmatch(r"[\d.]+", said)]
    assert max(ticks) <= 100 if how.unit else max(ticks) > value


def test_the_step_from_which_on_it_is_as_good_is_marked(page, report) -> None:
    steps = [from_step(n) for n in report.networks]
    marks = boxes(page, "#curve-chart .dot.good")
    assert len(marks) == sum(step is not None for step in steps) > 0
    (plot,) = boxes(page, "#curve-chart > svg")
    first = next(step for step in steps if step is not None)
    places = [48 + (t / 5) * (plot["width"] - 62) + plot["left"] for t in range(6)]
    assert marks[0]["left"] + marks[0]["width"] / 2 == pytest.approx(places[first - 1], abs=1)


def test_curves_on_each_other_can_be_told_apart(browser, report, tmp_path: Path) -> None:
    twins = dataclasses.replace(
        report, networks=[report.networks[0], dataclasses.replace(report.networks[0], name="b")]
    )
    page = opened(browser, twins, tmp_path)
    looks = page.run(
        "[...document.querySelectorAll('#curve-chart .line')].map((e) => e.getAttribute('stroke-dasharray'))"
    )
    assert looks[0] != looks[1]
    dots = boxes(page, "#curve-chart .dot:not(.good)")
    assert len({round(box["width"], 1) for box in dots}) == 2  # the mark of one lies inside that of the other


def test_layers_are_plotted(page, report) -> None:
    sites = [layer for layer in report.networks[0].layers if layer.firing is not None]
    bars = boxes(page, "#layer-plots figure:first-child .whole")
    inner = boxes(page, "#layer-plots figure:first-child .part")
    firing = boxes(page, "#layer-plots figure:nth-child(2) .part")
    assert len(bars) == len(inner) == len(firing) == len(sites) > 1
    for k, layer in enumerate(sites):
        assert bars[k]["height"] / bars[0]["height"] == pytest.approx(layer.error[-1] / sites[0].error[-1], rel=0.02)
        own = min(layer.own[-1], layer.error[-1]) / layer.error[-1]
        assert inner[k]["height"] / bars[k]["height"] == pytest.approx(own, rel=0.02)
        rate = sum(layer.firing) / sum(sites[0].firing)
        assert firing[k]["height"] / firing[0]["height"] == pytest.approx(rate, rel=0.02)
    page.mouse("#layer-plots figure:nth-child(2) .hit[data-k='1']")
    (said,) = seen(page, "#layer-plot-note")
    assert f"Layer 2, {sites[1].name}: error {100 * sites[1].error[-1]:.1f} %" in said
    page.run(
        "(() => { const s = document.querySelector('#layer-controls select'); s.value = '1';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    page.mouse("#layer-plots .hit[data-k='1']")
    assert f"error {100 * sites[1].error[0]:.1f} %" in seen(page, "#layer-plot-note")[0]
    page.click("#layer-plots .hit[data-k='1']")
    assert page.run("document.querySelector('#site-select').value") == sites[1].name


def test_energy_can_be_seen(page, report) -> None:
    joules_of = [sum(layer.joules["paper"]) for layer in report.networks[0].layers]
    bars, tracks = boxes(page, "#layer-table .bar i"), boxes(page, "#layer-table .bar")
    for bar, track, spent in zip(bars, tracks, joules_of, strict=True):
        share_of_most = spent / max(joules_of)
        wanted = max(0.02, share_of_most) if spent else 0
        assert bar["width"] == pytest.approx(wanted * track["width"], abs=0.5)
    assert max(bar["width"] for bar in bars) > 90


def test_advice_is_that_of_explain(page, report) -> None:
    advice = report.networks[0].advice
    assert [line.replace(" %", "%") for line in seen(page, "#advice-list li")] == advice
    assert advice
    around = "[...document.querySelectorAll('#advice-list wbr')].map((e) => [e.previousSibling, e.nextSibling])"
    breaks = page.run(f"{around}.map((pair) => pair.map((text) => text.data))")
    assert breaks  # names may break behind a dot
    assert not [pair for pair in breaks if pair[0][-2:-1].isdigit() and pair[1][:1].isdigit()]  # and numbers may not


def test_classes_have_their_names(page, report) -> None:
    answers = {report.classes[a] for e in report.networks[0].examples for a in (e.sample.label, *e.answers)}
    assert answers
    shown = page.run("[...document.querySelectorAll('#example-list dd')].map((e) => e.textContent)")
    assert answers <= set(shown) <= set(report.classes) | {""}


def test_samples_and_settings_stand_at_the_head(page, report) -> None:
    (said,) = seen(page, ".measured")
    for value in measured(report).values():
        assert value in said
    assert "Thresholds from\n32 samples" in said.replace("Thresholds from 32", "Thresholds from\n32")


def bursting(report: ReportData) -> ReportData:
    """Neurons that send up to three spikes in a step, in known places."""
    n = report.networks[0]
    trace = n.traces[0]
    steps = len(trace.levels[0])
    silent = [[0, 0, 0] for _ in trace.shown]
    levels = [[[*silent] for _ in range(steps)] for _ in trace.levels]
    for sample in levels:
        sample[0] = [[1, 2, -1], [2, -1, 0], [1, 0, 0], *silent[3:]]
        sample[3] = [[0, 0, 0], [-2, 0, 0], [1, 1, 0], *silent[3:]]
    changed = dataclasses.replace(trace, levels=levels)
    return dataclasses.replace(report, networks=[dataclasses.replace(n, traces=[changed])])


@pytest.mark.parametrize("width", [390, 1280])
def test_bursts_are_held_together(browser, report, tmp_path: Path, width: int) -> None:
    page = opened(browser, bursting(report), tmp_path, width)
    bursts, spikes = boxes(page, "#neuron-charts .burst"), boxes(page, "#neuron-charts .plus, #neuron-charts .minus")
    assert (len(bursts), len(spikes)) == (3, 9)  # of 3, 2 and 2 spikes; two more stand alone

    def holds(burst: dict[str, float], spike: dict[str, float]) -> bool:
        level = abs(spike["top"] + spike["height"] / 2 - burst["top"]) < 12  # of the same neuron
        return level and burst["left"] - 1 <= spike["left"] and spike["right"] <= burst["right"] + 1

    held = [sum(holds(burst, spike) for spike in spikes) for burst in bursts]
    assert sorted(held) == [2, 2, 3]
    (chart,) = page.run(
        "[...document.querySelectorAll('#neuron-charts svg[aria-label=\"Spike raster\"]')].map((e) => e.outerHTML)"
    )
    ends = sorted({float(x) for x in re.findall(r'class="stepline" x1="([\d.]+)"', chart)})
    assert len(ends) == 5  # between six steps
    column = ends[1] - ends[0]
    assert all(burst["width"] < column for burst in bursts)  # none reaches into the next step
    assert "the longest here has 3" in seen(page, "#neuron-charts figcaption")[0]
    assert "3 pulse slots each" in chart


def saved(page, folder: Path, selector: str, name: str) -> str:
    page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    page.click(selector)
    end = time.monotonic() + 30
    while not (folder / name).is_file() or not (folder / name).stat().st_size:
        assert time.monotonic() < end, [p.name for p in folder.iterdir()]
        time.sleep(0.05)
    return (folder / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_figures_are_saved_as_svg(browser, report, tmp_path: Path, dark: bool) -> None:
    page = opened(browser, report, tmp_path, dark=dark)
    for part, drawings in (("curve", 1), ("layer", 2), ("neuron", 2)):
        name = f"spikecast-A_small_network-{part}s.svg"
        text = saved(page, tmp_path, f"#{part}-controls [aria-label$=SVG]", name)
        root = ElementTree.fromstring(text)
        space = "{http://www.w3.org/2000/svg}"
        assert len(root.findall(f"{space}svg")) == drawings
        assert "var(" not in text
        assert "class=" not in text
        inks = {node.get("fill") for node in root.iter(f"{space}text")} - {None}
        assert inks <= {"rgb(90, 96, 105)", "rgb(23, 25, 29)"}  # those of the light page, on white
        assert all(node.get("font-size") for node in root.iter(f"{space}text"))
    assert page.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(18, 19, 22)" if dark else "rgb(253, 253, 251)"
    )
    assert page.complaints() == []
    assert page.requests() == [(tmp_path / "page.html").as_uri()]


def test_figures_are_saved_as_csv(browser, report, tmp_path: Path) -> None:
    odd = dataclasses.replace(report.networks[0], name='a "quoted", name')
    page = opened(browser, dataclasses.replace(report, networks=[odd, report.networks[1]]), tmp_path)
    text = saved(page, tmp_path, "#curve-controls [aria-label$=CSV]", "spikecast-A_small_network-curves.csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["network"] for row in rows] == [odd.name] * 6 + ["rate"] * 6
    last = rows[5]
    assert all(name.isidentifier() for name in last)
    assert float(last["top1"]) == odd.steps["top1"][-1]
    assert (float(last["top1_low"]), float(last["top1_high"])) == tuple(odd.intervals["top1"][-1])
    assert float(last["top1_less_ann_high"]) == odd.less_ann[-1].high
    assert float(last["joules_full"]) == odd.energy["full"]["snn"][-1]
    assert (last["step"], last["slots"], last["samples"], last["calibrated"]) == ("6", "6", "32", "32")
    text = saved(page, tmp_path, "#layer-controls [aria-label$=CSV]", "spikecast-A_small_network-layers.csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 6 * len(odd.layers)
    for k, layer in enumerate(odd.layers):
        assert rows[6 * k + 5]["layer"] == layer.name
        assert rows[6 * k + 5]["error"] == ("" if layer.error is None else repr(layer.error[-1]))


@pytest.mark.parametrize("width", [390, 1280])
def test_words_are_not_broken(browser, report, tmp_path: Path, width: int) -> None:
    long = dataclasses.replace(
        report,
        title="timm:vit_base_patch16_224.augreg2_in21k_ft_in1k",
        command="spikecast report demo:cnn --data demo:digits --steps 8 --burst 1 --levels 2 --calibrate 256",
        classes=["aeroplane", "automobile", "grasshopper", "hippopotamus", "salamander"],
    )
    page = opened(browser, long, tmp_path, width)
    assert page.run(BROKEN) == []
    assert all(box["height"] < 30 for box in boxes(page, ".command span"))  # one line each, hyphens or not
    assert page.run("document.documentElement.scrollWidth") == width


def test_tables_are_cards_on_a_phone(browser, report, tmp_path: Path) -> None:
    page = opened(browser, report, tmp_path, 390)
    for table in ("#layer-table", ".steps"):
        box = f"document.querySelector('{table}').parentNode"
        assert page.run(f"{box}.scrollWidth <= {box}.clientWidth")  # nothing lies outside
        cells = (
            f"[...document.querySelectorAll('{table} tbody td')].filter((e) => e.checkVisibility() && e.textContent)"
        )
        labels = page.run(f"{cells}.map((e) => getComputedStyle(e, '::before').content)")
        assert labels
        assert all(len(said) > 2 or said == "none" for said in labels)
    names = page.run(
        "[...document.querySelectorAll('#layer-table tbody td')].map((e) => getComputedStyle(e, '::before').content)"
    )
    assert {'"Spikes"', '"Error"', '"MACs"', '"Energy"'} <= set(names)
    page.click("#layer-table th[data-key=share] button")  # it can still be sorted
    assert (
        page.run("document.querySelector('#layer-table th[data-key=share]').getAttribute('aria-sort')") == "descending"
    )


def test_long_names_are_cut_between_their_parts(browser, report, tmp_path: Path) -> None:
    name = "encoder.layers.11.self_attention.linear.input#2"
    layers = [dataclasses.replace(layer, name=name, op="neurons") for layer in report.networks[0].layers[:1]]
    whole = dataclasses.replace(layers[0], name="x" * 60)
    changed = dataclasses.replace(report.networks[0], layers=[*layers, whole])
    page = opened(browser, dataclasses.replace(report, networks=[changed]), tmp_path, 390)
    names = page.run("[...document.querySelectorAll('#layer-table tbody th')].map((e) => e.textContent)")
    assert names[0] == "…linear.input#2"
    assert re.fullmatch("…x{20,30}", names[1])  # which has no parts
    assert page.run("document.querySelector('#layer-table tbody th').title").startswith(name)


def test_what_scrolls_shows_it(browser, report, tmp_path: Path) -> None:
    page = opened(browser, report, tmp_path, 800)
    box = "document.querySelector('.steps').parentNode"
    assert page.run(f"{box}.scrollWidth > {box}.clientWidth")
    assert page.run(f"{box}.hasAttribute('data-right')")
    assert page.run(f"getComputedStyle({box}).maskImage").startswith("linear-gradient")
    page.run(f"{box}.scrollLeft = 10000")
    page.wait(f"!{box}.hasAttribute('data-right')")
    assert page.run(f"getComputedStyle({box}).maskImage") == "none"
    many = [layer for n in report.networks[:1] for layer in n.layers * 9]
    long = dataclasses.replace(report, networks=[dataclasses.replace(report.networks[0], layers=many)])
    page = opened(browser, long, tmp_path, 1280)
    below = "document.querySelector('#layer-table').parentNode"
    page.wait(f"{below}.hasAttribute('data-below')")
    page.run(f"{below}.scrollTop = 1e6")
    page.wait(f"!{below}.hasAttribute('data-below')")
