"""The pictures of the documentation are those that are drawn now, fit a phone, and stand on the pages that explain."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PICTURES: dict[str, Callable[[], str]] = runpy.run_path(str(DOCS / "draw"), run_name="draw")["PICTURES"]
SVG = "{http://www.w3.org/2000/svg}"
LETTER = 6.4  # units that a letter of the pictures' type takes at most, in the mean over a line


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_is_drawn(name: str) -> None:
    committed = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert committed == PICTURES[name](), "the neuron or the costs have changed: make pictures"


def test_no_picture_is_left_over() -> None:
    assert {path.stem for path in (DOCS / "pictures").iterdir()} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_no_word_leaves_the_picture(name: str) -> None:
    root = ElementTree.fromstring(PICTURES[name]())
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for text in root.iter(f"{SVG}text"):
        x, y, long = float(text.attrib["x"]), float(text.attrib["y"]), LETTER * len(text.text or "")
        start = x - {"start": 0.0, "middle": long / 2, "end": long}[text.attrib.get("text-anchor", "start")]
        assert start >= 0
        assert start + long <= width, text.text
        assert 8 <= y <= height - 3


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_says_what_it_shows_and_has_dark_colours(name: str) -> None:
    drawn = PICTURES[name]()
    assert re.search(r"<title>.{20,}</title>", drawn)
    assert "prefers-color-scheme: dark" in drawn
    shown = [page for page in DOCS.glob("*.md") if f"(pictures/{name}.svg)" in page.read_text(encoding="utf-8")]
    assert shown


def test_figures_in_the_pictures_are_those_by_hand() -> None:
    """0.69 = 1/2 + 1/4 - 1/16 + 0.0025; a product of 4.6 pJ is 5.1 additions of 0.9 pJ; θ fires from 0.75 θ on."""
    burst, energy, neuron = (PICTURES[name]() for name in ("burst", "energy", "neuron"))
    assert [part for part in ("+1/2 θ", "+1/4 θ", "−1/16 θ", "left 0.0025") if part not in burst] == []
    assert ">5.1<" in energy
    assert ">0.75 θ<" in neuron
    assert ">0.375 θ<" in neuron
