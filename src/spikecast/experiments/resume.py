"""Long evaluations: shared among processes, and continued from the batches that were finished.

Each process writes a line of JSON per batch to a file of its own. A run that is started again reads all of them,
whatever number of processes wrote them, and measures what is missing. The first line of a file says what the job is;
every other carries the job's id and a seal, a checksum of both, so that nothing else is taken for a record of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, Self

from spikecast import distributed
from spikecast.errors import ConfigError, DataError, SpikecastError
from spikecast.measure.evaluate import Evaluation, Evaluator, Record
from spikecast.storage.files import lock, write_whole

Say = Callable[[str], Any]


def evaluate_all(
    evaluator: Evaluator,
    batches: Iterable[Any],
    *,
    folder: str | os.PathLike[str] | None = None,
    job: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    say: Say = warnings.warn,
) -> Evaluation:
    """`evaluate` over all processes that torchrun started, each giving the same batches.

    With a `folder`, finished batches are noted there; `job` says what is measured, besides what the evaluator knows of
    itself, and records of another job are refused. `progress` is told the number of samples of each batch, and `say`
    which records do not count.
    """
    named = None if folder is None else Journal(Path(folder), {**(job or {}), **evaluator.identity}, say)
    with named or nullcontext() as journal:
        known = {} if journal is None else journal.records
        own: list[Record] = []
        for number, batch in distributed.own(_batches(batches)):
            record = known.get(number)
            if record is None:
                record = evaluator.measure(number, batch)
                if journal is not None:
                    journal.write(record)
            own.append(record)
            if progress is not None:
                progress(record["samples"])
        merged = {record["batch"]: record for records in distributed.gather(own) for record in records}
    if (extra := len(known.keys() - merged.keys())) and distributed.world()[0] == 0:
        say(f"{folder} has {extra} records of batches that the data does not have; they do not count")
    return evaluator.result(merged.values())


class Journal:
    """The records of finished batches in a folder, which is this job's alone from `with` on until its end.

    The first process holds a lock on a file, which ends with it, and takes out what is no sound record.
    """

    def __init__(self, folder: Path, job: Mapping[str, Any], say: Say = warnings.warn) -> None:
        self.folder, self.say = folder, say
        self.job = json.loads(json.dumps(job))
        self.id = _checksum(json.dumps(self.job, sort_keys=True))
        self.records: dict[int, Record] = {}  # by batch, of all processes of all runs before
        self._held: IO[str] | None = None

    def __enter__(self) -> Self:
        refusal: SpikecastError | None = None
        if distributed.world()[0] == 0:
            try:
                self._lock()
                self._repair()
            except SpikecastError as error:
                refusal = error
            except OSError as error:
                refusal = DataError(f"cannot write to {self.folder}: {error.strerror}; give another folder")
        said = next(filter(None, distributed.gather(str(refusal or ""))), None)
        if said is not None:
            self.__exit__()
            raise refusal or ConfigError(said)
        if distributed.world()[0] != 0:
            for path in self._paths():
                self.records |= self._read(path)[0]
        return self

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.close()

    def write(self, record: Record) -> None:
        """Add a finished batch; it is on the disk when this returns."""
        path = self.folder / f"records-{distributed.world()[0]}.jsonl"
        line = self._line(record)
        try:
            with path.open("ab") as file:
                file.write((line if file.tell() else self._head + line).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(
                f"cannot write to {path}: {error.strerror}; make room and start again, it goes on"
            ) from error

    def _lock(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._held = file = (self.folder / "lock").open("a+", encoding="utf-8", errors="replace")
        file.seek(0)
        if not lock(file.fileno()):
            owner = file.readline(200).strip() or "another process"
            raise ConfigError(f"{self.folder} is in use by {owner}; wait for its end, or give another folder")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.ctime()}\n")
        file.flush()

    def _repair(self) -> None:
        """Read all files, and write those anew that hold anything but the line of the job and a line for each batch."""
        dropped = 0
        for path in self._paths():
            records, bad = self._read(path)
            kept = {number: record for number, record in records.items() if number not in self.records}
            dropped += bad + len(records) - len(kept)
            self.records |= kept
            text = "".join([self._head, *map(self._line, kept.values())])
            if text.encode() != path.read_bytes():
                write_whole(path, text)
        if dropped:
            self.say(f"{self.folder} had {dropped} lines that were torn, damaged or repeated; they do not count")

    def _read(self, path: Path) -> tuple[dict[int, Record], int]:
        """The records in a file by batch, and how many lines are none; those of another job are refused."""
        found: dict[int, Record] = {}
        bad = 0
        for line in path.read_bytes().splitlines():
            value = _parsed(line)
            job, record = value.get("job"), value.get("record")
            if isinstance(job, dict) and job != self.job:
                raise ConfigError(
                    f"{path} holds records of another job ({_difference(job, self.job)}); "
                    "give another folder, or remove it to start anew"
                )
            if isinstance(job, dict):
                continue
            number = record.get("batch") if isinstance(record, dict) else None
            if not isinstance(number, int) or number < 0 or value.get("seal") != self._seal(record, job):
                bad += 1
                continue
            if job != self.id:
                raise ConfigError(
                    f"{path} holds records of another job, {job}, and this is {self.id}; "
                    "give another folder, or remove it to start anew"
                )
            bad += number in found
            found.setdefault(number, value["record"])
        return found, bad

    @property
    def _head(self) -> str:
        return json.dumps({"job": self.job}) + "\n"

    def _line(self, record: Record) -> str:
        return json.dumps({"job": self.id, "seal": self._seal(record), "record": record}) + "\n"

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("records-*.jsonl") if path.is_file())

    def _seal(self, record: Any, job: Any = None) -> str:
        return _checksum(f"{job or self.id}{json.dumps(record)}")


def _batches(batches: Iterable[Any]) -> Iterator[Any]:
    if not isinstance(batches, Iterable):
        raise DataError(f"the data is a {type(batches).__name__}; give a loader or a list of batches")
    return iter(batches)


def _parsed(line: bytes) -> dict[str, Any]:
    """What a line says; nothing where it is no JSON of the usual kind: cut off, NaN, too deep, numbers without end."""
    try:
        value = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in changed[:3])
