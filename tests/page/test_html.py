"""The page without a browser: well-formed, in need of nothing, and safe whatever the names are; figures for papers."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from spikecast.errors import ConfigError, MissingExtraError
from spikecast.measure.intervals import UNKNOWN, Interval
from spikecast.measure.tasks import Metric
from spikecast.page import ReportData, write_plots
from spikecast.page.data import Layer, NetworkData
from spikecast.page.html import SCRIPTS, embedded, head_of, page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&${evil}$title"
VOID = {"meta", "img", "br", "input", "link"}


def network(name: str, accuracy: float, ratio: float, burst: int = 1) -> NetworkData:
    energy = {"ann": 2e-6, "snn": [1e-6, ratio * 2e-6], "ratio": [ratio / 2, ratio]}
    layer = Layer("a", "a", "conv2d", "", "synapse", "synapse", None, 10, None, None, None, None, {"paper": [1.0, 1.0]})
    steps = {"top1": [0.5, accuracy], "top5": [1.0, 1.0]}
    costs = dict.fromkeys(("paper", "honest", "full"), energy)
    slots, seen = [burst, 2 * burst], dict[str, Any](graph=[], traces=[], examples=[], disagree=0)
    within = {"top1": [Interval(0.4, 0.6), Interval(accuracy - 0.125, 0.95)], "agreement": [Interval(0.45, 0.93)] * 2}
    less = [Interval(-0.5, -0.25), Interval(-0.125, 0.0625)]
    return NetworkData(
        name, {"num_levels": 2}, slots, steps, [0.5, 0.9], within, less, costs, [0.5, 1], "s", 0.9, [layer], **seen
    )  # fmt: skip


def report(**changes: object) -> ReportData:
    networks = [network("one", 0.8, 0.5), network("two", 0.8, 0.25)]
    base = ReportData(
        title="Title", task="classification", metric="top1", how=Metric(), samples=1234, layer_samples=3,
        ann={"top1": 0.875}, ann_interval=Interval(0.855, 0.8925), networks=networks,
        traced=[], classes=[], command="spikecast report x", made="2026-01-01T00:00:00+00:00",
        versions={"torch": "2"},
    )  # fmt: skip
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


class Checker(HTMLParser):
    """Notes what is nested, and refuses what is not closed in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def parsed(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    return checker


def test_page_is_well_formed_and_accessible() -> None:
    found = parsed(page(report()))
    tags = [tag for tag, _ in found.tags]
    assert [tags.count(tag) for tag in ("html", "head", "body", "main", "h1", "title")] == [1] * 6
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = [attrs[key] for _, attrs in found.tags for key in ("aria-labelledby", "aria-describedby") if key in attrs]
    assert set(named) <= set(ids)
    links = [attrs["href"] for tag, attrs in found.tags if tag == "a"]
    assert {str(link).removeprefix("#") for link in links} <= set(ids)
    assert ("html", {"lang": "en"}) in found.tags
    assert tags.count("caption") == tags.count("table") - 1  # the script gives the other table its caption


def test_page_needs_nothing_from_anywhere() -> None:
    text = page(report())
    parsed(text)
    addresses = set(re.findall(r"https?://[^\s\"'<>)]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, which nobody opens
    assert not re.search(r"@import|url\(|<link|src=|fetch\(|XMLHttpRequest|innerHTML|document\.write|eval\(", text)


def test_only_our_script_and_style_may_run() -> None:
    text = page(report())
    policy = next(a["content"] for t, a in parsed(text).tags if t == "meta" and "http-equiv" in a)
    for tag in ("script", "style"):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert body is not None
        digest = base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in str(policy)
    assert "default-src 'none'" in str(policy)
    assert "unsafe" not in str(policy)


def test_hostile_text_stays_text() -> None:
    networks = [dataclasses.replace(network(EVIL, 0.8, 0.5), config={"overrides": {EVIL: None}}, summary=EVIL)]
    changed = report(title=EVIL, command=EVIL, classes=[EVIL], versions={EVIL: EVIL}, networks=networks)
    text = page(changed)
    found, plain = parsed(text), parsed(page(report(networks=[network("one", 0.8, 0.5)])))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]  # not one element more
    assert found.texts["h1"] == [EVIL]
    assert found.texts["code"] == [EVIL]
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert ReportData.from_json(json.loads(data[1])) == changed


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&lt;", "\u2028"])
def test_embedded_json_cannot_end_its_element(text: str) -> None:
    found = embedded({"a": [text]})
    assert not set("<>&\u2028") & set(found)
    assert json.loads(found) == {"a": [text]}


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded(float("nan"))


def numbers(**changes: object) -> ReportData:
    """A report of a figure that is no share, of which less is better."""
    networks = [
        dataclasses.replace(
            network(name, 0.5, 0.5),
            steps={"perplexity": [9.0, value]},
            intervals={"perplexity": [Interval(8.0, 10.0), Interval(value - 1, value + 1)], "agreement": [INSIDE] * 2},
            less_ann=[Interval(0.5, 6.5), Interval(-0.25, 2.5)],
        )
        for name, value in (("more", 6.0), ("less", 5.0))
    ]
    given = {"metric": "perplexity", "how": Metric("", more=False), "ann": {"perplexity": 4.0}, "networks": networks}
    return report(**{**given, "ann_interval": Interval(3.0, 5.5), **changes})


INSIDE = Interval(0.45, 0.93)


def test_intervals_stand_beside_their_figures() -> None:
    text = page(report())
    assert (
        "reaches <b>80.0\u00a0%</b> where the ANN has 87.5\u00a0%: a difference of -7.5 points (-12.5 to +6.2)" in text
    )
    assert "Accuracy, ANN; 95 %: 85.5–89.2" in text
    assert "SNN after 2 steps, 2 slots; 95 %: 67.5–95.0" in text
    assert "Agreement of the two; 95 %: 45.0–93.0" in text
    row = re.findall(r"<tr>.*?</tr>", text)[1]
    for cell in ("50.0<small>40.0–60.0", "80.0<small>67.5–95.0", "90.0<small>45.0–93.0"):
        assert f"<td>{cell}</small></td>" in row.replace(' class="gap"', "")
    assert "<td>-7.5 points<small>-12.5 to +6.2</small></td>" in row


def test_figures_that_are_no_shares() -> None:
    text = page(numbers())
    assert head_of(numbers()).name == "less"
    assert "reaches perplexity <b>5</b> where the ANN has 4: a difference of 1 (-0.25 to 2.5)" in text
    assert "<td>5<small>4–6</small></td>" in text
    assert "Perplexity after each step" in text
    assert '<h2 id="curves-title">Perplexity, time and energy</h2>' in text


def test_what_one_sample_leaves_unknown_is_said_in_words() -> None:
    networks = [dataclasses.replace(n, less_ann=[UNKNOWN] * len(n.less_ann)) for n in numbers().networks]
    text = page(numbers(ann_interval=UNKNOWN, networks=networks)).partition("<script")[0]
    assert "<td>4<small>unknown</small></td>" in text
    assert "a difference of 1 (unknown)" in text
    assert "e+308" not in text


def test_one_step_is_one_step() -> None:
    short = dataclasses.replace(network("one", 0.8, 0.5), steps={"top1": [0.5]}, agreement=[0.5])
    text = page(report(networks=[short]))
    assert "After <b>1 time-step</b>" in text
    assert "SNN after 1 step, " in text


def test_head_speaks_of_the_most_accurate_network() -> None:
    assert head_of(report()).name == "two"  # as accurate, and cheaper
    text = " ".join(" ".join(parts) for parts in parsed(page(report())).texts.values())
    for said in ("1,234 samples", "87.5", "80.0", "500 n", "spikecast report x"):
        assert said.strip() in text


def test_pulse_slots_are_shown_beside_the_steps() -> None:
    text = page(report(networks=[network("one", 0.8, 0.5), network("many", 0.9, 0.5, burst=7)]))
    assert "SNN after 2 steps, 14 slots" in text
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", text)[1:]]
    at = heads.index("Slots") - 1  # the first head is that of the names
    assert [row[at] for row in rows] == ["", "2", "14"]  # of the ANN and of both networks
    assert {len(row) for row in rows} == {len(heads) - 1}


def test_many_steps_are_shown_in_powers_of_two() -> None:
    long = dataclasses.replace(network("long", 0.8, 0.5), steps={"top1": [0.5] * 20}, agreement=[0.5] * 20)
    long = dataclasses.replace(long, intervals={"top1": [INSIDE] * 20, "agreement": [INSIDE] * 20})
    text = page(report(networks=[long]))
    assert re.findall(r"after step </span>(\d+)", text) == ["1", "2", "4", "8", "16", "20"]


def test_scripts_are_all_there() -> None:
    folder = Path(sys.modules["spikecast.page"].__file__ or "").parent / "assets"
    assert {p.name for p in folder.glob("*.js")} == set(SCRIPTS)


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_plots(kind: str, tmp_path: Path) -> None:
    first, second = (write_plots(report(), tmp_path / f"{n}.{kind}", costs="full").read_bytes() for n in "ab")
    assert first == second  # nothing in it depends on when it was drawn
    assert first.startswith({"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[kind])
    if kind == "svg":
        text = " ".join(ElementTree.fromstring(first).itertext())
        for said in ("one", "two", "ANN", "time-steps", "(full costs)"):
            assert said in text
        assert "slots" not in text
        assert first.count(b"PolyCollection") == 4  # the bands of two networks, in two panels
        assert "perplexity (%)" not in (written := write_plots(numbers(), tmp_path / "n.svg").read_text())
        assert "perplexity" in written
        assert written.count("PolyCollection") == 4
        unknown = {"perplexity": [UNKNOWN] * 2}
        networks = [dataclasses.replace(n, intervals=unknown) for n in numbers().networks]
        bare = write_plots(numbers(networks=networks), tmp_path / "bare.svg").read_text()
        assert "PolyCollection" not in bare  # a band of all numbers would leave no room for the curve
        write_plots(report(networks=[network("many", 0.9, 0.5, burst=7)]), tmp_path / "many.svg")
        assert "many, 7 slots a step" in (tmp_path / "many.svg").read_text()


def test_plots_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"curves\.gif ends in none of"):
        write_plots(report(), tmp_path / "curves.gif")
    with pytest.raises(ConfigError, match="costs='cheap'"):
        write_plots(report(), tmp_path / "curves.svg", costs="cheap")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'spikecast\[report\]'"):
        write_plots(report(), tmp_path / "curves.svg")
    assert list(tmp_path.iterdir()) == []
