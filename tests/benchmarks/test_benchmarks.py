"""The figures of `make bench`: ratios of what ran in turns, percentiles, goals, and the file they are added to."""

from __future__ import annotations

import csv

import pytest

from benchmarks.timing import FIELDS, Row, append, in_turns, percentiles, ratio, single


def test_in_turns() -> None:
    order = []
    times = in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3, warm=2)
    assert order == ["a", "a", "b", "b", *["a", "b"] * 3]
    assert {name: len(t) for name, t in times.items()} == {"a": 3, "b": 3}


def test_ratio_is_taken_round_by_round() -> None:
    row = ratio("x", [2.0, 6.0, 4.0], [1.0, 2.0, 4.0], "<= 1.9")
    assert (row.p50, row.best) == (2.0, 2.0)
    assert row.is_met is False
    assert "MISSED" in str(row)


@pytest.mark.parametrize(
    ("goal", "met"), [("<= 2", True), ("<= 1.9", False), (">= 2", True), (">= 2.1", False), ("", None)]
)
def test_goals(goal, met) -> None:
    assert single("x", [3.0, 2.0], "s", goal).is_met is met


def test_percentiles() -> None:
    assert percentiles([7.0]) == (7.0, 7.0, 7.0)
    assert percentiles([float(i) for i in range(11)]) == pytest.approx((2.0, 5.0, 8.0))


def test_rows_are_added(tmp_path) -> None:
    path = tmp_path / "new" / "results.csv"
    row = Row("a name, with a comma", "x", 1, 2, 3, 1, "<= 2")
    append(path, [row])
    append(path, [row, row])
    lines = list(csv.DictReader(path.read_text().splitlines()))
    assert len(lines) == 3
    assert tuple(lines[0]) == FIELDS
    assert all(line["name"] == row.name and line["p50"] == "2" and line["cpu"] for line in lines)
