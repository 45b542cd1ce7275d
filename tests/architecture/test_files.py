"""Files and functions stay small enough to read, say what they are, and never execute what they load."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ALL_PYTHON = sorted(p for folder in ("src", "tests", "examples", "benchmarks") for p in (ROOT / folder).rglob("*.py"))

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60  # the aim is 40
PICKLERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstring(tree: ast.Module) -> Iterator[str]:
    if not ast.get_docstring(tree):
        yield "1: the module has no docstring"


def function_lengths(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {lines} lines, the bound is {MAX_FUNCTION_LINES}"


def unsafe_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            if PICKLERS.intersection(name.split(".")):
                yield f"{node.lineno}: imports {name}, which executes what it loads"


def unsafe_calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
        if called in {"eval", "exec", "builtins.eval", "builtins.exec"}:
            yield f"{node.lineno}: calls {called}"
        if called == "torch.load" and keywords.get("weights_only") != "True":
            yield f"{node.lineno}: torch.load without weights_only=True"
        if called == "torch.save":
            yield f"{node.lineno}: torch.save writes a pickle; use safetensors"
        if keywords.get("allow_pickle", "False") != "False":
            yield f"{node.lineno}: allow_pickle"


RULES: list[Callable[[ast.Module], Iterator[str]]] = [docstring, function_lengths, unsafe_imports, unsafe_calls]


def broken(source: str) -> list[str]:
    tree = ast.parse(source)
    return [line for rule in RULES for line in rule(tree)]


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_source_keeps_the_rules(path: Path) -> None:
    assert broken(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", ALL_PYTHON, ids=label)
def test_file_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


def test_there_are_sources() -> None:
    assert ROOT / "src" / "spikecast" / "__init__.py" in SOURCES


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("x = 1", "no docstring"),
        ('"""."""\ndef f():\n' + "    x = 1\n" * MAX_FUNCTION_LINES, "61 lines"),
        ('"""."""\nimport os, pickle', "imports pickle"),
        ('"""."""\nfrom pickle import loads', "imports pickle"),
        ('"""."""\nfrom torch.utils import data\nimport joblib.memory', "imports joblib.memory"),
        ('"""."""\neval("1")', "calls eval"),
        ('"""."""\nexec("1")', "calls exec"),
        ('"""."""\ntorch.load(f)', "weights_only"),
        ('"""."""\ntorch.load(f, weights_only=False)', "weights_only"),
        ('"""."""\ntorch.save(x, f)', "torch.save"),
        ('"""."""\nnp.load(f, allow_pickle=True)', "allow_pickle"),
    ],
)
def test_rules_catch(source: str, complaint: str) -> None:
    found = broken(source)
    assert len(found) == 1
    assert complaint in found[0]


def test_rules_allow() -> None:
    assert broken('"""."""\nmodel.eval()\ntorch.load(f, weights_only=True)\nnp.load(f, allow_pickle=False)') == []
