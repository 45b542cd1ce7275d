"""Files and functions stay small enough to read, say what they are, and never execute what they load."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ALL_PYTHON = sorted(p for folder in ("src", "tests", "examples", "benchmarks") for p in (ROOT / folder).rglob("*.py"))

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60  # the aim is 40
WRITERS = ("src/spikecast/storage/files.py", "src/spikecast/experiments/resume.py")  # the latter adds lines
PICKLERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstring(tree: ast.Module) -> Iterator[str]:
    if not ast.get_docstring(tree):
        yield "1: the module has no docstring"


def function_lengths(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            said = node.body[0].end_lineno - node.body[0].lineno + 1 if ast.get_docstring(node) else 0
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - said  # what explains a function is not counted
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {lines} lines, the bound is {MAX_FUNCTION_LINES}"


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines and names of imports, each name whole: `a.b` of `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (f"{node.module}." if node.module else "")
            yield from ((node.lineno, start + alias.name) for alias in node.names)


def imports_tests(tree: ast.Module) -> Iterator[str]:
    """Tests share tests.nets and tests.strategies; test modules and conftest are for pytest alone."""
    for line, name in imported(tree):
        parts = name.split(".")
        stranger = parts[0] == "tests" and parts[1:2] not in (["nets"], ["strategies"])
        if stranger or any(part == "conftest" or part.startswith("test_") for part in parts):
            yield f"{line}: imports {name}, a test"


def unsafe_imports(tree: ast.Module) -> Iterator[str]:
    for line, name in imported(tree):
        if PICKLERS.intersection(name.split(".")):
            yield f"{line}: imports {name}, which executes what it loads"


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


def writing_calls(tree: ast.Module) -> Iterator[str]:
    """Files are written by `storage.files` alone, which does it whole or not at all."""
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        called = ast.unparse(node.func).rpartition(".")[2]
        words = [a.value for a in (*node.args, *(k.value for k in node.keywords)) if isinstance(a, ast.Constant)]
        opens = called in ("open", "File") and any(
            isinstance(w, str) and len(w) < 4 and set(w) & set("wax+") for w in words
        )
        in_memory = bool(node.args) and ast.unparse(node.args[0]) == "made"  # an io.BytesIO
        if (opens and not in_memory) or called in ("write_text", "write_bytes", "save_file"):
            yield f"{node.lineno}: {called} writes a file; use storage.files"


RULES: list[Callable[[ast.Module], Iterator[str]]] = [docstring, function_lengths, unsafe_imports, unsafe_calls]


def broken(source: str) -> list[str]:
    tree = ast.parse(source)
    return [line for rule in RULES for line in rule(tree)]


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_source_keeps_the_rules(path: Path) -> None:
    assert broken(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", [p for p in SOURCES if label(p) not in WRITERS], ids=label)
def test_source_writes_no_files_by_itself(path: Path) -> None:
    assert list(writing_calls(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "source",
    ["open(p, 'w')", "p.open('ab+')", "open(p, mode='x')", "p.write_text(t)", "save_file(t, p)", "h5py.File(p, 'a')"],
)
def test_writing_is_found(source: str) -> None:
    assert len(list(writing_calls(ast.parse(source)))) == 1
    assert list(writing_calls(ast.parse("open(p, 'rb'); p.open(); h5py.File(made, 'w'); out.write(b'x')"))) == []


@pytest.mark.parametrize("path", ALL_PYTHON, ids=label)
def test_file_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", TESTS, ids=label)
def test_tests_import_no_tests(path: Path) -> None:
    assert list(imports_tests(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import tests",
        "from tests.a.test_b import c",
        "import test_b",
        "from tests import other",
        "from .conftest import c",
    ],
)
def test_imported_tests_are_found(source: str) -> None:
    assert len(list(imports_tests(ast.parse(source)))) == 1


def test_shared_nets_may_be_imported() -> None:
    source = "from tests.nets import relative\nfrom tests import strategies\nimport tests.nets, testing"
    assert list(imports_tests(ast.parse(source))) == []


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
