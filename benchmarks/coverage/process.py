"""Each network in a process of its own, with limits of time and memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
from multiprocessing.connection import Connection

from benchmarks.coverage.models import Case
from benchmarks.coverage.records import Record

PROCESSES = multiprocessing.get_context("forkserver")  # they share what takes long to import
PROCESSES.set_forkserver_preload(["benchmarks.coverage.examine", "timm", "torchvision"])


def tried(case: Case, seconds: int, gigabytes: float) -> Record:
    """The record of one network; `failed` says why there is not more in it."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_examine, args=(theirs, case, seconds, gigabytes))
    process.start()
    theirs.close()
    found: Record = {"failed": f"stopped after {seconds} s of the processor's time, or for want of memory"}
    with contextlib.suppress(EOFError):  # a try with larger images that is stopped leaves what the first one found
        while True:
            found = ours.recv()
    process.join()
    return {"key": case.key, **found}


def _examine(answer: Connection, case: Case, seconds: int, gigabytes: float) -> None:
    """In the process of its own: the system ends it when its time is over."""
    from benchmarks.coverage.examine import examine

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (int(gigabytes * 2**30),) * 2)
    found = None
    try:
        for found in examine(case):
            answer.send({"failed": "", **found})
    except Exception as error:  # whatever it is, it is what the table says of this network
        if found is None:
            answer.send({"failed": f"{type(error).__name__}: {error}".splitlines()[0]})
