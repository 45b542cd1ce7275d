"""Ratios measured in turns in one process, the table they are shown in, and the CSV file they are added to."""

from __future__ import annotations

import csv
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

Work = Callable[[], object]
FIELDS = (
    "commit",
    "date",
    "torch",
    "numba",
    "python",
    "cpu",
    "threads",
    "name",
    "unit",
    "p20",
    "p50",
    "p80",
    "best",
    "goal",
)


@dataclass(frozen=True)
class Row:
    """One figure: its 20th, 50th and 80th percentile over rounds, that of the best times, and what is asked for."""

    name: str
    unit: str
    p20: float
    p50: float
    p80: float
    best: float
    goal: str = ""

    @property
    def is_met(self) -> bool | None:
        if not self.goal:
            return None
        sign, limit = self.goal.split()
        return self.best <= float(limit) if sign == "<=" else self.best >= float(limit)

    def __str__(self) -> str:
        said = {None: "", True: "met", False: "MISSED"}[self.is_met]
        figures = " ".join(f"{x:8.3g}" for x in (self.p20, self.p50, self.p80, self.best))
        return f"{self.name:<58} {figures} {self.unit:<7} {self.goal:<9} {said}"


HEAD = f"{'':<58} {'20 %':>8} {'50 %':>8} {'80 %':>8} {'best':>8}"


def in_turns(work: Mapping[str, Work], rounds: int, *, warm: int = 1) -> dict[str, list[float]]:
    """Seconds of every round of each, one after the other so that all meet the same disturbances."""
    for function in work.values():
        for _ in range(warm):
            function()
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, function in work.items():
            began = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - began)
    return times


def ratio(name: str, over: list[float], under: list[float], goal: str = "") -> Row:
    """Time over time, round by round; `best` is the ratio of the least times."""
    return Row(name, "x", *percentiles([a / b for a, b in zip(over, under, strict=True)]), min(over) / min(under), goal)


def single(name: str, values: list[float], unit: str, goal: str = "") -> Row:
    return Row(name, unit, *percentiles(values), min(values), goal)


def percentiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return cuts[1], cuts[4], cuts[7]


def append(path: Path, rows: list[Row]) -> None:
    """Add rows to a CSV file, with all it takes to compare them with others."""
    import numba

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "src", "benchmarks") else "")
    about = (commit, time.strftime("%Y-%m-%d %H:%M"), torch.__version__, numba.__version__, platform.python_version())
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(FIELDS)
        for row in rows:
            figures = [f"{x:.4g}" for x in (row.p20, row.p50, row.p80, row.best)]
            writer.writerow([*about, cpu_name(), torch.get_num_threads(), row.name, row.unit, *figures, row.goal])


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
