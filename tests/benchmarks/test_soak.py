"""`make soak` for some seconds, and what it would say of faults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.soak import WARM, checked

ROOT = Path(__file__).resolve().parents[2]


def test_a_short_soak(tmp_path: Path) -> None:
    words = ["--minutes", "0.1", "--processes", "2", "--threads", "1", "--kill-every", "3", "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.soak", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:-1])
    assert all(int(figures[name]) for name in ("convert", "run", "save", "load", "resume", "events"))
    assert done.stdout.endswith("no faults\n")


def noted(folder: Path, *lines: dict[str, Any]) -> list[str]:
    """The faults that are found in what a process noted."""
    usual = {"descriptors": 7, "threads": 4, "memory": 500_000, "counts": {"run": 1}}
    (folder / "worker-0.jsonl").write_text("".join(json.dumps({**usual, **line}) + "\n" for line in lines))
    return checked(folder)[1]


def test_faults_are_found(tmp_path: Path) -> None:
    cycles: list[dict[str, Any]] = [{}] * (WARM + 30)
    assert noted(tmp_path, *cycles) == []
    assert noted(tmp_path, *cycles[:2]) == ["the first process has done too little"]
    assert noted(tmp_path, *cycles, {"descriptors": 12}) == ["descriptors grew from 7 to 12"]
    assert noted(tmp_path, *cycles, {"threads": 7}) == ["threads grew from 4 to 7"]
    grown = [{"memory": 500_000 + 2000 * n} for n in range(WARM + 30)]
    assert noted(tmp_path, *grown) == ["the memory grew by 2000 KiB in a cycle, the bound is 1024"]
    (tmp_path / ".spikecast-mine").touch()
    assert noted(tmp_path, *cycles) == [".spikecast-mine is left"]
