"""The site is built without a warning, and has every page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # of another program than ours
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        home = tmp_path / name.parent if name.name == "index" else tmp_path / name
        assert (home / "index.html").is_file(), name
    made = (tmp_path / "reference" / "converting" / "index.html").read_text(encoding="utf-8")
    assert "Any module in eval mode" in made  # out of a docstring
    house = (tmp_path / "architecture" / "index.html").read_text(encoding="utf-8")
    assert "https://github.com/spikecast/spikecast/blob/main/SECURITY.md" in house
    assert ">How it works</a>" in house  # links that are called by their file, method.md, get the page's title
    assert ">method.md<" not in house
    assert 'src="../pictures/neuron.svg"' in (tmp_path / "method" / "index.html").read_text(encoding="utf-8")
