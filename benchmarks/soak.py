"""Many processes and threads convert, run, save, load and resume for a while, and some are killed all the time.

python -m benchmarks.soak [--minutes 30] [--processes 3] [--threads 2] [--folder out/soak]

Every answer is compared with the first one, every file must be whole, and a folder of records goes on after each kill.
Three kills of four strike an evaluation that has finished some of its batches; "continued" counts those that went on
from there, with the right figures. The first process is never killed: its descriptors, threads and memory must not
grow. Exits with 1 on any fault.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import spikecast
from spikecast.errors import ConfigError
from spikecast.experiments.resume import evaluate_all
from spikecast.hardware import load_events, record_events
from spikecast.measure import Evaluator
from spikecast.storage.files import write_whole

CONFIG = spikecast.Config(num_steps=3, thresholds="quantile")
TOLERANCE = 1e-6  # a run beside a conversion may differ in the last bits
WARM = 5  # cycles before the memory is compared
MAX_GROWTH = 1024  # KiB of a cycle; torch.export itself loses 140 with each conversion
BATCHES = 6
MUST_CONTINUE = 5  # minutes: in a longer run, evaluations must have gone on after a kill
WINDOW = 20  # seconds that all processes try to share a folder of records


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 4)]
    return nn.Sequential(*layers).eval()


def batches() -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(4, 2, 8, 8), torch.randint(0, 4, (4,))) for _ in range(BATCHES)]


class Worker:
    """One process: conversions and evaluations in its first thread, runs and files in the others."""

    def __init__(self, slot: int, folder: Path, threads: int) -> None:
        self.slot, self.folder, self.threads = slot, folder, threads
        self.model, self.batches = model(), batches()
        self.x = self.batches[0][0]
        self.counts: Counter[str] = Counter()
        self.counting, self.stop = threading.Lock(), threading.Event()
        self.faults: list[str] = []
        self.network = spikecast.convert(self.model, self.batches, CONFIG)
        self.expected = self.network(self.x)
        self.figures = evaluate_all(Evaluator(self.network, model=self.model), self.batches).to_json()

    def work(self, until: float, cycles: int) -> int:
        """Go on until a time, and for some cycles at least; the number of faults."""
        others = [threading.Thread(target=self._guarded, args=(n,)) for n in range(self.threads)]
        for thread in others:
            thread.start()
        done = 0
        try:
            while (time.time() < until or done < cycles) and not self.faults:
                self._cycle()
                done += 1
                self._note()
        except Exception:
            self.faults.append(traceback.format_exc())
        self.stop.set()
        for thread in others:
            thread.join()
        for fault in self.faults:
            print(f"process {self.slot}: {fault}", file=sys.stderr, flush=True)
        return len(self.faults)

    def _cycle(self) -> None:
        self.network = spikecast.convert(self.model, self.batches, CONFIG)
        self._count("convert")
        self._same(self.network(self.x), "converted anew")
        own = records_of(self.slot, self.folder)
        left = finished(own)
        self._evaluate(own)
        if left:  # by one that was killed; noted before anybody can kill this one, which is when the folder is gone
            self._count("continued")
            self._note()
        shutil.rmtree(own)
        try:
            self._evaluate(self.folder / f"shared-{int(time.time()) // WINDOW}")
        except ConfigError as error:
            if "is in use by" not in str(error):
                raise
            self._count("refused")

    def _evaluate(self, folder: Path) -> None:
        found = evaluate_all(Evaluator(self.network, model=self.model), self._slowly(), folder=folder, say=self._said)
        if found.to_json() != self.figures:
            raise AssertionError(f"{folder}: other figures than without a kill")
        self._count("resume")

    def _slowly(self) -> Iterator[Any]:
        for batch in self.batches:
            time.sleep(0.15)  # so that some are killed in between
            yield batch

    def _said(self, text: str) -> None:
        self._count("torn")

    def _guarded(self, number: int) -> None:
        try:
            while not self.stop.wait(0.1):
                self._files(number)
        except Exception:
            self.faults.append(traceback.format_exc())

    def _files(self, number: int) -> None:
        """Run, save and load; one file is everybody's."""
        network = self.network
        self._same(network(self.x), "run")
        self._count("run")
        for path in (self.folder / f"net-{self.slot}-{number}.spikecast", self.folder / "shared.spikecast"):
            network.save(path)
            self._count("save")
            self._same(spikecast.load(path)(self.x), f"loaded from {path}")
            self._count("load")
        events = record_events(network, self.x)
        path = self.folder / f"events-{self.slot}-{number}.npz"
        events.save(path)
        if len(load_events(path)) != len(events):
            raise AssertionError(f"{path}: other events than were written")
        self._count("events")

    def _same(self, answer: Tensor, what: str) -> None:
        if float((answer - self.expected).abs().max()) > TOLERANCE:
            raise AssertionError(f"{what}: another answer than the first")

    def _count(self, what: str) -> None:
        with self.counting:
            self.counts[what] += 1

    def _note(self) -> None:
        """A line of figures, of this cycle."""
        with self.counting:
            counts, self.counts = self.counts, Counter()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        figures = {
            "pid": os.getpid(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": int(status["Threads"]),
            "memory": int(status["VmRSS"].split()[0]),
            "counts": counts,
        }
        with (self.folder / f"worker-{self.slot}.jsonl").open("a") as file:
            file.write(json.dumps(figures) + "\n")


def start(slot: int, given: argparse.Namespace, until: float) -> int:
    """Fork a worker; this process itself never computes, so that it may."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        cycles = 3 if slot == 0 else 1
        code = min(Worker(slot, given.folder, given.threads).work(until, cycles), 1)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def records_of(slot: int, folder: Path) -> Path:
    """Where a process keeps what it has measured, until it has measured all."""
    return folder / f"records-of-{slot}"


def finished(records: Path) -> int:
    """How many batches of an evaluation are recorded; the first line of a file is none."""
    try:
        return max(0, (records / "records-0.jsonl").read_bytes().count(b"\n") - 1)
    except FileNotFoundError:
        return 0


def victims(alive: dict[int, int], owing: set[int], folder: Path, *, measuring: bool) -> list[int]:
    """Who may be killed: not the first, and none that has yet to go on from where an earlier kill has left it."""
    found = {pid: slot for pid, slot in alive.items() if slot and slot not in owing}
    return [pid for pid, slot in found.items() if not measuring or 0 < finished(records_of(slot, folder)) < BATCHES]


def run(given: argparse.Namespace) -> tuple[int, list[str]]:
    """Keep all processes going until the time is over, and kill all but the first again and again."""
    until = time.time() + 60 * given.minutes
    alive = {start(slot, given, until): slot for slot in range(given.processes)}
    kills, faults, chance, owing = 0, [], random.Random(0), set[int]()
    next_kill = time.time() + given.kill_every
    while alive:
        owing = {slot for slot in owing if records_of(slot, given.folder).exists()}
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            slot = alive.pop(child)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and slot and time.time() < until:
                alive[start(slot, given, until)] = slot
            elif status and not (slot and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
                faults.append(f"process {slot} ended with status {status}")
        elif next_kill < time.time() < until and (
            found := victims(alive, owing, given.folder, measuring=kills % 4 < 3)
        ):
            victim = chance.choice(found)
            os.kill(victim, signal.SIGKILL)
            kills += 1
            owing.add(alive[victim])
            next_kill = time.time() + given.kill_every * chance.uniform(0.2, 1.8)
        time.sleep(0.05)
    return kills, faults


def checked(folder: Path, minutes: float) -> tuple[dict[str, Any], list[str]]:
    """What the processes noted in so many minutes, and what is wrong with it or with what they left."""
    noted = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("worker-*.jsonl"))
    }
    counts: Counter[str] = Counter()
    for lines in noted.values():
        for line in lines:
            counts.update(line["counts"])
    cycles = noted.get("worker-0", [])
    if len(cycles) < 3:
        return {**counts}, ["the first process has done too little"]
    steady = cycles[min(WARM, len(cycles) - 2) :]
    first, last, part = steady[0], steady[-1], max(1, len(steady) // 4)
    begin, end = (median(line["memory"] for line in lines) for lines in (steady[:part], steady[-part:]))
    growth = (end - begin) / max(1, len(steady) - part)
    figures = {**counts, "cycles": len(cycles), "KiB per cycle": round(growth)}
    figures["continued"] = counts["continued"]
    faults = []
    if minutes > MUST_CONTINUE and not counts["continued"]:
        faults.append(f"no evaluation went on after a kill in {minutes:g} minutes")
    for what in ("descriptors", "threads"):
        figures[what] = f"{first[what]} to {last[what]}"
        if last[what] > first[what] + 2:
            faults.append(f"{what} grew from {first[what]} to {last[what]}")
    if len(steady) > 20 and growth > MAX_GROWTH:
        faults.append(f"the memory grew by {growth:.0f} KiB in a cycle, the bound is {MAX_GROWTH}")
    write_whole(folder / "done", "done")  # which removes what the killed have left
    left = [path.name for path in folder.glob(".spikecast-*")]
    return figures, [*faults, *(f"{name} is left" for name in left)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of each process, besides its first")
    parser.add_argument("--kill-every", type=float, default=20, help="seconds between two kills, about")
    parser.add_argument("--folder", type=Path, default=Path("out/soak"))
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    began = time.time()
    kills, faults = run(given)
    figures, wrong = checked(given.folder, given.minutes)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    figures = {"minutes": round((time.time() - began) / 60, 1), "kills": kills, **figures, "peak MiB": peak}
    for name, value in figures.items():
        print(f"{name:14} {value}")
    for fault in (*faults, *wrong):
        print(f"FAULT: {fault}")
    print("no faults" if not faults and not wrong else f"{len(faults) + len(wrong)} faults")
    return 1 if faults or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
