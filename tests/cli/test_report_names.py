"""What a report calls things: classes by the data, else by the model; the command by its name."""

from __future__ import annotations

import sys

import pytest

from spikecast.cli.report import class_names
from spikecast.page.provenance import own_command


@pytest.mark.parametrize(
    ("of_data", "of_model", "names"),
    [
        (["cat", "dog"], ["a", "b"], ["cat", "dog"]),  # folders know better
        (["0", "1"], ["a", "b"], ["a", "b"]),  # numbers are no names
        (["0", "dog"], ["a", "b"], ["a", "dog"]),
        (["0", "dog"], ["a", "b", "c"], ["0", "dog"]),  # of another set of classes
        (["0", "1"], [], ["0", "1"]),
        ([], ["a", "b"], ["a", "b"]),  # data of one's own
        ([], [], []),
    ],
)
def test_names_of_classes(of_data, of_model, names) -> None:
    assert class_names(of_data, of_model) == names


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("/x/site-packages/spikecast/__main__.py", "spikecast"),
        ("/usr/bin/spikecast", "spikecast"),
        ("train.py", "train.py"),
        ("/x/other/__main__.py", "/x/other/__main__.py"),
    ],
)
def test_the_command_has_its_name(monkeypatch: pytest.MonkeyPatch, start: str, name: str) -> None:
    monkeypatch.setattr(sys, "argv", [start, "report", "my model"])
    assert own_command() == f"{name} report 'my model'"
