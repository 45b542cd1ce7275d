"""Imports go one way, and `import spikecast` stays light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What a user may not have, or should not wait for before it is used.
HEAVY = (
    *("PIL", "h5py", "matplotlib", "msgspec", "numba", "rich", "safetensors", "sklearn", "timm", "torchvision"),
    *("triton", "typer"),
)
LIGHT = {"spikecast", "spikecast._version", "spikecast.config", "spikecast.errors"}


def run_python(code: str, *args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], cwd=cwd, capture_output=True, text=True, check=False)


def test_import_contract() -> None:
    lint = "from importlinter.cli import lint_imports_command as run; run()"
    done = run_python(lint, "--config", str(ROOT / "pyproject.toml"), "--no-logo", "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("statement", ["import spikecast", "from spikecast import *"])
def test_import_is_lean(statement: str, tmp_path: Path) -> None:
    code = f"import sys; {statement}; print(*sorted(set(sys.argv[1:]) & set(sys.modules)))"
    done = run_python(code, *HEAVY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_import_opens_no_room(tmp_path: Path) -> None:
    code = "import sys, spikecast; dir(spikecast); print(*(n for n in sys.modules if n.startswith('spikecast')))"
    done = run_python(code, cwd=tmp_path)
    assert set(done.stdout.split()) == LIGHT, done.stderr


def test_import_is_silent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import spikecast"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
