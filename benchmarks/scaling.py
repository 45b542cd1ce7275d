"""How time and memory grow, and what calibration and conversion cost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch

import spikecast
from benchmarks.networks import T, build
from benchmarks.timing import Row, in_turns, ratio, single
from spikecast import Config
from spikecast.pipeline import prepare

# Run in a process of its own: what it takes at most is then what the run took.
PEAK = """
import json, resource, torch, spikecast
from benchmarks.networks import build
torch.set_num_threads({threads})
model, size = build("ResNet-50")
x = torch.randn(16, 3, size, size)
snn = spikecast.convert(model, [x[:1]], spikecast.Config(num_steps=8, thresholds="quantile"))
snn.run(x[:1], num_steps=1)
low = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() // 1024
answer = snn.run(x, max_memory="{limit}")
high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
same = bool(torch.allclose(answer, snn.run(x, max_batch=8), rtol=1e-4, atol=1e-4))
print(json.dumps([low, high, same]))
"""


def memory(_rounds: int) -> Iterator[Row]:
    """Peak memory of ResNet-50, T = 8, B = 16 beyond what the process held before (the weights and torch)."""
    for limit, bytes_ in (("1GiB", 2**30), ("256MiB", 2**28)):
        code = PEAK.format(threads=torch.get_num_threads(), limit=limit)
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        low, high, same = json.loads(out.splitlines()[-1])
        if not same:
            raise SystemExit(f"max_memory={limit} changed the answer")
        yield single(
            f"ResNet-50, T = 8, B = 16, max_memory = {limit}: growth", [1024 * (high - low) / bytes_], "x limit", "<= 1"
        )


def scaling(rounds: int) -> Iterator[Row]:
    """How well a straight line through zero fits the time against T and against B: the largest deviation."""
    model, size = build("ResNet-34")
    x = torch.randn(8, 3, size, size)
    snn = spikecast.convert(model, [x[:2]], Config(num_steps=T, thresholds="quantile"))
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
        config = Config(num_steps=T, num_levels=4, thresholds=method)  # type: ignore[arg-type]
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
