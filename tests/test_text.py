"""Tables and numbers for people."""

from __future__ import annotations

import pytest

from spikecast.text import columns, duration, printable, si


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    long = "x" * 200
    assert columns([("a", "b", "c"), (long, "1", ""), ("", "22", "3")]) == "\n".join(
        [f"a{' ' * 199}  b   c", f"{long}  1", f"{' ' * 200}  22  3"]
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12_345_678, "", "12.3 M"),
        (999, "", "999"),
        (0, "J", "0"),
        (0.0045, "J", "4.5 mJ"),
        (2.5e-11, "J", "25 pJ"),
        (-1500, "", "-1.5 k"),
        (999.6e-9, "J", "1 µJ"),  # rounded first
        (999.6, "", "1 k"),
    ],
)
def test_si(value: float, unit: str, text: str) -> None:
    assert si(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.01, "1 s"),
        (45, "45 s"),
        (70, "1 min"),
        (3599, "1 h 0 min"),
        (12_000, "3 h 20 min"),
        (2 * 86400 + 5 * 3600, "2 d 5 h"),
    ],
)
def test_durations(seconds, text) -> None:
    assert duration(seconds) == text


def test_names_that_are_no_text() -> None:
    assert printable("a\udcff.html") == "a\\udcff.html"
    assert printable("Zürich.html") == "Zürich.html"
