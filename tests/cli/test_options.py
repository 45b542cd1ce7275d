"""Groups of options: what typer sees, what the command gets."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from spikecast.cli import sweep
from spikecast.cli.app import COMMANDS
from spikecast.cli.options import SettingOptions, grouped
from spikecast.config import Config, Method
from spikecast.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A group."""

    name: Annotated[str, typer.Argument()]
    size: Annotated[int, typer.Option("--size", "-s")] = 3


@dataclass(frozen=True, kw_only=True)
class Painted(Thing):
    """A group that adds to another."""

    colour: Annotated[str, typer.Option()] = "red"


seen: list[tuple[Painted, bool]] = []


@grouped
def command(thing: Painted, loud: Annotated[bool, typer.Option("--loud")] = False) -> None:
    """What it does."""
    seen.append((thing, loud))


def test_fields_become_parameters() -> None:
    parameters = inspect.signature(command).parameters
    assert list(parameters) == ["name", "size", "colour", "loud"]
    assert parameters["name"].default is inspect.Parameter.empty
    assert parameters["size"].default == 3
    assert command.__doc__ == "What it does."


def test_typer_fills_the_group() -> None:
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, ["box", "-s", "7", "--loud"])
    assert done.exit_code == 0, done.output
    assert seen.pop() == (Painted(name="box", size=7, colour="red"), True)
    assert CliRunner().invoke(app, []).exit_code == 2
    assert seen == []


def test_settings_by_configs_names() -> None:
    given = SettingOptions(levels=2, others=["signed=false", "coding=rate", "quantile=0.5"])
    assert given.given == {"num_levels": 2, "signed": False, "coding": "rate", "quantile": 0.5}
    assert given.config(7) == Config(num_levels=2, signed=False, coding="rate", quantile=0.5, seed=7)
    assert SettingOptions().config() == Config()
    assert SettingOptions(burst=2, steps=4).config() == Config(burst=2, num_steps=4)
    assert SettingOptions(energy_budget=0.2, steps=2).config() == Config(energy_budget=0.2, num_steps=2)
    assert SettingOptions(fidelity=0.01).given == {"fidelity": 0.01}
    assert SettingOptions(others=["seed=3"]).config(7).seed == 3
    with pytest.raises(ConfigError, match="give NAME=VALUE"):
        _ = SettingOptions(others=["colour=red"]).given


def test_help_names_every_threshold_method() -> None:
    for hints in (get_type_hints(SettingOptions, include_extras=True), sweep.command.__annotations__):
        text = hints["thresholds"].__metadata__[0].help
        assert all(method in text for method in get_args(Method))
        assert "quantile_published depends on --batch-size" in text


def test_help_says_whole_sentences(cli) -> None:
    text = " ".join(cli("--help").out.split())
    for name, module in COMMANDS.items():
        (first, *_) = module.command.__doc__.split("\n\n")
        assert f"{name} {' '.join(first.split())}" in text
    assert "..." not in text.partition("Commands:")[2]
