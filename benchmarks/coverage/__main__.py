"""Try all networks, each in a process of its own: python -m benchmarks.coverage [--only NAME ...] [--page docs]

What is found goes to RESULTS, one line for each network, with the commit it was found at. What stands there with the
commit of today is not tried again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.coverage.models import cases
from benchmarks.coverage.page import write_page
from benchmarks.coverage.process import tried
from benchmarks.coverage.records import RESULTS, Record, commit_of, read_records, write_records


def main() -> int:
    given = _arguments()
    every = cases()
    names = set(given.only)
    chosen = [case for case in every if not names or names & {case.key, case.name, case.family, case.library}]
    if names or not given.page:
        commit = commit_of()
        for case in chosen:
            known = read_records(given.results)
            if given.again or known.get(case.key, {}).get("commit") != commit:
                record = tried(case, given.seconds, given.memory) | {"commit": commit}
                write_records(given.results, known | {case.key: record})
                print(_line(record), flush=True)
    if given.page:
        write_page(given.page / "supported.md", every, read_records(given.results))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="networks, families or libraries")
    parser.add_argument("--again", action="store_true", help="try also what was tried at this commit")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"unless given {RESULTS.name}, beside this file")
    parser.add_argument("--page", type=Path, metavar="DOCS", help="write the table into DOCS/supported.md")
    parser.add_argument("--seconds", type=int, default=600, help="of the processor's time, for each network")
    parser.add_argument("--memory", type=float, default=10, help="gigabytes, for each network")
    return parser.parse_args()


def _line(record: Record) -> str:
    if record["failed"]:
        return f"{record['key']:48s} {record['failed']}"
    figures = f"error {record['early']:.3f} to {record['late']:.3f} in {record['seconds']:.0f} s"
    return f"{record['key']:48s} {figures}, {record['memory']:.1f} GB"


if __name__ == "__main__":
    sys.exit(main())
