"""What a process pays before its first answer: importing spikecast, and the compiled loops."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.timing import Row, single

IMPORT = "import torch, time; t = time.perf_counter(); import spikecast; print(time.perf_counter() - t)"
FIRST = """
import time, torch
from spikecast.kernels import encode
from spikecast.theory.neuron import Neuron
t = time.perf_counter()
encode(torch.randn(8, 4, 64, 56, 56), torch.ones(64, 1, 1), Neuron(lower=0.0))
print(time.perf_counter() - t)
"""


def seconds(code: str, **env: str) -> float:
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | env)
    return float(out.stdout.splitlines()[-1])


def rows(rounds: int) -> Iterator[Row]:
    yield single("import spikecast, after torch", [seconds(IMPORT) for _ in range(rounds)], "s", "<= 0.3")
    with tempfile.TemporaryDirectory() as folder:
        yield single("first call of the kernel, compiled", [seconds(FIRST, NUMBA_CACHE_DIR=folder)], "s")
        again = [seconds(FIRST, NUMBA_CACHE_DIR=folder) for _ in range(3)]
        yield single("first call of the kernel in another process, cached", again, "s", "<= 1.5")
