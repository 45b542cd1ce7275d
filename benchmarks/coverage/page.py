"""The table of docs/supported.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.coverage.models import Case

BEGIN, END = "<!-- coverage -->", "<!-- /coverage -->"
HEAD = "| {} | network | M parameters | image | capture | error, T = 2 | T = 16 | |\n|---|---|---|---|---|---|---|---|"
Results = Mapping[str, Mapping[str, Any]]


def write_page(path: Path, cases: Sequence[Case], found: Results) -> None:
    """Put the tables between their two marks; the text around them stays."""
    text = path.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    parts = [part for library in ("timm", "torchvision") for part in _section(library, cases, found)]
    path.write_text(before + "\n\n".join([BEGIN, *parts, END]) + after, encoding="utf-8")


def _section(library: str, cases: Sequence[Case], found: Results) -> list[str]:
    own = [case for case in cases if case.library == library]
    tried = [case for case in own if case.key in found]
    good = [case for case in tried if not why(found[case.key])]
    whole = [case for case in tried if not found[case.key]["failed"] and found[case.key]["same"]]
    said = (
        f"{len(tried)} of {len(own)} were tried. {len(whole)} convert and come back from a file with the same bits; "
        f"{len(good)} of them halve their error from T = 2 to T = 16, or have less than a thousandth at once."
    )
    head = HEAD.format("family" if library == "timm" else "kind")
    rows = [_row(case, found[case.key]) for case in sorted(tried, key=lambda case: (case.family, case.name))]
    commits = Counter(found[case.key]["commit"] for case in tried)
    measured = ", ".join(f"{commit} ({number})" for commit, number in sorted(commits.items()))
    return [f"### {library}", f"{said} Measured at commit: {measured}.", "\n".join([head, *rows])]


def why(record: Mapping[str, Any]) -> str:
    """What is wrong with a network, in one line; nothing where all is well."""
    if record["failed"]:
        return str(record["failed"])
    if not record["same"]:
        return "answers otherwise out of its file"
    return "" if halves(record) else "its error does not halve"


def halves(record: Mapping[str, Any]) -> bool:
    """Whether more steps halve the error; one below a thousandth may be rounding, and has nothing to halve."""
    return bool(record["late"] < record["early"] / 2 or record["early"] < 1e-3)


def _row(case: Case, record: Mapping[str, Any]) -> str:
    size = "×".join(map(str, record.get("shape", case.shape)[1:]))
    if record["failed"]:
        return f"| {case.family} | {case.name} | | {size} | | | | {why(record).replace('|', '/')} |"
    figures = f"{record['parameters'] / 1e6:.1f} | {size} | {record['capture']:.0f} s"
    said = why(record) or ("by regions" if record.get("regions") else "")
    return f"| {case.family} | {case.name} | {figures} | {record['early']:.3f} | {record['late']:.3f} | {said} |"
