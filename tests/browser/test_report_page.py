"""The report as a reader meets it: drawn, pointed at, sorted, filtered, in both colour schemes and at three widths."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from spikecast.measure.intervals import Interval
from spikecast.measure.tasks import Metric
from spikecast.page.data import NetworkData, ReportData

pytestmark = pytest.mark.browser

READY = "document.documentElement.dataset.ready === 'true'"
WIDTHS = (390, 1280, 1920)

# The least contrast of all text that is shown, with the text that has it (WCAG 2: 4.5 is enough for any size).
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = (c) => [.2126, .7152, .0722].reduce((sum, w, i) => sum + w * linear(c[i] / 255), 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; }
    return [255, 255, 255];
  };
  let worst = [99, ''];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest('script, title, noscript, option')) continue;
    const style = getComputedStyle(e), ink = e instanceof SVGElement ? style.fill : style.color;
    const a = light(rgb(ink)), b = light(behind(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst[0]) worst = [ratio, `${e.tagName} ${e.className} ${walk.currentNode.data.slice(0, 40)}`];
  }
  return worst;
})()"""


def names(page) -> list[str]:
    return page.run("[...document.querySelectorAll('#layer-table tbody th')].map((e) => e.title)")


def column(page, index: int) -> list[str]:
    cells = "[...document.querySelectorAll('#layer-table tbody tr')].map((e) => e.cells[{}].textContent)"
    return [said.replace("\u00a0", " ") for said in page.run(cells.format(index))]


def text(page, selector: str) -> str:
    return page.run(f"document.querySelector({json.dumps(selector)}).textContent").replace("\u00a0", " ")


