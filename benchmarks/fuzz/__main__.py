"""python -m benchmarks.fuzz: hostile artifacts, event files or NIR files, for a time or a number of cases."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.fuzz import hdf5, worker
from benchmarks.fuzz.kinds import KINDS
from benchmarks.fuzz.worker import Finding, Trial

KEPT = 3  # files of each sort of finding
STRIDE = 2000  # cases between two looks at the clock


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("kinds", nargs="*", default=sorted(KINDS), help=f"of {', '.join(sorted(KINDS))}")
    parser.add_argument("--count", type=int, default=10**9, help="cases of each kind")
    parser.add_argument("--seconds", type=float, default=300, help="for each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="folder for the files of what is found")
    given = parser.parse_args()
    return max(fuzz(name, given) for name in given.kinds)


def fuzz(name: str, given: argparse.Namespace) -> int:
    """Try cases of a kind; 1 where something was found."""
    kind, counts = KINDS[name], Counter[str]()
    given.out.mkdir(parents=True, exist_ok=True)
    at, stop = given.first, given.first + given.count
    refused = fine = 0
    with tempfile.TemporaryDirectory(prefix="spikecast-fuzz-", dir=_shared_memory()) as folder:
        path = Path(folder) / f"case{kind.suffix}"
        kind.warm_up()
        start, used = time.monotonic(), _processor_time()

        def make(seed: int) -> Trial:
            try:
                path.write_bytes(kind.content(seed))
            except RuntimeError:  # a tensor that torch cannot even describe: no such file can be
                return lambda: True
            return lambda: kind.attempt(path)

        def found(finding: Finding) -> None:
            sort = kind.sort(finding)
            counts[sort] += 1
            if counts[sort] <= KEPT:
                print(f"{name} {finding.seed}: {sort}: {finding.what}", flush=True)
                place = given.out / f"{name}-{finding.seed}"
                said = {"what": finding.what, "alone": finding.alone, "case": kind.case(finding.seed)}
                place.with_suffix(".json").write_text(json.dumps(said, indent=1) + "\n")

        while at < stop and time.monotonic() - start < given.seconds:
            some = worker.run(make, range(at, min(at + STRIDE, stop)), found)
            refused, fine, at = refused + some[0], fine + some[1], min(at + STRIDE, stop)
    taken = time.monotonic() - start
    hdf5.stop()
    done = at - given.first
    each = 1000 * (_processor_time() - used) / max(done, 1)
    print(f"{name}: {done} cases in {taken:.0f} s, {each:.1f} s of the processor for 1000: ", end="")
    print(f"{refused} refused, {fine} fine, ", end="")
    raw = sum(number for sort, number in counts.items() if sort.startswith("raw"))
    print(f"{raw} exceptions that are not ours, {counts.total() - raw} findings")
    for sort, number in counts.most_common():
        print(f"  {number:6d}  {sort}")
    return int(bool(counts))


def _processor_time() -> float:
    """Of this process and of all that it has started and seen the end of, in seconds."""
    return sum(os.times()[:4])


def _shared_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


sys.exit(main())
