"""The page without a browser: well-formed, in need of nothing, and safe whatever the names are; figures for papers."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spikecast.errors import ConfigError, MissingExtraError
from spikecast.measure.intervals import UNKNOWN
from spikecast.page import ReportData, write_plots
from spikecast.page.html import SCRIPTS, embedded, page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&${evil}$title"
EVIL_WORDS = " ".join("x" for _ in EVIL.split(" "))  # as many, and harmless
VOID = {"meta", "img", "br", "wbr", "input", "link"}


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


def test_page_is_well_formed_and_accessible(report) -> None:
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


def test_page_needs_nothing_from_anywhere(report) -> None:
    text = page(report())
    parsed(text)
    addresses = set(re.findall(r"https?://[^\s\"'<>)]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, which nobody opens
    assert not re.search(r"@import|url\(|<link|src=|fetch\(|XMLHttpRequest|innerHTML|document\.write|eval\(", text)


def test_only_our_script_and_style_may_run(report) -> None:
    text = page(report())
    policy = next(a["content"] for t, a in parsed(text).tags if t == "meta" and "http-equiv" in a)
    for tag in ("script", "style"):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert body is not None
        digest = base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in str(policy)
    assert "default-src 'none'" in str(policy)
    assert "unsafe" not in str(policy)


def test_hostile_text_stays_text(network, report) -> None:
    networks = [
        dataclasses.replace(
            network(EVIL, 0.8, 0.5), config={**network("one", 0.8, 0.5).config, "overrides": {EVIL: None}}, summary=EVIL
        )
    ]
    changed = report(title=EVIL, command=EVIL, classes=[EVIL], versions={EVIL: EVIL}, networks=networks)
    text = page(changed)
    found, plain = parsed(text), parsed(page(report(networks=[network("one", 0.8, 0.5)], command=EVIL_WORDS)))
    # Not one element more, but for the places where a long name may be broken and for the number of overrides.
    assert [t for t, _ in found.tags if t != "wbr"] == [t for t, _ in plain.tags if t != "wbr"]
    assert "".join(found.texts["h1"]) == EVIL
    command = re.search(r"<code>(.*?)</code>", text, re.DOTALL)
    assert command is not None
    assert unescape(re.sub(r"</?span>", "", command[1])) == EVIL
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert ReportData.from_json(json.loads(data[1])) == changed  # what the page adds for its script is left out


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&lt;", "\u2028"])
def test_embedded_json_cannot_end_its_element(text: str) -> None:
    found = embedded({"a": [text]})
    assert not set("<>&\u2028") & set(found)
    assert json.loads(found) == {"a": [text]}


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded(float("nan"))


def test_scripts_are_all_there() -> None:
    folder = Path(sys.modules["spikecast.page"].__file__ or "").parent / "assets"
    assert {p.name for p in folder.glob("*.js")} == set(SCRIPTS)


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_plots(network, report, numbers, kind: str, tmp_path: Path) -> None:
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


def test_plots_that_cannot_be(report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"curves\.gif ends in none of"):
        write_plots(report(), tmp_path / "curves.gif")
    with pytest.raises(ConfigError, match="costs='cheap'"):
        write_plots(report(), tmp_path / "curves.svg", costs="cheap")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'spikecast\[report\]'"):
        write_plots(report(), tmp_path / "curves.svg")
    assert list(tmp_path.iterdir()) == []
