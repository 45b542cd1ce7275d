"""The picture of the house is that of the imports as they are now."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

DOCS = Path(__file__).parents[2] / "docs"
drawn = runpy.run_path(str(DOCS / "draw_architecture.py"))


def test_the_picture_in_docs_is_what_is_drawn() -> None:
    committed = (DOCS / "architecture.svg").read_text(encoding="utf-8")
    assert committed == drawn["drawing"](), "imports have changed: make architecture"


def test_every_room_is_in_the_picture() -> None:
    package = DOCS.parent / "src" / "spikecast"
    rooms = {p.stem for p in package.iterdir() if (p / "__init__.py").is_file() or p.suffix == ".py"}
    root = ElementTree.fromstring((DOCS / "architecture.svg").read_text(encoding="utf-8"))
    names = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "name"}
    assert names == {room for room in rooms if not room.startswith("_")} | {"spikecast"}


def test_imports_are_those_of_the_source() -> None:
    """By hand: theory reads the settings' types, errors imports nothing, and nothing below imports the command line."""
    counts = drawn["imports"]({room for floor in drawn["floors"]() for room in floor})
    assert ("theory", "config") in counts
    assert not [pair for pair in counts if pair[0] == "errors" or pair[1] == "cli"]
