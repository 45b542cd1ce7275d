"""paper.json against the LaTeX of the paper, cell by cell; SPIKECAST_PAPER is its text, or the folder it is in."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from spikecast.paper import tables

LABELS = {
    "main": "Acc-part",
    "cnn": "Acc-CNN-all",
    "transformer": "Acc-Transformer-all",
    "coding": "effective_coding_all",
    "thresholds": "effective_threshold_all",
    "detection": "tab:dcgs_detection",
    "detection_ablation": "tab:ablation_detection",
    "segmentation": "tab:dcgs_segmentation",
    "segmentation_ablation": "tab:ablation_segmentation",
}


@pytest.fixture(scope="module")
def latex() -> str:
    place = os.environ.get("SPIKECAST_PAPER")
    if not place:
        pytest.skip("SPIKECAST_PAPER is not set: the text of the paper, or its folder")
    path = Path(place)
    (file,) = [path] if path.is_file() else sorted(path.glob("*.txt"))
    return file.read_text(encoding="utf-8")


def lines_of(latex: str, label: str) -> list[str]:
    """The rows of a table, as they are printed."""
    inside = latex.split(f"\\label{{{label}}}")[1].split("\\end{tabular}")[0]
    return [" ".join(row.split()) for row in inside.split("\\\\")]


def numbers(row: str, word: str) -> list[float | None] | None:
    """The cells behind the word that says what they are; None where a row is of another kind."""
    found = re.search(rf"(?:^|&|}}) ?{word} ?(?:&[^&]*multirow[^&]*|& (?=&))?((?:& ?[-\d.]+ ?)+)$", row)
    if found is None:
        return None
    return [None if cell.strip() == "-" else float(cell) for cell in found[1].strip("& ").split("&")]


@pytest.mark.parametrize("name", LABELS)
def test_every_cell_is_as_printed(latex, name) -> None:
    rows = lines_of(latex, LABELS[name])
    metrics = [x for x in (numbers(row, r"(?:Acc|mAP|mIoU)(?:\\%)?") for row in rows) if x is not None]
    energies = [x for x in (numbers(row, "Energy ratio") for row in rows) if x is not None]
    table = tables()[name]
    assert len(metrics) == len(energies) == len(table.rows)
    for row, metric, energy in zip(table.rows, metrics, energies, strict=True):
        assert list(row.metric) == metric
        assert list(row.energy) == energy
    text = "\n".join(rows)
    steps = re.search(r"(?:Energy|Energy ratio\}?|Acc/Energy\}) ?&+((?: ?\d+ ?&?)+)(?:\n|$)", text)
    assert steps is not None
    assert {tuple(int(t) for t in steps[1].split("&"))} == {row.steps for row in table.rows}
    for row in table.rows:
        assert f"{row.ann:g}" in text or name.endswith("ablation")


def test_the_comparison_is_as_printed(latex) -> None:
    found = []
    for row in lines_of(latex, "cmp"):
        cells = [cell.strip() for cell in row.split("&")]
        if len(cells) >= 7 and re.fullmatch(r"[\d., ]+", cells[-1]):
            found.append(cells[-5:])
    published = tables()["comparison"].published
    assert len(found) == len(published)
    for (arch, params, ann, steps, metric), line in zip(found, published, strict=True):
        assert arch == line.arch
        assert (float(params), float(ann)) == (line.params, line.ann)
        assert tuple(int(t) for t in steps.split(",")) == line.steps
        assert tuple(float(x) for x in metric.split(",")) == line.metric
