"""All figures about speed and memory in one table: python -m benchmarks [--only networks] [--rounds 7]"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks import kernel, networks, scaling, startup
from benchmarks.timing import HEAD, Row, append

SUITES: dict[str, Callable[[int], Iterator[Row]]] = {
    "kernel": kernel.rows,
    "kernel-bursts": kernel.bursts,
    "networks": networks.against_the_ann,
    "bursts": networks.bursts,
    "stepwise": networks.stepwise,
    "metering": networks.metering,
    "chunks": networks.chunks,
    "compile": networks.compiled,
    "memory": scaling.memory,
    "scaling": scaling.scaling,
    "calibration": scaling.calibration,
    "startup": startup.rows,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=SUITES, default=list(SUITES), metavar="SUITE", help=", ".join(SUITES)
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=Path, default=Path("benchmarks/results.csv"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = []
    began = time.monotonic()
    print(f"{HEAD}    ({given.threads} threads, {given.rounds} rounds)", flush=True)
    for name in given.only:
        for row in SUITES[name](given.rounds):
            rows.append(row)
            print(row, flush=True)
    append(given.csv, rows)
    missed = [row.name for row in rows if row.is_met is False]
    print(f"{len(rows)} figures in {time.monotonic() - began:.0f} s, added to {given.csv}; {len(missed)} goals missed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
