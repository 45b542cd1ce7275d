"""The files that tools and services read: they parse, and say what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: str | Path) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def claimed_versions() -> list[str]:
    """Python versions of the classifiers."""
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"])
    return [match[1] for match in found if match]


def test_the_workflow_tests_what_is_claimed() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    versions = jobs["test"]["strategy"]["matrix"]["python"]
    assert versions == claimed_versions()
    assert versions[0] == PROJECT["requires-python"].removeprefix(">=")
    assert {system.split("-")[0] for system in jobs["smoke"]["strategy"]["matrix"]["os"]} == {"macos", "windows"}
    for job in jobs.values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            for target in re.findall(r"^make (.*)", step.get("run", "")):
                makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
                assert all(f"\n{name}: " in makefile for name in target.split())
            for path in re.findall(r"tests/[\w/.]+", step.get("run", "")):
                assert (ROOT / path).exists()


def test_hooks_run_the_tools_of_the_project() -> None:
    (repo,) = read(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].split()[2] for hook in repo["hooks"]}
    assert tools == {"ruff", "mypy"}
    pinned = {re.split(r"[=<>\[]", name)[0] for name in PROJECT["optional-dependencies"]["dev"]}
    assert tools <= pinned


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms(path: Path) -> None:
    form = read(path)
    if path.stem == "config":
        assert form == {"blank_issues_enabled": True}
        return
    assert form["name"]
    assert form["description"]
    names = [field["id"] for field in form["body"]]
    assert len(names) == len(set(names)) > 0
    for field in form["body"]:
        assert field["type"] in {"input", "textarea", "dropdown", "checkboxes"}
        assert field["attributes"]["label"]


def test_citation() -> None:
    found = read("CITATION.cff")
    assert found["cff-version"] == "1.2.0"
    assert found["message"]
    assert (found["title"], found["license"]) == (PROJECT["name"], PROJECT["license"])
    assert found["repository-code"] == PROJECT["urls"]["Homepage"]
    (paper,) = found["references"]
    assert paper["title"] in (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(paper["authors"]) == 9
    assert all(author.keys() == {"family-names", "given-names"} for author in paper["authors"])
