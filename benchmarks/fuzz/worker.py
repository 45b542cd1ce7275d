"""Runs cases in forked processes under limits of time and memory; who dies is known by the number it last wrote.

A process takes many cases, since a fork with torch in it takes longer than a case. One that dies is followed by a new
one behind the case that killed it; that case is then tried alone, so that what an earlier one broke is not its fault.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import signal
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from numba.core.event import TimingListener, install_listener

MEMORY = 2**30  # beyond what the process has already
SECONDS = 2.0  # of processor time
COMPILING = 20  # seconds more: neurons with settings of their own want a kernel of their own, once
CLOCK = 120  # seconds without any news, as of one that waits for ever
BATCH = 500
_TOO_LONG = f"signal {signal.SIGXCPU:d}"
_PAGE = os.sysconf("SC_PAGESIZE")
_OUT_OF_MEMORY = ("allocate memory", "out of memory", "not enough memory", "bad_alloc", "MemoryError")


@dataclass(frozen=True)
class Finding:
    """A case that did what none may do."""

    seed: int
    what: str  # "signal 11", "cpu 3.1 s", "memory 1.4 of what is allowed", or an exception that is not ours
    alone: bool = True  # whether it does so without the cases before it


class Board:
    """Memory that parent and child share: the case at work, what was found, and how many were refused or fine."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 4096)

    def __getitem__(self, place: int) -> int:
        return int(struct.unpack_from("q", self.memory, 8 * place)[0])

    def __setitem__(self, place: int, value: int) -> None:
        struct.pack_into("q", self.memory, 8 * place, value)


AT, REFUSED, FINE = 0, 1, 2
Trial = Callable[[], bool]  # tries a case, says whether it was refused, raises what is not ours
Make = Callable[[int], Trial]  # from a seed; what that takes is not the case's fault


def run(make: Make, seeds: range, found: Callable[[Finding], None]) -> tuple[int, int]:
    """Try all cases; how many were refused, and how many were fine."""
    board, at = Board(), seeds.start

    def told(finding: Finding) -> None:
        """Fresh memory is slow on a busy machine: what took too long is tried once more."""
        again: list[Finding] = []
        if finding.what.startswith("cpu"):
            _in_child(make, range(finding.seed, finding.seed + 1), Board(), again.append)
        if again or not finding.what.startswith("cpu"):
            found(finding)

    while at < seeds.stop:
        batch = range(at, min(at + BATCH, seeds.stop))
        what = _in_child(make, batch, board, told)
        at = board[AT] + 1
        if what is None:
            continue
        if what == _TOO_LONG:
            found(Finding(at - 1, f"cpu above {SECONDS} s"))
            continue
        again = _in_child(make, range(at - 1, at), Board(), lambda finding: None)
        found(Finding(at - 1, again or what, again is not None))
    return board[REFUSED], board[FINE]


def _in_child(make: Make, seeds: range, board: Board, found: Callable[[Finding], None]) -> str | None:
    """Try cases in a fork; how it ended, if not by itself."""
    with tempfile.TemporaryFile() as notes:
        with warnings.catch_warnings():  # of threads, which the child does without
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                _work(make, seeds, board, notes.fileno())
                code = 0
            finally:
                os._exit(code)
        status = _wait(child, board)
        notes.seek(0)
        for line in notes.read().decode().splitlines():
            seed, _, what = line.partition(" ")
            found(Finding(int(seed), what))
    if status == 0:
        return None
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


def _wait(child: int, board: Board) -> int:
    """Wait for the child, and end it if it does nothing for too long."""
    last, since, pause = board[AT], time.monotonic(), 0.002
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        if board[AT] != last:
            last, since = board[AT], time.monotonic()
        elif time.monotonic() - since > CLOCK:
            os.kill(child, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.1, 1.5 * pause)


def _work(make: Make, seeds: range, board: Board, notes: int) -> None:
    """In the child: try cases one after the other, until all are done or it has grown too large."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    faulthandler.disable()
    torch.set_num_threads(1)
    before = _size()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (before + 2 * MEMORY, before + 2 * MEMORY))
    for seed in seeds:
        board[AT] = seed
        trial = make(seed)
        start = time.process_time()
        limit = int(start + SECONDS + COMPILING) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        peak = _peak()
        what, compiling = "", TimingListener()  # type: ignore[no-untyped-call]
        try:
            with install_listener("numba:compile", compiling):
                board[REFUSED if trial() else FINE] += 1
        except Exception as error:
            what = said(error)
        taken = time.process_time() - start - (compiling.duration if compiling.done else 0)
        if taken > SECONDS:
            what = f"cpu {taken:.1f} s; {what}"
        if _peak() - peak > MEMORY:
            what = f"memory {(_peak() - peak) / MEMORY:.1f} of what is allowed; {what}"
        if what:
            os.write(notes, f"{seed} {what}\n".encode())
        if _size() - before > MEMORY // 2:  # the rest is for a fresh process, which has all the memory again
            return


def said(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def is_out_of_memory(said: str) -> bool:
    """Whether an exception says that there was no memory."""
    return any(words in said for words in _OUT_OF_MEMORY)


def came_of(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _size() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * _PAGE


def _peak() -> int:
    """The most memory there ever was, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
