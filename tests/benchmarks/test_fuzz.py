"""The fuzzer finds what it is for, and a slice of it finds nothing; nor do the cases that were found before."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz import artifacts, worker
from benchmarks.fuzz.kinds import KINDS
from benchmarks.fuzz.worker import Finding
from spikecast.hardware.events import files as event_files
from spikecast.hardware.nir import file as nir_files
from spikecast.storage.child import read_hdf5

FOUND: list[dict[str, Any]] = json.loads((Path(__file__).parent / "found.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def own_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer reads HDF5 in a quicker way; other tests must not."""
    for module in (event_files, nir_files):
        monkeypatch.setattr(module, "read_hdf5", read_hdf5)


def findings(attempt: Callable[[int], bool], seeds: range) -> list[Finding]:
    found: list[Finding] = []
    worker.run(lambda seed: partial(attempt, seed), seeds, found.append)
    return found


def misbehaving(seed: int) -> bool:
    """Every second case is good."""
    match seed:
        case 1:
            os.abort()
        case 3:
            raise KeyError("x")
        case 5:
            assert bytearray(b"x") * (worker.MEMORY + worker.MEMORY // 4)
        case 7:
            while True:
                pass
        case 9:
            start = time.process_time()
            while time.process_time() - start < 1.5 * worker.SECONDS:
                pass
    return False


def test_what_must_not_be_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SECONDS", 0.5)
    monkeypatch.setattr(worker, "COMPILING", 0)
    monkeypatch.setattr(worker, "MEMORY", 2**26)  # so much is taken within the time
    found = findings(misbehaving, range(12))
    assert [finding.seed for finding in found] == [1, 3, 5, 7, 9]
    said = ["signal 6", "KeyError: 'x'", "memory 1.2 of what is allowed", "cpu above 0.5 s", "cpu 0."]
    assert all(finding.what.startswith(words) for finding, words in zip(found, said, strict=True)), found


def test_what_an_earlier_case_broke_is_not_the_fault_of_the_last() -> None:
    done: list[int] = []

    def attempt(seed: int) -> bool:
        done.append(seed)
        if len(done) > 3:
            os.abort()
        return False

    assert [(finding.seed, finding.alone) for finding in findings(attempt, range(6))] == [(3, False)]


def test_what_took_too_long_once_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def slow_at_first(seed: int) -> bool:
        if not (tmp_path / str(seed)).exists():
            (tmp_path / str(seed)).touch()
            misbehaving(9)
        return False

    monkeypatch.setattr(worker, "SECONDS", 0.5)
    assert findings(slow_at_first, range(2)) == []


def test_making_a_case_is_not_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a file of 64 MB, which is refused at once."""
    found: list[Finding] = []

    def make(seed: int) -> worker.Trial:
        assert not misbehaving(9)  # takes its time
        return lambda: seed == 0

    monkeypatch.setattr(worker, "SECONDS", 0.5)
    assert (worker.run(make, range(2), found.append), found) == ((1, 1), [])


def test_one_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(seed: int) -> bool:
        time.sleep(99 * seed)
        return False

    monkeypatch.setattr(worker, "CLOCK", 1)
    assert [finding.what for finding in findings(attempt, range(2))] == ["signal 9"]


@pytest.mark.parametrize(("name", "seeds"), [("artifacts", range(150)), ("events", range(400)), ("nir", range(20))])
def test_a_slice(name: str, seeds: range, tmp_path: Path) -> None:
    kind = KINDS[name]
    kind.warm_up()
    path = tmp_path / f"case{kind.suffix}"

    def attempt(seed: int) -> bool:
        path.write_bytes(kind.content(seed))
        return kind.attempt(path)

    found = [finding for finding in findings(attempt, seeds) if not kind.sort(finding).startswith("raw")]
    assert found == []


def test_every_op_is_tried() -> None:
    """Cases call each overload that a file may name."""
    cases = [artifacts.case_of(seed) for seed in range(12_000)]
    tried = {node["op"] for case in cases if case["kind"] == "op" for node in case["nodes"]}
    assert tried == set(artifacts.targets())


def test_cases_are_the_same_each_time() -> None:
    kind = KINDS["artifacts"]
    kind.warm_up()
    assert all(kind.content(seed) == kind.content(seed) for seed in range(20))


@pytest.mark.parametrize("case", FOUND, ids=lambda case: str(case["why"]))
def test_what_was_found_is_mended(case: dict[str, Any], tmp_path: Path) -> None:
    """Each is refused. On commit 645a02e it dies, takes all memory, or is fine with an answer that nobody wrote."""
    artifacts.warm_up()
    path, found = tmp_path / "case.spikecast", list[Finding]()
    path.write_bytes(artifacts.content_of(case))
    done = worker.run(lambda _: partial(artifacts.attempt, path), range(1), found.append)
    assert (found, done) == ([], (1, 0))
