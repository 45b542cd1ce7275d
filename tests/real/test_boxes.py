"""YOLO's figures of the documentation: scored with the images, as the folder's own scorer does."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from benchmarks.measured import RECORDS, points
from benchmarks.real import NETWORKS, Note
from benchmarks.results import summary

ROOT = Path(__file__).parents[2]


def by_the_folder(loaders: ModuleType, notes: list[Note]) -> float:
    """Of images that are numbered anew: one that is drawn twice is two."""
    entries = {entry["id"]: entry for entry in loaders.coco_images("val")[1]}
    truth = [{**entries[int(note[0])], "id": i} for i, note in enumerate(notes, 1)]
    found = [torch.tensor(note[1:]).view(-1, 6) for note in notes]
    return float(loaders.detection_scores(found, truth)["map50"])


def test_scores_are_those_of_the_folder(real_loaders: ModuleType) -> None:
    found, ann = points(RECORDS / "YOLO")
    notes = next(point.notes for point in found if point.name == "ours T=1")
    for some in (ann, notes, [notes[i % 7] for i in range(20)]):
        assert NETWORKS["YOLO"].score(some) == pytest.approx(by_the_folder(real_loaders, some), abs=1e-9)


@pytest.mark.usefixtures("real_loaders")
def test_readme_and_the_page_have_the_row_of_the_records() -> None:
    row = list(summary(RECORDS, ["YOLO"]))[-1]
    assert row.startswith("| YOLO, 30 |")
    for file in ("README.md", "docs/results.md"):
        assert row in (ROOT / file).read_text().splitlines(), file
