"""Try all networks, each in a process of its own: python -m benchmarks.coverage [--only NAME ...] [--page docs]

What was found is added to FOLDER/results.jsonl, and what stands there is not tried again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.coverage.models import cases
from benchmarks.coverage.page import write_page
from benchmarks.coverage.process import Record, tried


def main() -> int:
    given = _arguments()
    every = cases()
    names = set(given.only)
    chosen = [case for case in every if not names or names & {case.key, case.name, case.family, case.library}]
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / "results.jsonl"
    if names or not given.page:
        known = {} if given.again else results(path)
        for case in chosen:
            if case.key not in known:
                _add(path, tried(case, given.seconds, given.memory))
    if given.page:
        write_page(given.page / "supported.md", every, results(path))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="networks, families or libraries")
    parser.add_argument("--again", action="store_true", help="try also what stands in the folder already")
    parser.add_argument("--folder", type=Path, default=Path("out/coverage"))
    parser.add_argument("--page", type=Path, metavar="DOCS", help="write the table into DOCS/supported.md")
    parser.add_argument("--seconds", type=int, default=600, help="of the processor's time, for each network")
    parser.add_argument("--memory", type=float, default=10, help="gigabytes, for each network")
    return parser.parse_args()


def results(path: Path) -> dict[str, Record]:
    """What was found so far, by network; the last word counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {record["key"]: record for record in map(json.loads, lines)}


def _add(path: Path, record: Record) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    said = record["failed"] or f"error {record['early']:.3f} to {record['late']:.3f} in {record['seconds']:.0f} s"
    print(f"{record['key']:48s} {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
