"""The picture of the report in the docs: there, small, of the size its script draws, and described in words."""

from __future__ import annotations

import re
import struct
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_of_the_report() -> None:
    data = (DOCS / "report.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(data) < 200_000
    drawn = re.search(r"^SIZE = \((\d+), (\d+)\)", (DOCS / "draw_report.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert drawn is not None
    assert struct.unpack_from(">II", data, 16) == tuple(map(int, drawn.groups()))
    (words,) = re.findall(r"!\[([^\]]+)\]\(report\.png\)", (DOCS / "report.md").read_text(encoding="utf-8"))
    assert len(words) > 40  # for those who cannot see it


def test_the_command_in_the_docs_is_the_one_that_draws_it() -> None:
    script = (DOCS / "draw_report.py").read_text(encoding="utf-8")
    words = re.search(r"^REPORT = \((.*?)^\)", script, re.MULTILINE | re.DOTALL)
    assert words is not None
    command = " ".join(["spikecast", *re.findall(r'"([^"]+)"', words[1])])
    assert command in re.sub(r"\s+", " ", (DOCS / "report.md").read_text(encoding="utf-8"))
