"""How far a job is: told stage by stage, or as a bar on a real terminal; nothing where nobody asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from spikecast import Config, convert, distributed, measure, progress
from spikecast.errors import ConfigError

PROGRAM = """
import time
from spikecast.progress import progress
with progress(40, "outer") as done:
    for k in range(4):
        with progress(5, f"stage {k}") as inner:
            for _ in range(5):
                time.sleep(0.05)
                inner(1)
        done(10)
print("result")
"""
STAGES = """
import time
from spikecast.progress import counted, tell, telling
with telling(True):
    for k in range(4):
        tell("capture", k, 4)
        time.sleep(0.05)
    tell("capture", 4, 4)
    for _ in counted(range(3), "calibrate"):
        time.sleep(0.05)
print("result")
"""


def shown(master: int) -> str:
    """What came to a terminal, without its control codes."""
    parts = []
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        parts.append(part)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(parts).decode())


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (PROGRAM, [r"outer\W+20/40", r"stage 1\W+[1-5]/5", r"\d+\.\d images/s", r"left \d+:\d\d:\d\d"]),
        (STAGES, [r"capture\W+[1-3]/4", r"calibrate\W+[12]/3"]),
    ],
    ids=["images", "stages"],
)
def test_on_a_terminal(program: str, words: list[str]) -> None:
    master, slave = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=slave, env=environment, text=True
    ) as process:
        os.close(slave)
        text = shown(master)
        assert process.stdout is not None
        result = process.stdout.read()
        assert process.wait(60) == 0, text
    os.close(master)
    assert result == "result\n"
    for each in words:
        assert re.search(each, text), (each, text[-2000:])


def test_without_a_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("result\n", "")


def test_a_line_now_and_then_where_there_is_no_terminal(capsys, monkeypatch) -> None:
    """Where there is no terminal."""
    monkeypatch.setattr(progress, "A_WHILE", 1e-9)
    monkeypatch.setattr(progress, "_watch", lambda silent: nullcontext())
    with progress.progress(10, "measuring") as done:
        done(4)
        done(4, "more")
    assert [line.split(", about")[0] for line in capsys.readouterr().err.splitlines()] == [
        "measuring: 4 images of 10",
        "more: 8 images of 10",
    ]
    monkeypatch.undo()
    with progress.progress(10, "measuring") as done:
        done(4)
    assert capsys.readouterr().err == ""


def test_the_time_it_takes_is_said_once_and_early(capsys, monkeypatch) -> None:
    """The first batch took ten seconds, the others one second each: that is what the rest will take."""
    now = 100.0
    monkeypatch.setattr("spikecast.progress.time.monotonic", lambda: now)
    monkeypatch.setattr(progress, "_watch", lambda silent: nullcontext())
    with progress.progress(100, "measuring") as done:
        for taken in (10.0, 1.0, 1.0, 1.0):
            now += taken
            done(10)
    assert capsys.readouterr().err == "measuring: 20 images of 100, about 8 s left\n"


def test_the_time_is_said_after_a_long_conversion_too(capsys, monkeypatch) -> None:
    """A minute's line has been said while the network was made. That little is left is not said."""
    now = 100.0
    monkeypatch.setattr("spikecast.progress.time.monotonic", lambda: now)
    monkeypatch.setattr(progress, "_watch", lambda silent: nullcontext())
    with progress.progress(100, "measuring") as done:
        now += 61.0
        progress._lines[-1].say()
        for _ in range(10):
            now += 1.0
            done(10)
    with progress.progress(30, "calibrating") as done:
        for _ in range(3):
            now += 2.0
            done(10)
    assert capsys.readouterr().err.splitlines() == [
        "measuring: 0 images of 100, for 1 min by now",
        "measuring: 20 images of 100, about 8 s left",
    ]


def test_a_long_part_is_told_of_while_it_lasts(capsys, monkeypatch) -> None:
    monkeypatch.setattr(progress, "A_WHILE", 0.2)
    with progress.progress(10, "measuring"), progress.telling(True):
        progress.tell("capture", 0, 1)
        time.sleep(1.5)
    said = capsys.readouterr().err.splitlines()
    assert said
    assert all(line.startswith("capture: 0 of 1") for line in said)
    assert "spikecast progress" not in [thread.name for thread in threading.enumerate()]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


BATCHES = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(2)]
Told = list[tuple[str, int, int | None]]


def told(batches: Any = BATCHES, **settings: Any) -> Told:
    found: Told = []
    convert(net(), batches, Config(num_steps=2, **settings), progress=lambda *stage: found.append(stage))
    return found


def test_stages_of_a_conversion() -> None:
    first: Told = [("capture", 0, 1), ("capture", 1, 1)]
    calibrated: Told = [("calibrate", 0, 2), ("calibrate", 1, 2), ("calibrate", 2, 2)]
    assert told(thresholds="quantile") == first + calibrated
    assert told(thresholds="search") == [*first, *calibrated, ("search", 1, 2), ("search", 2, 2)]
    unknown: Told = [("calibrate", 0, None), ("calibrate", 1, None), ("calibrate", 2, None), ("calibrate", 2, 2)]
    assert told(iter(BATCHES), thresholds="quantile") == first + unknown
    allocated = [stage for stage in told(energy_budget=0.5) if stage[0] == "allocate"]
    assert allocated[:2] == [("allocate", 0, 7), ("allocate", 1, 7)]
    assert allocated == sorted(allocated)
    assert allocated[-1] == ("allocate", 7, 7)
    one = [stage for stage in told(BATCHES[0][0], thresholds="quantile") if stage[0] == "calibrate"]
    assert one == [("calibrate", 0, 1), ("calibrate", 1, 1)]


def test_stages_of_a_measurement(capfd) -> None:
    found: Told = []
    snn = convert(net(), BATCHES, Config(num_steps=2, thresholds="quantile"))
    quiet = measure.evaluate(snn, BATCHES)
    heard = measure.evaluate(snn, BATCHES, progress=lambda *stage: found.append(stage))
    assert found == [("measure", 0, 2), ("measure", 1, 2), ("measure", 2, 2)]
    assert heard.steps == quiet.steps == measure.evaluate(snn, BATCHES, progress=True).steps
    assert capfd.readouterr() == ("", "")  # there is no terminal


def test_only_the_first_process_tells(monkeypatch) -> None:
    found: Told = []
    monkeypatch.setattr(distributed, "world", lambda: (1, 2))
    with progress.telling(lambda *stage: found.append(stage)):
        progress.tell("capture", 1, 1)
    with progress.telling(True):
        assert progress._bars == []
    assert found == []


def test_a_listener_is_forgotten_and_one_inside_another_takes_over() -> None:
    outer: Told = []
    inner: Told = []
    with progress.telling(lambda *stage: outer.append(stage)):
        with suppress(IndexError), progress.telling(lambda *stage: inner.append(stage)):
            progress.tell("inside", 1)
            outer.pop()
        with progress.telling(False):
            progress.tell("outside", 2)
    progress.tell("nobody", 3)
    assert (inner, outer) == ([("inside", 1, None)], [("outside", 2, None)])


def test_what_is_no_listener() -> None:
    with pytest.raises(
        ConfigError, match=r"progress='yes' must be True, False or a function of \(stage, done, total\)"
    ):
        convert(net(), BATCHES, progress=cast(Any, "yes"))


def test_a_stream_has_no_length() -> None:
    class Stream(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Any:
            return iter(torch.randn(8, 6))

    heard = told(DataLoader(Stream(), batch_size=4), thresholds="quantile")
    assert ("calibrate", 0, None) in heard
    assert heard[-1] == ("calibrate", 2, 2)
