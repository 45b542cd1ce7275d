"""Plain tables and numbers for people."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells in columns, none cut off; the first is the head. What may be long goes into the last column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def si(value: float, unit: str = "") -> str:
    """A number with three digits and a prefix: 12.3 M."""
    value = float(f"{value:.3g}")  # 999.6 is 1 k, not 1e+03
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}".rstrip()
    return f"{value * 1e12:.3g} p{unit}" if unit and value else f"{value:.3g}"


def many(number: int, noun: str, plural: str = "") -> str:
    """So many of something, where one is one: 1 site, 4 sites."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def duration(seconds: float) -> str:
    """A time as people say it: 45 s, 12 min, 3 h 20 min, 2 d 5 h."""
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def printable(name: str) -> str:
    """The name of a file for people: bytes that are no UTF-8 are written as \\udcff."""
    return name.encode(errors="backslashreplace").decode()


def comma_separated(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as comma-separated values in full precision; the first says what the columns are."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def op_word(target: str) -> str:
    """An op as people call it: conv2d for aten.conv2d.default."""
    return target.removeprefix("aten.").rsplit(".", 1)[0]
