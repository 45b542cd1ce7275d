"""`make soak` for some seconds, and what it would say of faults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak import BATCHES, WARM, checked, finished, records_of, victims

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_short_soak(tmp_path: Path) -> None:
    words = ["--minutes", "0.1", "--processes", "2", "--threads", "1", "--kill-every", "3", "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.soak", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:-1])
    assert all(int(figures[name]) for name in ("convert", "run", "save", "load", "resume", "events"))
    assert done.stdout.endswith("no faults\n")


def test_who_is_killed(tmp_path: Path) -> None:
    """Mostly one that has finished some of its batches; never one that has yet to go on."""
    alive = {100: 0, 101: 1, 102: 2, 103: 3}
    for slot, lines in ((0, 3), (1, 0), (2, 1), (3, 3)):
        records_of(slot, tmp_path).mkdir()
        (records_of(slot, tmp_path) / "records-0.jsonl").write_text("{}\n" * lines)
    assert [finished(records_of(slot, tmp_path)) for slot in range(5)] == [2, 0, 0, 2, 0]
    assert victims(alive, set(), tmp_path, measuring=False) == [101, 102, 103]
    assert victims(alive, set(), tmp_path, measuring=True) == [103]
    assert victims(alive, {3}, tmp_path, measuring=True) == []
    (records_of(3, tmp_path) / "records-0.jsonl").write_text("{}\n" * (BATCHES + 1))
    assert victims(alive, set(), tmp_path, measuring=True) == []


def noted(folder: Path, *lines: dict[str, Any], minutes: float = 1) -> list[str]:
    """The faults that are found in what a process noted."""
    usual = {"descriptors": 7, "threads": 4, "memory": 500_000, "counts": {"run": 1}}
    (folder / "worker-0.jsonl").write_text("".join(json.dumps({**usual, **line}) + "\n" for line in lines))
    return checked(folder, minutes)[1]


def test_faults_are_found(tmp_path: Path) -> None:
    cycles: list[dict[str, Any]] = [{}] * (WARM + 30)
    assert noted(tmp_path, *cycles) == []
    assert noted(tmp_path, *cycles[:2]) == ["the first process has done too little"]
    assert noted(tmp_path, *cycles, {"descriptors": 12}) == ["descriptors grew from 7 to 12"]
    assert noted(tmp_path, *cycles, {"threads": 7}) == ["threads grew from 4 to 7"]
    assert noted(tmp_path, *cycles, minutes=6) == ["no evaluation went on after a kill in 6 minutes"]
    assert noted(tmp_path, *cycles, {"counts": {"continued": 1}}, minutes=6) == []
    grown = [{"memory": 500_000 + 2000 * n} for n in range(WARM + 30)]
    assert noted(tmp_path, *grown) == ["the memory grew by 2000 KiB in a cycle, the bound is 1024"]
    (tmp_path / ".spikecast-mine").touch()
    assert noted(tmp_path, *cycles) == [".spikecast-mine is left"]
