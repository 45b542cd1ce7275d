"""The kinds of files that strangers may hand over."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fuzz import artifacts, events, nir
from benchmarks.fuzz.worker import Finding, is_out_of_memory


@dataclass(frozen=True)
class Kind:
    """How a case is made from a seed, and tried."""

    suffix: str
    warm_up: Callable[[], Any]  # once, before processes are forked
    case: Callable[[int], Any]  # as JSON
    content: Callable[[int], bytes]
    attempt: Callable[[Path], bool]

    def sort(self, finding: Finding) -> str:
        """Findings that are probably the same: by what happened, and to which op."""
        case = self.case(finding.seed)
        ops = [node["op"] for node in case.get("nodes", [])]
        what = "memory" if is_out_of_memory(finding.what) else re.split(r"[:;]| \d+\.\d", finding.what)[0]
        if what[0].isupper():
            return f"raw {what}"
        return f"{what} {ops[0] if len(ops) == 1 else case['kind']}".strip()


def _of_seed(seed: int) -> Any:
    return {"kind": "", "seed": seed}


KINDS: dict[str, Kind] = {
    "artifacts": Kind(
        suffix=".spikecast",
        warm_up=artifacts.warm_up,
        case=artifacts.case_of,
        content=lambda seed: artifacts.content_of(artifacts.case_of(seed)),
        attempt=artifacts.attempt,
    ),
    "events": Kind(".npz", events.warm_up, _of_seed, events.content, events.attempt),
    "nir": Kind(".nir", nir.warm_up, _of_seed, nir.content, nir.attempt),
}
