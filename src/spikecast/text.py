"""Plain tables and numbers for people."""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def columns(rows: Sequence[Sequence[str]], most: int = 44) -> str:
    """Rows of cells in columns; the first is the head."""
    widths = [min(max(len(row[i]) for row in rows), most) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell[:most].ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def si(value: float, unit: str = "") -> str:
    """A number with three digits and a prefix: 12.3 M."""
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}".rstrip()
    return f"{value * 1e12:.3g} p{unit}" if unit and value else f"{value:.3g}"
