"""The fused CPU kernel against the eager forms and a copy of its input: python -m benchmarks --only kernel

`python -m benchmarks.kernel` shows other layouts. Every figure is taken in turns in one process; wants an idle machine.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.timing import Row, in_turns, ratio
from spikecast.kernels import Count, encode
from spikecast.theory.neuron import Neuron

T = 8


def readable(inputs: Tensor, threshold: Tensor, neuron: Neuron) -> Tensor:
    """A ReLU or identity neuron as one would first write it: compare with one level after the other."""
    estimate, estimates = torch.zeros_like(inputs[0]), torch.empty_like(inputs)
    for t, value in enumerate(inputs, start=1):
        potential, spike = t * (value - estimate), torch.zeros_like(value)
        for i in range(neuron.num_levels, 0, -1):
            level = threshold / 2 ** (i - 1)
            spike = torch.where(potential >= 0.75 * level, level, spike)
            fits = estimate - level / t >= neuron.lower
            spike = torch.where((potential <= -0.75 * level) & fits, -level, spike)
        estimate = estimate + spike / t
        estimates[t - 1] = estimate
    return estimates


def best_of(runs: int, *functions: Callable[[], object]) -> list[float]:
    """The least time of each in milliseconds, taken in turns."""
    best = [math.inf] * len(functions)
    for _ in range(runs):
        for i, function in enumerate(functions):
            began = time.perf_counter()
            function()
            best[i] = min(best[i], 1e3 * (time.perf_counter() - began))
    return best


def rows(rounds: int) -> Iterator[Row]:
    """The fused kernel against the two other ways to write it, and against the limit that memory sets."""
    inputs = torch.randn(4, 64, 56, 56) + torch.randn(T, 4, 64, 56, 56) / 4
    threshold = torch.rand(64, 1, 1) + 0.5
    for n in (4, 8):
        neuron = Neuron(num_levels=n, lower=0.0)
        fused = partial(encode, inputs, threshold, neuron, backend="fused")
        fast = in_turns({"fused": fused, "copy": inputs.clone}, 10 * rounds, warm=3)
        slow = in_turns(
            {
                "eager": partial(encode, inputs, threshold, neuron, backend="eager"),
                "readable": partial(readable, inputs, threshold, neuron),
                "fused": fused,
            },
            rounds,
        )
        yield ratio(f"kernel n = {n}, eager exponent form over fused", slow["eager"], slow["fused"], ">= 8")
        yield ratio(f"kernel n = {n}, readable form over fused", slow["readable"], slow["fused"], ">= 20")
        yield ratio(f"kernel n = {n}, fused over a copy of its input", fast["fused"], fast["copy"], "<= 2.5")
        counted = {"counted": partial(encode, inputs, threshold, neuron, count=Count()), "plain": fused}
        times = in_turns(counted, 5 * rounds, warm=3)
        yield ratio(f"kernel n = {n}, with spikes counted over without", times["counted"], times["plain"])


def bursts(rounds: int) -> Iterator[Row]:
    """Three spikes in a step over one, and over a copy of the input; the inputs are as large in both."""
    threshold = torch.rand(64, 1, 1) + 0.5
    for steps, lower in ((1, 0.0), (T, 0.0), (1, -math.inf), (T, -math.inf)):
        samples = 4 * T // steps
        inputs = torch.randn(samples, 64, 56, 56) + torch.randn(steps, samples, 64, 56, 56) / 4
        work: dict[str, Callable[[], object]] = {
            f"{b}": partial(encode, inputs, threshold, Neuron(burst=b, lower=lower), backend="fused") for b in (1, 3)
        }
        times = in_turns({**work, "copy": inputs.clone}, 10 * rounds, warm=3)
        kind = f"kernel T = {steps}, {'ReLU' if lower == 0 else 'identity'}, bursts of 3"
        yield ratio(f"{kind} over a copy of its input", times["3"], times["copy"], "<= 2.5" if steps == 1 else "")
        yield ratio(f"{kind} over single spikes", times["3"], times["1"], "<= 1.5" if steps == T else "")


def layouts(runs: int) -> None:
    def channels_last(x: Tensor) -> Tensor:
        return x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, x.shape[:2])

    image, late, tokens = torch.randn(T, 4, 64, 56, 56), torch.randn(T, 4, 512, 7, 7), torch.randn(T, 4, 197, 384)
    cases = {
        "[64, 56, 56] per channel": (image, (64, 1, 1)),
        "[64, 56, 56] per layer": (image, ()),
        "[64, 56, 56] per neuron": (image, (64, 56, 56)),
        "[64, 56, 56] still input": (image[0].expand(image.shape), (64, 1, 1)),
        "[64, 56, 56] channels-last": (channels_last(image), (64, 1, 1)),
        "[256, 14, 14] per channel": (torch.randn(T, 4, 256, 14, 14), (256, 1, 1)),
        "[512, 7, 7] per channel": (late, (512, 1, 1)),
        "[512, 7, 7] channels-last": (channels_last(late), (512, 1, 1)),
        "[197, 384] last axis": (tokens, (384,)),
        "[197, 384] bfloat16": (tokens.bfloat16(), (384,)),
        "[197, 384] float16": (tokens.half(), (384,)),
        "[6, 197, 64] heads of [197, 384]": (tokens.unflatten(-1, (6, 64)).transpose(2, 3), ()),
    }
    print("\nother layouts, n = 8, B = 4, ns per neuron and step")
    print(f"{'':36} identity   ReLU  levels  counts   clone")
    for name, (inputs, shape) in cases.items():
        threshold, free, relu = torch.rand(shape) + 0.5, Neuron(), Neuron(lower=0.0)
        times = best_of(
            runs,
            lambda x=inputs, h=threshold, n=free: encode(x, h, n),
            lambda x=inputs, h=threshold, n=relu: encode(x, h, n),
            lambda x=inputs, h=threshold, n=relu: encode(x, h, n, want_levels=True),
            lambda x=inputs, h=threshold, n=relu: encode(x, h, n, count=Count()),
            inputs.clone,
        )
        print(f"{name:36} {' '.join(f'{1e6 * ms / inputs.numel():7.2f}' for ms in times)}")


def overhead() -> None:
    inputs, threshold, neuron = torch.randn(4, 1, 16, 4, 4), torch.rand(16, 1, 1) + 0.5, Neuron(lower=0.0)
    (fused,) = best_of(300, lambda: encode(inputs, threshold, neuron))
    print(f"\na call on {tuple(inputs.shape)}: {1e3 * fused:.0f} µs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    runs = given.runs
    torch.set_num_threads(given.threads)
    layouts(4 * runs)
    overhead()
