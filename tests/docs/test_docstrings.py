"""Public names say what they take, and their examples run: with the names that docs/reference/index.md makes."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spikecast
from spikecast import paper
from spikecast.experiments import compare, sweep
from spikecast.graph.roles import ROLES, SAVABLE
from spikecast.network import base

PAGES = Path(__file__).parents[2] / "docs" / "reference"
NAMED = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
METHODS = [
    f"spikecast.network.base.Network.{name}"
    for name in (
        "forward",
        "run",
        "steps",
        "anytime",
        "record",
        "analog",
        "slots",
        "set_thresholds",
        "reconfigure",
        "save",
        "twin",
    )
]
METHODS += [
    "spikecast.hardware.IntegerNetwork.run",
    "spikecast.hardware.IntegerNetwork.save",
    "spikecast.hardware.IntegerNetwork.trace",
    "spikecast.hardware.IntegerNetwork.weights",
    "spikecast.hardware.Simulator.run",
    "spikecast.hardware.Twin.run",
    "spikecast.hardware.Twin.trace",
    "spikecast.measure.Agreement.explain",
    "spikecast.measure.Energy.under",
]


def found(name: str) -> Any:
    """What a dotted name stands for."""
    value: Any = spikecast
    places = {
        "spikecast.experiments.compare": compare,
        "spikecast.experiments.sweep": sweep,
        "spikecast.network.base": base,
        "spikecast.paper": paper,
    }
    for place, module in places.items():
        if name.startswith(f"{place}."):
            value, name = module, name.removeprefix(place)
    for part in name.removeprefix("spikecast").strip(".").split("."):
        value = getattr(value, part)
    return value


def public(name: str) -> str:
    """The name that people use: `measure.evaluate` is a function, and for mkdocstrings the module that it is in."""
    return re.sub(r"^(spikecast\.(?:measure|hardware))\.(\w+)(?:\.\2)+$", r"\1.\2", name)


NAMES = sorted(public(name) for page in PAGES.glob("*.md") for name in NAMED.findall(page.read_text(encoding="utf-8")))
NOT_RUN = {"spikecast.SpikecastError", "spikecast.hardware.check_nir"}  # no example; needs an importer
# nobody makes these by hand; a Task is a protocol
PLAIN = {"spikecast.SpikecastError", "spikecast.SpikingNetwork", "spikecast.measure.Task"}


def test_the_reference_has_every_public_function() -> None:
    rooms = {"spikecast": spikecast, "spikecast.hardware": spikecast.hardware, "spikecast.measure": spikecast.measure}
    named = {f"{room}.{name}" for room, module in rooms.items() for name in module.__all__}
    modules = {"spikecast.__version__", "spikecast.measure.intervals"}
    modules |= {f"spikecast.{name}" for name in ("hardware", "measure", "presets")}
    assert named - modules <= {*NAMES}


@pytest.mark.parametrize("name", sorted({*NAMES} - PLAIN) + METHODS)
def test_arguments_are_said(name: str) -> None:
    value = found(name)
    text = inspect.getdoc(value) or ""
    arguments = [p for p in inspect.signature(value).parameters.values() if p.name != "self"]
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: r"\*", inspect.Parameter.VAR_KEYWORD: r"\*\*"}
    missing = [
        p.name for p in arguments if not re.search(rf"^    {stars.get(p.kind, '')}{p.name}: \S", text, re.MULTILINE)
    ]
    assert missing == []
    assert "Example:\n" in text


@pytest.fixture
def nothing_taught() -> Iterator[None]:
    """An example of register_op teaches an op; other tests must not know of it."""
    roles, savable = dict(ROLES), set(SAVABLE)
    yield
    ROLES.clear()
    ROLES.update(roles)
    SAVABLE.intersection_update(savable)


@pytest.mark.usefixtures("nothing_taught")
@pytest.mark.parametrize("name", sorted(NAMES) + METHODS)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```python\n(.*?)```", (PAGES / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block[1], names)
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder().find(found(name), name, globs=names):
        runner.run(example)
    assert runner.failures == 0
    assert runner.tries or name in NOT_RUN
