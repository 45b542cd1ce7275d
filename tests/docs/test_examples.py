"""The examples run as they stand, without a network and without data."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("convert_own_module.py", [], "saved, loaded, the same"),
        pytest.param("demo.py", [], "tones, four steps", marks=pytest.mark.slow),
        ("convert_timm.py", ["resnet10t", "--steps", "2"], "samples"),
        pytest.param("detection.py", ["--steps", "2"], "map", marks=pytest.mark.slow),
        ("export_to_chip.py", ["chip"], "the same"),
    ],
)
def test_example(name: str, words: list[str], says: str, monkeypatch, tmp_path: Path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *words])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert says in capsys.readouterr().out


@pytest.mark.slow
def test_the_networks_of_the_demo_are_trained(tmp_path: Path) -> None:
    words = ["--model", "tones", "--epochs", "1", "--out", str(tmp_path)]
    command = [sys.executable, str(EXAMPLES / "train_demo.py"), *words]  # apart: it changes settings of torch
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "right of 512 held out" in done.stdout
    weights = load_file(tmp_path / "tones.safetensors")
    kept = load_file(EXAMPLES.parent / "src" / "spikecast" / "sources" / "demo" / "tones.safetensors")
    assert {name: (x.shape, x.dtype) for name, x in weights.items()} == {n: (x.shape, x.dtype) for n, x in kept.items()}