def number(page, selector: str) -> int:
    return page.run(f"document.querySelectorAll({json.dumps(selector)}).length")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_page_is_drawn(browser, report, tmp_path: Path, width: int, dark: bool) -> None:
    browser.size(width, dark=dark)
    path = report.write_html(tmp_path / "report.html")
    browser.open(path)
    browser.wait(READY)
    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]  # the file, and nothing from anywhere
    assert browser.run("document.documentElement.scrollWidth") == width  # only tables scroll sideways
    least, where = browser.run(CONTRAST)
    assert least >= 4.5, where
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(c) for c in paper[4:-1].split(",")) < 200) == dark
    folder = Path(os.environ.get("SPIKECAST_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"report-{width}-{'dark' if dark else 'light'}.png"
    browser.screenshot(picture)
    assert picture.stat().st_size > 20_000  # a blank page is smaller


def test_pointing_at_the_curves_reads_values(page, report) -> None:
    assert page.run("document.querySelector('#curve-chart .tip').hidden")
    page.mouse("#curve-chart svg", x=0.98)
    said = text(page, "#curve-chart .tip")
    assert "After 6 steps" in said
    for network in report.networks:
        assert f"{network.name}{100 * network.steps['top1'][-1]:.1f} %" in said
        assert f"{network.slots[-1]} slots, {100 * network.energy['paper']['ratio'][-1]:.1f} % energy" in said
    page.mouse("#curve-chart svg", x=0.02)
    assert "After 1 step" in text(page, "#curve-chart .tip")
    page.mouse("#curves-title")
    assert page.run("document.querySelector('#curve-chart .tip').hidden")


def test_bands_hold_the_intervals(page, report) -> None:
    assert number(page, "#curve-chart .range") == 2
    assert number(page, "#curve-chart .whisker") == 0
    page.mouse("#curve-chart svg", x=0.98)
    low, high = report.networks[0].intervals["top1"][-1]
    assert f"({100 * low:.1f} % to {100 * high:.1f} %), " in text(page, "#curve-chart .tip")
    box = "document.querySelector('#curve-chart {}').getBoundingClientRect()"
    ends = page.run(f"[{box.format('.range')}, {box.format('.line')}].flatMap((b) => [b.top, b.bottom])")
    assert ends[0] < ends[2] < ends[3] < ends[1]  # the band begins above the line and ends below it


def cut(report: ReportData, steps: int) -> ReportData:
    """The same networks after their first steps."""
    networks = [
        dataclasses.replace(
            n,
            slots=n.slots[:steps],
            steps={name: each[:steps] for name, each in n.steps.items()},
            agreement=n.agreement[:steps],
            intervals={name: each[:steps] for name, each in n.intervals.items()},
            less_ann=n.less_ann[:steps],
        )
        for n in report.networks
    ]
    return dataclasses.replace(report, networks=networks)


def test_one_step_is_a_point_with_its_interval(browser, report, tmp_path: Path) -> None:
    browser.size(1280)
    browser.open(cut(report, 1).write_html(tmp_path / "one.html"))
    browser.wait(READY)
    assert number(browser, "#curve-chart .whisker") == number(browser, "#curve-chart .dot") == 2
    assert number(browser, "#curve-chart .range") == 0
    boxes = "[...document.querySelectorAll('#curve-chart .whisker')].map((e) => e.getBoundingClientRect())"
    places = browser.run(f"{boxes}.map((b) => [b.left, b.right, b.height])")
    assert places[0][1] < places[1][0]  # side by side, in the middle
    assert 500 < places[0][0] < places[1][1] < 800
    assert all(height > 20 for _, _, height in places)
    browser.mouse("#curve-chart svg", x=0.6)
    assert "After 1 step" in text(browser, "#curve-chart .tip")
    browser.click("#curve-controls input[value=energy] + label")
    assert number(browser, "#curve-chart .whisker") == 2
    assert browser.complaints() == []


def test_a_figure_that_is_no_share(browser, report, tmp_path: Path) -> None:
    def changed(n: NetworkData) -> NetworkData:
        values = [12.5 - t for t in range(6)]
        within = {**n.intervals, "perplexity": [Interval(x - 2, x + 2) for x in values]}
        return dataclasses.replace(n, steps={"perplexity": values}, intervals=within)

    how, ann = Metric("", more=False), {"perplexity": 6.25}
    numbers = dataclasses.replace(report, metric="perplexity", how=how, ann=ann, ann_interval=Interval(5.0, 7.5))
    numbers = dataclasses.replace(numbers, networks=[changed(n) for n in report.networks])
    browser.size(1280)
    browser.open(numbers.write_html(tmp_path / "numbers.html"))
    browser.wait(READY)
    said = text(browser, "#curve-chart svg")
    assert "%" not in said
    assert "ANN 6.25" in said
    browser.mouse("#curve-chart svg", x=0.98)
    assert "7.5(5.5 to 9.5), 6 slots" in text(browser, "#curve-chart .tip")
    browser.click("#curve-controls input[value=agreement] + label")
    assert "Agreement with the ANN, %" in text(browser, "#curve-chart svg")
    assert browser.complaints() == []


def test_keys_read_the_curves(page) -> None:
    page.run("document.querySelector('#curve-chart').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert "After 2 steps" in text(page, "#curve-chart .tip")
    page.press("ArrowLeft")
    assert "After 1 step" in text(page, "#curve-chart .tip")


def test_legend_takes_a_curve_away_and_back(page) -> None:
    button = "#curve-legend button:nth-child(2)"
    assert number(page, "#curve-chart .line") == 2
    page.click(button)
    assert number(page, "#curve-chart .line") == 1
    assert page.run(f"document.querySelector('{button}').getAttribute('aria-pressed')") == "false"
    page.mouse("#curve-chart svg", x=0.98)
    assert "rate" not in text(page, "#curve-chart .tip")
    page.click("#curve-legend button:nth-child(1)")
    assert number(page, "#curve-chart .line") == 0
    page.click(button)
    assert number(page, "#curve-chart .line") == 1
    assert page.complaints() == []


def test_axes_and_costs(page, report) -> None:
    path = "document.querySelector('#curve-chart .line').getAttribute('d')"
    before = page.run(path)
    page.click("#curve-controls input[value=energy] + label")
    assert "Energy, % of the ANN’s (paper costs)" in text(page, "#curve-chart svg")
    by_energy = page.run(path)
    page.click("#curve-controls input[value=full] + label")
    assert "(full costs)" in text(page, "#curve-chart svg")
    page.mouse("#curve-chart svg", x=0.98)
    assert "energy" in text(page, "#curve-chart .tip")
    page.click("#curve-controls input[value=agreement] + label")
    assert "Agreement with the ANN" in text(page, "#curve-chart svg")
    assert len({before, by_energy, page.run(path)}) == 3
    # the choice of costs holds in the table of layers as well
    assert page.run("document.querySelector('#layer-controls input[value=full]').checked")
    layers = report.networks[0].layers
    joules = [sum(layer.joules["full"]) for layer in layers]
    assert column(page, 7)[1] == f"{100 * joules[1] / sum(joules):.1f} %"


def test_layers_sort_by_a_column(page) -> None:
    order = names(page)
    head = "#layer-table th[data-key=share]"
    sorting = f"document.querySelector('{head}').getAttribute('aria-sort')"
    page.click(f"{head} button")
    assert page.run(sorting) == "descending"
    shares = [float(cell.split()[0]) for cell in column(page, 7)]
    assert shares == sorted(shares, reverse=True)
    assert len(set(shares)) > 2
    page.click(f"{head} button")
    assert page.run(sorting) == "ascending"
    assert [float(cell.split()[0]) for cell in column(page, 7)] == sorted(shares)
    page.click(f"{head} button")
    assert page.run(sorting) == "none"
    assert names(page) == order
    page.click("#layer-table th[data-key=theta] button")
    values = column(page, 2)
    assert values[-1] == "–"  # what has no value stays last, whichever way
    page.click("#layer-table th[data-key=theta] button")
    assert column(page, 2)[-1] == "–"


def test_layers_filter(page) -> None:
    every = names(page)
    page.run("document.querySelector('#layer-filter').focus()")
    for letter in "conv2d":
        page.press(letter, letter)
    found = names(page)
    assert 0 < len(found) < len(every)
    assert all("conv2d" in name for name in found)
    assert text(page, "#layer-count").startswith(f"{len(found)} of {len(every)} layers")
    page.press("z", "z")
    assert names(page) == []
    assert page.complaints() == []


def test_layers_after_an_earlier_step(page, report) -> None:
    page.run(
        "(() => { const s = document.querySelector('#layer-controls select'); s.value = '1';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    site = next(i for i, layer in enumerate(report.networks[0].layers) if layer.error)
    assert column(page, 4)[site] == f"{100 * report.networks[0].layers[site].error[0]:.1f} %"


def test_graph_shows_every_op(page, report) -> None:
    nodes = report.networks[0].graph
    assert number(page, "#graph-box .node") == number(page, "#graph-box li") == len(nodes)
    assert number(page, "#graph-box .wire") == sum(len(node.inputs) for node in nodes)
    titles = page.run("[...document.querySelectorAll('#graph-box .node title')].map((e) => e.textContent)")
    assert all(node.role in title for node, title in zip(nodes, titles, strict=True))
    site = report.networks[0].traces[-1].site
    page.click(f"#graph-box li:nth-child({1 + next(i for i, n in enumerate(nodes) if n.name == site)}) button")
    assert page.run("document.querySelector('#site-select').value") == site


def test_neurons_follow_their_controls(page, report) -> None:
    trace = report.networks[0].traces[0]
    page.run(
        "(() => { const s = document.querySelector('#site-select'); s.value = s.options[0].value;"
        " s.dispatchEvent(new Event('change')); })()"
    )
    fired = sum(level != 0 for step in trace.levels[0] for pulses in step for level in pulses)
    assert number(page, "#neuron-charts .plus, #neuron-charts .minus") == fired
    page.click("#neuron-controls .thumbs button:nth-child(2)")
    fired = sum(level != 0 for step in trace.levels[1] for pulses in step for level in pulses)
    assert number(page, "#neuron-charts .plus, #neuron-charts .minus") == fired
    before = text(page, "#neuron-charts")
    page.run("document.querySelector('#step-range').focus()")
    page.press("ArrowLeft")
    assert "Estimate after step 5" in text(page, "#neuron-charts") != before
    page.mouse("#neuron-charts .hit[data-k='0']")
    assert f"activation {max(trace.activations[1]):.3g}"[:15] in text(page, "#neuron-note")
    assert number(page, "#neuron-charts .on") == 2


def test_another_network_is_looked_into(page, report) -> None:
    before = column(page, 3)
    page.click("#network-chooser span:nth-child(2) > label")
    assert column(page, 3) != before
    assert number(page, "#example-list li") == len(report.networks[1].examples)
    assert page.complaints() == []


def test_theme_is_switched_by_hand(page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.run(paper)
    page.click("#theme")
    assert page.run(paper) != before
    assert text(page, "#theme") == "Light"
    page.click("#theme")
    assert page.run(paper) == before
    page.run("localStorage.clear()")  # the choice is kept, also for the next test


def test_every_control_has_a_name(page) -> None:
    page.send("Accessibility.enable")
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "radio", "combobox", "searchbox", "slider", "link", "image", "table", "region"}
    found = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
    assert [role for role, name in found if role in roles and not name.strip()] == []
    assert {role for role, _ in found} >= {"button", "radio", "searchbox", "slider", "table"}


def test_print_has_no_controls_and_is_light(page) -> None:
    page.size(1280, dark=True)
    page.send("Emulation.setEmulatedMedia", media="print")
    assert not page.run("document.querySelector('#curve-controls').checkVisibility()")
    assert page.run("document.querySelector('#layer-table').checkVisibility()")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    box = "document.querySelector('#graph-box')"
    assert page.run(f"{box}.scrollHeight <= {box}.clientHeight + 1")  # nothing is hidden in a box that scrolls


def test_hostile_text_stays_text(browser, report, tmp_path: Path) -> None:
    evil = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    networks = [
        dataclasses.replace(n, name=f"{evil}{i}", summary=evil, notes=[evil]) for i, n in enumerate(report.networks)
    ]
    changed = dataclasses.replace(report, title=evil, command=evil, classes=[evil] * 5, networks=networks)
    browser.open(changed.write_html(tmp_path / "evil.html"))
    browser.wait(READY)
    assert browser.run("window.hacked") is None
    assert text(browser, "h1") == evil
    assert number(browser, "img[src=x]") == 0
    assert browser.complaints() == []
