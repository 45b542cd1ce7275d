"""A small SVG canvas: pictures that read on light and on dark pages, and on a phone, with one set of colours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH = 480  # of every picture: about as wide as a phone, so that letters stay letters there
STYLE = """
svg { color-scheme: light dark; font: 13px system-ui, sans-serif }
text { fill: #1f2933 } .soft { fill: #52606d } .small { font-size: 11.5px } .bold { font-weight: 600 }
.back { fill: #fff } .box { fill: #eef1f5; stroke: #9aa5b1 } .zone { fill: #eef1f5 }
.axis, .wire { fill: none; stroke: #6b7885; stroke-width: 1.2 } .tip { fill: #6b7885 }
.faint { fill: none; stroke: #9aa5b1; stroke-dasharray: 3 3 }
.box.a { stroke: #1f5fbf; stroke-width: 2 } .a { stroke: #1f5fbf } .b { stroke: #b4470b } .c { stroke: #1b7a48 }
.curve { fill: none; stroke-width: 2 } .fa { fill: #1f5fbf } .fb { fill: #b4470b } .fc { fill: #1b7a48 }
@media (prefers-color-scheme: dark) {
text { fill: #e4e9ee } .soft { fill: #b3bfcb }
.back { fill: #1e2129 } .box { fill: #29323d; stroke: #64748b } .zone { fill: #29323d }
.axis, .wire { stroke: #9fb3c8 } .tip { fill: #9fb3c8 } .faint { stroke: #64748b }
.box.a { stroke: #82b1ff } .a { stroke: #82b1ff } .b { stroke: #ffab70 } .c { stroke: #74d3a0 }
.fa { fill: #82b1ff } .fb { fill: #ffab70 } .fc { fill: #74d3a0 }
}
"""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path class="tip" d="M0,0 8,4 0,8z"/></marker></defs>'
)


class Canvas:
    """Shapes one over another; `svg` is the picture, which says in words what it shows."""

    def __init__(self, height: float, title: str) -> None:
        self.height, self.title = height, title
        self.parts: list[str] = []

    def text(self, x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> None:
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}"{where}>{escape(said)}</text>')

    def rect(self, x: float, y: float, width: float, height: float, kind: str = "box", round_: float = 4) -> None:
        size = f'width="{_n(width)}" height="{_n(height)}"'
        self.parts.append(f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" {size} rx="{_n(round_)}"/>')

    def line(self, points: Sequence[tuple[float, float]], kind: str = "axis", tip: bool = False) -> None:
        path = "L".join(f"{_n(x)},{_n(y)}" for x, y in points)
        end = ' marker-end="url(#tip)"' if tip else ""
        self.parts.append(f'<path class="{kind}" d="M{path}"{end}/>')

    def dot(self, x: float, y: float, kind: str, radius: float = 3.5) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"/>')

    def box(self, x: float, y: float, width: float, lines: Sequence[str], kind: str = "box") -> float:
        """A box with a bold line and others under it; returns its height."""
        height = 12 + 17 * len(lines)
        self.rect(x, y, width, height, kind)
        for i, line in enumerate(lines):
            self.text(x + width / 2, y + 19 + 17 * i, line, "small soft" if i else "bold", "middle")
        return height

    def svg(self) -> str:
        size = f'viewBox="0 0 {WIDTH} {_n(self.height)}" width="{round(WIDTH * 1.2)}"'
        head = [f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>', f"<title>{escape(self.title)}</title>"]
        back = f'<rect class="back" width="{WIDTH}" height="{_n(self.height)}" rx="6"/>'
        return "\n".join([*head, f"<style>{STYLE}</style>", TIP, back, *self.parts, "</svg>\n"])


def _n(value: float) -> str:
    """A coordinate in as few letters as a picture needs."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
