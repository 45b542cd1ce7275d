"""How time and memory grow, and what calibration and conversion cost."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

import spikecast
from benchmarks.networks import T, build
from benchmarks.timing import Row, in_turns, ratio, single
from spikecast import Config
from spikecast.conversion.pipeline import prepare

# Run in a process of its own: what it takes at most is then what the run took.
PEAK = """
import json, resource, sys, torch, spikecast
torch.set_num_threads({threads})
snn = spikecast.load(sys.argv[1])
x = torch.randn(16, 3, 224, 224)
snn.run(x[:1], num_steps=1)
low = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
answer = snn.run(x, max_memory="{limit}")
high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
same = bool(torch.allclose(answer, snn.run(x, max_batch=8), rtol=1e-4, atol=1e-4))
print(json.dumps([low, high, same]))
"""
# A process is born with its parent's peak, which is ours and large; a small one in between has it forgotten.
FORGET = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"


def memory(_rounds: int) -> Iterator[Row]:
    """Peak memory of ResNet-50, T = 8, B = 16 beyond that of the network loaded and run on one image for one step."""
    model, size = build("ResNet-50")
    snn = spikecast.convert(model, [torch.randn(1, 3, size, size)], Config(num_steps=T, burst=1, thresholds="quantile"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network"
        snn.save(path)
        for limit, bytes_ in (("1GiB", 2**30), ("256MiB", 2**28)):
            code = PEAK.format(threads=torch.get_num_threads(), limit=limit)
            command = [sys.executable, "-c", FORGET, sys.executable, "-c", code, str(path)]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            low, high, same = json.loads(out.splitlines()[-1])
            if not same:
                raise SystemExit(f"max_memory={limit} changed the answer")
            name = f"ResNet-50, T = 8, B = 16, max_memory = {limit}: growth"
            yield single(name, [1024 * (high - low) / bytes_], "x limit", "<= 1")


def scaling(rounds: int) -> Iterator[Row]:
    """How well a straight line through zero fits the time against T and against B: the largest deviation."""
    model, size = build("ResNet-34")
    x = torch.randn(8, 3, size, size)
    snn = spikecast.convert(model, [x[:2]], Config(num_steps=T, burst=1, thresholds="quantile"))
    for what, sizes, run in (
        ("T", (2, 4, 8, 16), lambda k: snn.run(x[:4], num_steps=k)),
        ("B", (1, 2, 4, 8), lambda k: snn.run(x[:k], num_steps=T)),
    ):
        work = {str(k): partial(run, k) for k in sizes}
        best = {k: min(times) for k, times in zip(sizes, in_turns(work, rounds).values(), strict=True)}
        slope = sum(k * t for k, t in best.items()) / sum(k * k for k in best)
        worst = max(abs(t / (slope * k) - 1) for k, t in best.items())
        yield single(f"ResNet-34, time against {what} = {sizes}: off a line through 0", [worst], "x", "<= 0.25")


def calibration(rounds: int) -> Iterator[Row]:
    """Calibration per image over one ANN run of it, and conversion without calibration."""
    model, size = build("ResNet-34")
    x = torch.randn(16, 3, size, size)
    few, many = [x[:8]], [x[:8], x[8:], x[:8], x[8:]]  # 24 more, all within the 32 that the search takes

    def ann() -> None:
        with torch.inference_mode():
            for _ in range(3):
                model(x[:8])

    for method, goal in (("quantile", "<= 2"), ("iteration", "<= 2"), ("search", "<= 16")):
        config = Config(num_steps=T, burst=1, num_levels=4, thresholds=method)  # type: ignore[arg-type]
        # The difference of two conversions is the calibration of what the longer one sees more.
        work: dict[str, Callable[[], object]] = {
            "few": partial(spikecast.convert, model, few, config),
            "many": partial(spikecast.convert, model, many, config),
            "ann": ann,
        }
        times = in_turns(work, max(2, rounds // 3), warm=1)
        more = [a - b for a, b in zip(times["many"], times["few"], strict=True)]
        yield ratio(f"ResNet-34, {method}: calibration per image over the ANN", more, times["ann"], goal)
    for name, goal in (("ResNet-50", "<= 15"), ("ViT-Base", "<= 30")):
        model, size = build(name)
        x = torch.randn(2, 3, size, size)
        times = in_turns({"": partial(prepare, model, ((x,), {}), Config())}, 2, warm=0)
        yield single(f"{name}, conversion without calibration", times[""], "s", goal)
