"""The public names: one more or one less is a decision, not an accident."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import spikecast
from spikecast.page import build

PUBLIC = [
    "Config",
    "Sandbox",
    "SpikecastError",
    "SpikingNetwork",
    "__version__",
    "convert",
    "generate",
    "hardware",
    "load",
    "measure",
    "presets",
    "register_op",
    "report",
]


def test_public_names() -> None:
    assert sorted(spikecast.__all__) == dir(spikecast) == PUBLIC


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - {"__version__"}))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(spikecast, name).__doc__


def test_typing_tools_see_every_public_name() -> None:
    tree = ast.parse(Path(spikecast.__file__).read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {alias.asname or alias.name for node in imported for alias in node.names} >= set(PUBLIC)


@pytest.mark.parametrize(
    "use",
    [
        "spikecast.hardware.Circuit",
        "spikecast.measure.evaluate",
        "spikecast.presets.preset('dcgs')",
        "spikecast.report.__name__",
        "spikecast.convert",
    ],
)
def test_rooms_open_after_a_bare_import(use: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", f"import spikecast; {use}"], cwd=tmp_path, check=True)


def test_report_is_the_page() -> None:
    assert spikecast.report is build


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'spikecast' has no attribute 'nothing'"):
        _ = spikecast.nothing


def test_version_comes_from_one_place() -> None:
    assert re.match(r"\d+\.\d+\.\d+", spikecast.__version__)
    assert version("spikecast") == spikecast.__version__
