"""What the README and the docs point at is there: files, headings, modules, and the tests named as evidence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spikecast.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / ".github").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
MADE = {"build", "dist", "out"}  # by make: what lies there is not a part of the repository
FOLDERS = [
    p.name
    for p in (*ROOT.iterdir(), *(ROOT / "src" / "spikecast").iterdir())
    if p.is_dir() and p.name[0] != "_" and p.name not in MADE
]
FILE = re.compile(rf"(?<![\w/.])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]+")
METADATA = {"spikecast.neuron", "spikecast.reset"}  # of NIR files
TEST_NAME = re.compile(r"test_\w+")


def without_blocks(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Headings as GitHub makes anchors of them: lower case, punctuation dropped, spaces as hyphens."""
    heads = re.findall(r"^#+ (.*)$", without_blocks(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere."""
    broken = []
    for link in LINK.findall(without_blocks(text)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def missing_names(text: str) -> list[str]:
    """Files in code marks that are not there, and names of tests that no test file has."""
    missing = []
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for code in CODE.findall(without_blocks(text)):
        for path in FILE.findall(code):
            if not (ROOT / path).exists() and not (ROOT / "src" / "spikecast" / path).exists():
                missing.append(path)
        if TEST_NAME.fullmatch(code) and f"def {code}(" not in tests:
            missing.append(code)
    return missing


def module_exists(name: str) -> bool:
    """Whether a dotted name is a module of the package, or something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        place = ROOT / "src" / Path(*parts[:cut])
        source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if source.is_file():
            return cut == len(parts) or parts[cut] in source.read_text(encoding="utf-8")
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_names_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert broken_links(page, text) == []
    assert missing_names(text) == []
    names = re.findall(r"\bspikecast(?:\.[a-z_]\w*)+", without_blocks(text).replace("github.com/spikecast", ""))
    assert [name for name in names if name not in METADATA and not module_exists(name)] == []


def test_the_page_of_the_command_line_lists_every_command() -> None:
    table = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)", table, re.MULTILINE) == list(COMMANDS)


def test_what_is_broken_is_found() -> None:
    page = ROOT / "docs" / "method.md"
    text = "[a](none.md) [b](errata.md#none) [c](errata.md#rounding) `tests/none.py` `test_not_there` `tests/docs`"
    assert broken_links(page, text) == ["none.md", "errata.md#none"]
    assert missing_names(text) == ["tests/none.py", "test_not_there"]
    assert module_exists("spikecast.theory.coding.receive")
    assert not module_exists("spikecast.theory.coding.none")
    assert not module_exists("spikecast.zoo")
