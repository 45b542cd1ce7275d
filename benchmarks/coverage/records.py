"""What was found of each network, as a file of the repository: one line of JSON for each, sorted by name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spikecast.storage.files import write_whole

RESULTS = Path(__file__).with_name("results.jsonl")
Record = dict[str, Any]


def read_records(path: Path) -> dict[str, Record]:
    """The records by network."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {record["key"]: record for record in map(json.loads, lines)}


def write_records(path: Path, records: Mapping[str, Record]) -> None:
    lines = [json.dumps(records[key], ensure_ascii=False) for key in sorted(records)]
    write_whole(path, "".join(f"{line}\n" for line in lines))


def commit_of() -> str:
    """The commit of the code that is tried; a plus behind it where something was changed since."""
    here = Path(__file__).parent
    said = [
        subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()
        for words in (["rev-parse", "--short=7", "HEAD"], ["status", "--porcelain", "--", ":/src", "*.py"])
    ]
    return said[0] + ("+" if said[1] else "")
