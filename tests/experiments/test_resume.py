"""A run that is killed goes on where it was; several processes measure what one would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError, DataError
from spikecast.experiments.resume import Journal, evaluate_all
from spikecast.measure.evaluate import Evaluator

PROGRAM = """
import json, sys, time
import torch
from torch import nn
import spikecast
from spikecast import Config, distributed
from spikecast.experiments.resume import evaluate_all
from spikecast.measure.evaluate import Evaluator

torch.set_num_threads(1)
rank, _ = distributed.join()
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, 7)).eval()
batches = [(torch.randn(3, 2, 8, 8), torch.randint(0, 7, (3,))) for _ in range(13)]
snn = spikecast.convert(model, batches[:3], Config(num_steps=4, thresholds="quantile"))

def slow():
    for number, batch in enumerate(batches):
        if number > 4:
            time.sleep(float(sys.argv[2]))
        yield batch

measured = []
folder = sys.argv[1] if sys.argv[1] != "-" else None
evaluator = Evaluator(snn, model=model)
result = evaluate_all(evaluator, slow(), folder=folder, job={"model": "small"}, progress=measured.append)
if rank == 0:
    print(json.dumps([result.to_json(), sum(measured)]))
"""


def start(tmp_path, processes: int, *words: str) -> subprocess.Popen[str]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *launch, str(script), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> list[Any]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.mark.slow
def test_killed_and_resumed_on_other_numbers_of_processes(tmp_path) -> None:
    whole, samples = finish(start(tmp_path, 1, "-", "0"))
    assert samples == 39
    assert whole["samples"] == 39
    folder = tmp_path / "records"
    killed = start(tmp_path, 1, str(folder), "30")
    path = folder / "records-0.jsonl"
    deadline = time.monotonic() + 120
    while not path.exists() or len(path.read_text().splitlines()) < 4:
        assert time.monotonic() < deadline
        assert killed.poll() is None, killed.stderr.read()
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done = len(path.read_text().splitlines()) - 1
    assert 3 <= done <= 5
    with path.open("a") as file:
        file.write('{"batch": 12, "sam')  # cut off while it was written
    resumed, _ = finish(start(tmp_path, 2, str(folder), "0"))
    assert resumed == whole
    again, _ = finish(start(tmp_path, 1, str(folder), "0"))
    assert again == whole


def test_a_folder_that_is_in_use_ends_all_processes(tmp_path) -> None:
    """The first process is refused; the others must not wait for it."""
    with Journal(tmp_path / "records", {}):
        process = start(tmp_path, 2, str(tmp_path / "records"), "0")
        _, err = process.communicate(timeout=300)
    assert process.returncode != 0
    assert f"is in use by process {os.getpid()} on " in err


@pytest.fixture
def evaluator() -> Evaluator:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    x = torch.randn(5, 4)
    return Evaluator(spikecast.convert(model, [x], Config(num_steps=2, thresholds="quantile")))


def test_finished_batches_are_not_measured_again(evaluator, tmp_path, monkeypatch) -> None:
    batches = [(torch.randn(2, 4), torch.tensor([0, 2])) for _ in range(4)]
    first = evaluate_all(evaluator, batches, folder=tmp_path)
    monkeypatch.setattr(evaluator, "measure", lambda *_: pytest.fail("measured again"))
    assert evaluate_all(evaluator, batches, folder=tmp_path).to_json() == first.to_json()


def test_records_of_another_job_are_refused(evaluator, tmp_path) -> None:
    batches = [(torch.randn(2, 4), torch.tensor([0, 2]))]
    evaluate_all(evaluator, batches, folder=tmp_path, job={"weights": "a"})
    with pytest.raises(ConfigError, match="weights was 'a' and is 'b'"):
        evaluate_all(evaluator, batches, folder=tmp_path, job={"weights": "b"})


def test_a_folder_that_cannot_be_written(evaluator, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write to"):
        evaluate_all(evaluator, [], folder=tmp_path / "file" / "records")
