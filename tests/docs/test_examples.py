"""The examples run as they stand, without a network and without data."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("convert_own_module.py", [], "saved, loaded, the same"),
        ("convert_timm.py", ["resnet10t", "--steps", "2"], "samples"),
        ("detection.py", ["--steps", "2"], "map"),
        ("export_to_chip.py", ["chip"], "the same"),
    ],
)
def test_example(name: str, words: list[str], says: str, monkeypatch, tmp_path: Path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *words])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert says in capsys.readouterr().out
