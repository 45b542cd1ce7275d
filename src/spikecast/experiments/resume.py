"""Long evaluations: shared among processes, and continued from the batches that were finished.

Each process writes a line of JSON per batch to a file of its own. A run that is started again reads all of them,
whatever number of processes wrote them, and measures what is missing; a line that was cut off counts as missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from spikecast import distributed
from spikecast.errors import ConfigError, DataError
from spikecast.measure.evaluate import Evaluation, Evaluator, Record


def evaluate_all(
    evaluator: Evaluator,
    batches: Iterable[Any],
    *,
    folder: str | os.PathLike[str] | None = None,
    job: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """`evaluate` over all processes that torchrun started, each giving the same batches.

    With a `folder`, finished batches are noted there; `job` says what is measured, and records of another job are
    refused. `progress` is told the number of samples of each batch.
    """
    journal = None if folder is None else Journal(Path(folder), dict(job or {}))
    known = {} if journal is None else journal.read()
    for number, batch in distributed.own(_batches(batches)):
        if number not in known:
            known[number] = evaluator.measure(number, batch)
            if journal is not None:
                journal.write(known[number])
        if progress is not None:
            progress(known[number]["samples"])
    merged: dict[int, Record] = {}
    for records in distributed.gather(list(known.values())):
        merged.update((record["batch"], record) for record in records)
    return evaluator.result(merged.values())


class Journal:
    """The records of finished batches in a folder."""

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        self.folder, self.job = folder, json.loads(json.dumps(job))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot write to {folder}: {error.strerror}; give another folder") from error

    def read(self) -> dict[int, Record]:
        """What all processes of all runs before have finished."""
        finished: dict[int, Record] = {}
        for path in sorted(self.folder.glob("records-*.jsonl")):
            lines = list(_lines(path))
            if not lines:
                continue
            if lines[0].get("job") != self.job:
                raise ConfigError(
                    f"{path} holds records of another job ({_difference(lines[0].get('job'), self.job)}); "
                    "give another folder, or remove it to start anew"
                )
            finished.update((line["batch"], line) for line in lines[1:] if "batch" in line)
        return finished

    def write(self, record: Record) -> None:
        """Add a finished batch; it is on the disk when this returns."""
        path = self.folder / f"records-{distributed.world()[0]}.jsonl"
        has_header = path.exists() and any(True for _ in _lines(path))
        with path.open("ab+") as file:
            file.seek(max(file.tell() - 1, 0))
            is_torn = file.read(1) not in (b"", b"\n")  # by a process that was killed while it wrote
            lines = [record] if has_header else [{"job": self.job}, record]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            file.write(("\n" + text if is_torn else text).encode())
            file.flush()
            os.fsync(file.fileno())


def _batches(batches: Iterable[Any]) -> Iterator[Any]:
    if not isinstance(batches, Iterable):
        raise DataError(f"the data is a {type(batches).__name__}; give a loader or a list of batches")
    return iter(batches)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line; one that a killed process left behind is passed over."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with suppress(json.JSONDecodeError):
                value = json.loads(line)
                if isinstance(value, dict):
                    yield value


def _difference(old: Any, new: Mapping[str, Any]) -> str:
    old = old if isinstance(old, dict) else {}
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in changed[:3])
