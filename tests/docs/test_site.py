"""The site is built without a warning, and has every page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    home = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(home)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # of another program than ours
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return home


def test_the_site_has_every_page(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        home = site / name.parent if name.name == "index" else site / name
        assert (home / "index.html").is_file(), name
    made = (site / "reference" / "converting" / "index.html").read_text(encoding="utf-8")
    assert "Any module in eval mode" in made  # out of a docstring
    house = (site / "architecture" / "index.html").read_text(encoding="utf-8")
    assert "https://github.com/spikecast/spikecast/blob/main/SECURITY.md" in house
    assert ">How it works</a>" in house  # links that are called by their file, method.md, get the page's title
    assert ">method.md<" not in house
    assert 'src="../pictures/neuron.svg"' in (site / "method" / "index.html").read_text(encoding="utf-8")


def test_the_reference_shows_functions_and_their_examples_as_code(site: Path) -> None:
    """Not the module of the same name, and no example as prose."""
    for page in (ROOT / "docs" / "reference").glob("[!i]*.md"):
        made = (site / "reference" / page.stem / "index.html").read_text(encoding="utf-8")
        assert "<blockquote>" not in made, page.stem
        assert "doc-module" not in made, page.stem
        assert "&gt;&gt;&gt;" in made, page.stem
