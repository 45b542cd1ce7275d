"""Records of finished batches: none but those of the same job are taken, whatever stands in the folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError, DataError, SpikecastError
from spikecast.experiments.resume import Journal, evaluate_all
from spikecast.measure.evaluate import Evaluation, Evaluator

CONFIG = Config(num_steps=2, thresholds="quantile")
JOB = {"data": "mine"}


def made(seed: int = 0) -> Evaluator:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    return Evaluator(spikecast.convert(model, [torch.randn(5, 4)], CONFIG), model=model)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return made()


@pytest.fixture(scope="module")
def batches() -> list[Any]:
    torch.manual_seed(1)
    return [(torch.randn(2, 4), torch.tensor([0, 2])) for _ in range(3)]


@pytest.fixture(scope="module")
def wanted(evaluator: Evaluator, batches: list[Any]) -> dict[str, Any]:
    return evaluate_all(evaluator, batches).to_json()


class Again:
    """Evaluates in one folder, and notes which batches were measured and what was said."""

    def __init__(self, evaluator: Evaluator, batches: list[Any], folder: Path) -> None:
        self.evaluator, self.batches, self.folder = evaluator, batches, folder
        self.path = folder / "records-0.jsonl"

    def __call__(self, **settings: Any) -> Evaluation:
        self.measured: list[int] = []
        self.said: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            measure = self.evaluator.measure

            def noted(number: int, batch: Any) -> Any:
                self.measured.append(number)
                return measure(number, batch)

            patch.setattr(self.evaluator, "measure", noted)
            given = {"folder": self.folder, "job": JOB, "say": self.said.append, **settings}
            return evaluate_all(self.evaluator, self.batches, **given)

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines(keepends=True)


@pytest.fixture
def again(evaluator: Evaluator, batches: list[Any], tmp_path: Path, wanted: dict[str, Any]) -> Again:
    """With all batches measured once."""
    run = Again(evaluator, batches, tmp_path / "records")
    assert run().to_json() == wanted
    assert (run.measured, run.said) == ([0, 1, 2], [])
    assert run().to_json() == wanted
    assert (run.measured, run.said) == ([], [])
    return run


# -- the four ways to wrong results


def test_records_that_another_job_added(again: Again, wanted: dict[str, Any], tmp_path: Path) -> None:
    """Two jobs that were started at once in a new folder wrote to one file; the first line is that of one of them."""
    other = Again(made(7), again.batches, tmp_path / "other")
    other(job={"data": "yours"})
    again.path.write_text("".join([*again.lines[:2], *other.lines[1:]]))
    with pytest.raises(ConfigError, match="holds records of another job"):
        again()


def test_weights_that_were_replaced(again: Again) -> None:
    again.evaluator = made(7)
    with pytest.raises(
        ConfigError, match=r"another job \(weights of the model was '\w+' and is '\w+', weights of the n"
    ):
        again()


def test_batches_that_the_data_does_not_have(again: Again, evaluator: Evaluator) -> None:
    fewer = again.batches[:2]
    again.batches = fewer
    assert again().to_json() == evaluate_all(evaluator, fewer).to_json()
    assert again.said == [f"{again.folder} has 1 records of batches that the data does not have; they do not count"]


def test_a_lost_first_line(again: Again, wanted: dict[str, Any], tmp_path: Path) -> None:
    """Records say themselves whose they are; and the line is put back."""
    whole = again.path.read_bytes()
    again.path.write_text("".join(again.lines[1:]))
    assert again().to_json() == wanted
    assert again.measured == []
    assert again.path.read_bytes() == whole
    other = Again(made(7), again.batches, tmp_path / "other")
    other(job={"data": "yours"})
    again.path.write_text("".join(["{}\n", *other.lines[1:]]))
    with pytest.raises(ConfigError, match="holds records of another job, "):
        again()


# -- whatever else a folder holds


def test_cut_off_anywhere(again: Again, wanted: dict[str, Any]) -> None:
    """Whatever of the file is there, the result is the same, and the file is whole again."""
    whole = again.path.read_bytes()
    for size in [*range(0, len(whole), 97), len(whole) - 1]:
        again.path.write_bytes(whole[:size])
        assert again().to_json() == wanted
        assert again.path.read_bytes() == whole
        torn = size > 0 and not whole[:size].endswith(b"}") and not whole[:size].endswith(b"\n")
        assert again.said == ([TORN.format(again.folder, 1)] if torn else [])


TORN = "{} had {} lines that were torn, damaged or repeated; they do not count"


def changed(line: str, **changes: Any) -> str:
    value = json.loads(line)
    return json.dumps({**value, "record": {**value["record"], **changes}}) + "\n"


BAD: dict[str, Callable[[str], str]] = {
    "noise": lambda line: "\x00\x01\xff noise\n",
    "deep": lambda line: "[" * 100_000 + "\n",
    "digits": lambda line: '{"job": ' + "9" * 5000 + "}\n",
    "list": lambda line: "[1, 2]\n",
    "text": lambda line: '{"job": "x", "record": "text"}\n',
    "negative": lambda line: changed(line, batch=-1),
    "other number": lambda line: changed(line, batch=2),
    "no number": lambda line: changed(line, batch="1"),
    "nan": lambda line: changed(line, samples=float("nan")),
    "wrong type": lambda line: changed(line, steps=3),
    "one digit": lambda line: line.replace('"samples": 2', '"samples": 3'),
    "repeated": lambda line: line,
}


@pytest.mark.parametrize("bad", BAD)
def test_lines_that_are_no_records_are_dropped_and_counted(again: Again, wanted: dict[str, Any], bad: str) -> None:
    head, first, *rest = again.lines
    again.path.write_text("".join([head, first, BAD[bad](first), *rest]), encoding="latin-1")
    assert again().to_json() == wanted
    assert (again.measured, again.said) == ([], [TORN.format(again.folder, 1)])
    again.path.write_text("".join([head, BAD[bad](first), *rest]), encoding="latin-1")
    assert again().to_json() == wanted
    assert again.measured == ([] if bad == "repeated" else [0])


def test_records_that_two_processes_wrote(again: Again, wanted: dict[str, Any]) -> None:
    (again.folder / "records-1.jsonl").write_text("".join(again.lines))
    os.mkfifo(again.folder / "records-2.jsonl")  # no file, and not waited for
    assert again().to_json() == wanted
    assert again.said == [TORN.format(again.folder, 3)]


def test_without_say_it_is_a_warning(evaluator: Evaluator, batches: list[Any], tmp_path: Path) -> None:
    (tmp_path / "records-0.jsonl").write_text("torn")
    with pytest.warns(UserWarning, match="had 1 lines that were torn"):
        evaluate_all(evaluator, batches, folder=tmp_path)


# -- two jobs in one folder

HOLDER = """
import sys
from pathlib import Path
from spikecast.experiments.resume import Journal
with Journal(Path(sys.argv[1]), {}):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_one_jobs_alone(again: Again, wanted: dict[str, Any]) -> None:
    again.path.unlink()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(again.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ConfigError, match=rf"is in use by process {holder.pid} on .*; wait for its end, or give anoth"):
        again()
    holder.kill()  # which gives it free
    holder.communicate()
    assert again().to_json() == wanted
    with (
        Journal(again.folder, {**JOB, **again.evaluator.identity}),
        pytest.raises(ConfigError, match=f"is in use by process {os.getpid()} on "),
    ):
        again()  # of the same process, as from another thread


def test_a_folder_that_cannot_be_locked(evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> bool:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("spikecast.experiments.resume.lock", fail)
    with pytest.raises(DataError, match=r"cannot write to .*: No locks available; give another folder"):
        evaluate_all(evaluator, [], folder=tmp_path)


def test_a_disk_that_fills_up(again: Again, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    again.path.unlink()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("spikecast.experiments.resume.os.fsync", full)
        with pytest.raises(SpikecastError, match=r"records-0.jsonl: No space left"):
            again()
    assert again().to_json() == wanted
