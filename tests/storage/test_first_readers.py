"""Threads that read their first file at the same time: msgspec would crash where two meet a type for the first time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import spikecast
from spikecast import hardware

# In a process that has read nothing yet: children of it each read with several threads at once.
SCRIPT = """
import os, sys, threading
import spikecast
from spikecast.hardware import load_events
sys.setswitchinterval(1e-6)
path = sys.argv[1]
read = load_events if path.endswith(".npz") else spikecast.load
for _ in range(8):
    child = os.fork()
    if not child:
        ready = threading.Barrier(6)
        def first():
            ready.wait()
            read(path)
        threads = [threading.Thread(target=first) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"a reader ended with status {status}")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize("name", ["x.net", "x.npz"])
def test_first_readers(tmp_path: Path, name: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    x = torch.randn(2, 4)
    snn = spikecast.convert(model, [x], spikecast.Config(thresholds="quantile"))
    snn.save(tmp_path / "x.net")
    hardware.record_events(snn, x).save(tmp_path / "x.npz")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
