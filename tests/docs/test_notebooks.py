"""The notebooks run as they stand, print what is kept in them, and are linked from the docs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from examples.notebooks.run import NOTEBOOKS, executed

DOCS = Path(__file__).parents[2] / "docs"
NUMBER = re.compile(r"[-+]?\d[\d.]*(e-?\d+)?| +")  # rounding differs among machines, and with it the width of columns


def outputs(notebook: nbformat.NotebookNode) -> list[list[tuple[str, str]]]:
    """Of each cell of code: the kinds of its outputs, with text but for numbers."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[(out.output_type, NUMBER.sub("", out.get("text", ""))) for out in cell.outputs] for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_prints_what_it_shows(path: Path) -> None:
    shown = nbformat.read(path, as_version=4)
    assert outputs(executed(path)) == outputs(shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_reads_well(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    assert kinds.count("markdown") >= 4
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))  # run once, from the first to the last
    found = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    assert any("image/png" in out.get("data", {}) for out in found)
    assert not [out for out in found if out.get("name") == "stderr" or out.output_type == "error"]
    assert path.stat().st_size < 200_000
    assert f"(../examples/notebooks/{path.name})" in (DOCS / "notebooks.md").read_text(encoding="utf-8")


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 5
