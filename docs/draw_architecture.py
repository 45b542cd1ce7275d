"""The house in one picture, drawn from the imports that are really there: python docs/draw_architecture.py

Rooms are boxes, one under another as the import contract of pyproject.toml stacks them; what stands side by side there
shares a floor. Each imported room has one wire: a dot is a room that imports it, the arrow leads into it; dashed are
the ways up. What a room is for is the first line of its docstring.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "spikecast"
DOOR = "spikecast"  # the package itself: the public names
ROW, GAP, LEFT, TOP = 30, 10, 12, 12
NAME, BOX, LANE = 104, 660, 17  # widths: of a name, of a box, of the space for one wire
MOST = 78  # letters beside a name
STYLE = """
svg { color-scheme: light dark; font: 13px system-ui, sans-serif; }
.floor { fill: #eef1f5 } .room { fill: #fff; stroke: #9aa5b1 } text { fill: #1f2933 } .name { font-weight: 600 }
.wire { fill: none; stroke: #52667a; stroke-width: 1.2 } .dot { fill: #52667a }
.up { stroke: #b3261e; stroke-dasharray: 4 3 }
.dot.up { fill: #b3261e; stroke: none } .back { fill: #fff }
@media (prefers-color-scheme: dark) {
.floor { fill: #1c2530 } .room { fill: #26323f; stroke: #5c6b7a } text { fill: #e4e9ee }
.wire { stroke: #9fb3c8 } .dot { fill: #9fb3c8 } .up { stroke: #ff8a80 } .dot.up { fill: #ff8a80 }
.back { fill: #11181f }
}
"""


def floors() -> list[list[str]]:
    """Rooms from top to bottom, as the import contract has them; the front door first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return [[DOOR], *([name.strip() for name in layer.split("|")] for layer in contract["layers"])]


def imports(rooms: set[str]) -> dict[tuple[str, str], int]:
    """How many modules of one room are imported by modules of another: {(importer, imported): number}."""
    graph = grimp.build_graph("spikecast", cache_dir=None)
    counts: dict[tuple[str, str], int] = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = (room_of(module), room_of(imported))
            if pair[0] != pair[1] and rooms.issuperset(pair):
                counts[pair] = counts.get(pair, 0) + 1
    return counts


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else DOOR


def purpose(room: str) -> str:
    """The first line of a room's docstring, or the part of it that a box can hold."""
    place = PACKAGE if room == DOOR else PACKAGE / room
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    said = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").partition("\n")[0].rstrip(".")
    said = said.removeprefix("spikecast: ").replace("`", "")
    for end in (r"[:;] ", r", "):  # the whole line, or its first clause, or as much as fits
        if len(said) > MOST:
            said = re.split(end, said)[0]
    return said


def rows(stacked: list[list[str]]) -> dict[str, int]:
    """The height of each room's middle."""
    places, y = {}, TOP
    for floor in stacked:
        for room in floor:
            places[room] = y + ROW // 2
            y += ROW
        y += GAP
    return places


def boxes(stacked: list[list[str]], at: dict[str, int]) -> Iterator[str]:
    for floor in stacked:
        top, height = at[floor[0]] - ROW // 2, ROW * len(floor)
        yield f'<rect class="floor" x="{LEFT}" y="{top - 2}" width="{BOX + 8}" height="{height + 4}" rx="5"/>'
        for room in floor:
            y = at[room]
            yield f'<rect class="room" x="{LEFT + 4}" y="{y - 13}" width="{BOX}" height="26" rx="4"/>'
            yield f'<text class="name" x="{LEFT + 14}" y="{y + 5}">{room}</text>'
            yield f'<text x="{LEFT + 14 + NAME}" y="{y + 5}">{escape(purpose(room))}</text>'


def wires(counts: dict[tuple[str, str], int], at: dict[str, int]) -> Iterator[str]:
    """One wire for each room that is imported; those of lower rooms lie further out, and no arrow crosses a wire."""
    edge = LEFT + 4 + BOX
    imported = sorted({target for _, target in counts}, key=lambda room: at[room])
    lane = {room: edge + 24 + LANE * i for i, room in enumerate(imported)}
    for room, y in at.items():
        reach = [lane[target] for source, target in counts if source == room]
        if reach:
            yield f'<path class="wire" d="M{edge},{y - 6}H{max(reach)}"/>'
    for target in imported:
        sources = sorted(at[source] for source, to in counts if to == target)
        x, y = lane[target], at[target] + 6
        if sources[0] < y:
            yield f'<path class="wire" d="M{x},{sources[0] - 6}V{y}H{edge + 2}" marker-end="url(#arrow)"/>'
        if sources[-1] > y:  # a way up
            yield f'<path class="wire up" d="M{x},{sources[-1] - 6}V{y}"/>'
        for source, to in counts:
            if to == target:
                up = " up" if at[source] > at[target] else ""
                said = f"{source} imports {target}"
                yield f'<circle class="dot{up}" cx="{x}" cy="{at[source] - 6}" r="3.2"><title>{said}</title></circle>'


def drawing() -> str:
    """The whole picture as SVG."""
    stacked = floors()
    at = rows(stacked)
    counts = dict(sorted(imports(set(at)).items()))
    width = LEFT + 4 + BOX + 24 + LANE * len({target for _, target in counts}) + LEFT
    height = max(at.values()) + ROW // 2 + TOP
    arrow = '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
            "<title>The rooms of spikecast, and which imports which</title>",
            f"<style>{STYLE}</style>",
            f'<defs>{arrow}<path class="dot" d="M0,0 8,4 0,8z"/></marker></defs>',
            f'<rect class="back" width="{width}" height="{height}"/>',
            *boxes(stacked, at),
            *wires(counts, at),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    target = ROOT / "docs" / "architecture.svg"
    target.write_text(drawing(), encoding="utf-8")
    print(f"wrote {target}")
