"""The code in the README and the docs runs as it stands, and their tables of settings are whole."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from spikecast.cli.options import SettingOptions
from spikecast.config import Config
from spikecast.presets import PRESETS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
API = ROOT / "docs" / "api.md"


def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert (tmp_path / "net.spikecast").is_file()


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_code_in_docs_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, page, "exec"), names)


def first_columns(text: str) -> set[str]:
    """What stands in code marks in the first column of the tables of a text."""
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_table_of_settings_has_every_setting() -> None:
    section = API.read_text(encoding="utf-8").partition("\n### Settings\n")[2].partition("\n### ")[0]
    # what a budget is counted in stands beside the budget
    assert first_columns(section) | {"budget_costs"} == {field.name for field in dataclasses.fields(Config)}
    assert "`budget_costs`" in section


def test_the_settings_of_steps_are_the_defaults() -> None:
    text = API.read_text(encoding="utf-8")
    for name in ("num_steps", "num_levels", "burst"):
        assert f"| `{name}` | {getattr(Config, name)} |" in text
    assert f"Config(num_steps={Config.num_steps}, num_levels={Config.num_levels}, burst={Config.burst}, " in text


def test_the_table_of_presets_has_every_preset() -> None:
    section = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8").partition("\n## Other methods\n")[2]
    assert first_columns(section.partition("\n## ")[0]) == set(PRESETS)


def test_the_page_of_the_command_line_has_every_setting() -> None:
    section = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n## Settings\n")[2]
    named = set(re.findall(r"`--([a-z-]+)", section.partition("\n## ")[0]))
    options = {field.name.replace("_", "-") for field in dataclasses.fields(SettingOptions)} - {"others"}
    assert options | {"set"} <= named
