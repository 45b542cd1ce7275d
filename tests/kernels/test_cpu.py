"""The fused CPU kernel gives the bits of the eager neuron, in any layout and type, and counts what it fires."""

from __future__ import annotations

import gc
import itertools
import math
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spikecast import kernels
from spikecast.errors import ConfigError, DataError
from spikecast.kernels import Count, _loops, cpu, encode, layout
from spikecast.theory.neuron import Neuron
from spikecast.theory.neuron import encode as eager
from tests.strategies import INF, SEEDS, SPECIAL, assert_same_bits, lay_out, neurons

INTERVALS = [(-INF, INF), (0.0, INF), (0.0, 6.0), (-0.1, 0.7), (-INF, 0.9), (0.0, 0.0)]
NEURONS, RECTIFIERS = neurons(INTERVALS), neurons(INTERVALS[1:2])
COMMON = neurons(INTERVALS[:3], boundaries=(0.75,), bursts=(1, 3, 14))  # every other sort takes seconds to compile
SHAPES = [(), (1,), (7,), (9100,), (3, 1), (2, 5), (1, 130), (300, 2)]
SHAPES += [(3, 2, 67), (2, 3, 5, 7), (2, 16, 3, 3), (1, 2, 9, 9), (2, 1, 4, 1)]
INNER = st.sampled_from(SHAPES)
LAYOUTS = st.sampled_from(["contiguous", "still", "channels_last", "any_order", "time_inside", "gaps", "expanded"])


def draw(seed: int, num_steps: int, inner: tuple[int, ...], how: str, scale: float = 1.0) -> tuple[torch.Tensor, ...]:
    """Inputs that move, with special values among them, and thresholds that broadcast in some way or other."""
    torch.manual_seed(seed)
    inputs = torch.randn(inner) * 2 + torch.randn(num_steps, *inner)
    places = torch.rand(inputs.shape) < 0.05
    inputs = torch.where(places, SPECIAL[torch.randint(len(SPECIAL), inputs.shape)], inputs) * scale
    keep = torch.randint(0, 2, (len(inner),)).tolist()
    shape = [size if wide else 1 for size, wide in zip(inner, keep, strict=True)]
    while shape and shape[0] == 1 and torch.rand(()) < 0.5:
        shape.pop(0)
    return lay_out(inputs, how, seed), (torch.rand(shape) + 0.3) * scale


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(cpu, "GRAIN", 1 << 16)  # small ones are cut up too
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("sorts", [COMMON, pytest.param(NEURONS, marks=pytest.mark.slow)], ids=["common", "all"])
@settings(max_examples=250)
@given(
    seed=SEEDS,
    num_steps=st.integers(1, 9),
    inner=INNER,
    how=LAYOUTS,
    scale=st.sampled_from([1.0, 1.0, 1e-30, 1e20]),
    data=st.data(),
)
def test_same_bits(sorts, seed, num_steps, inner, how, scale, data) -> None:
    neuron = data.draw(sorts)
    inputs, threshold = draw(seed, num_steps, inner, how, scale)
    state, start = None, data.draw(st.integers(1, 5))
    if start > 1:
        held = (torch.rand(1, *inner) * scale).clamp(neuron.lower, neuron.upper)
        held = torch.where(torch.rand(held.shape) < 0.1, -0.0, held)
        state = lay_out(held, data.draw(LAYOUTS), seed + 1)[0]
    wanted = eager(inputs, threshold, neuron, state=state, start=start, want_levels=True)
    found = encode(inputs, threshold, neuron, state=state, start=start, want_levels=True, backend="fused")
    assert_same_bits(found, wanted)


@settings(max_examples=40)
@given(RECTIFIERS, SEEDS, st.integers(1, 9), INNER, LAYOUTS)
def test_same_bits_without_levels(neuron, seed, num_steps, inner, how) -> None:
    inputs, threshold = draw(seed, num_steps, inner, how)
    found = encode(inputs, threshold, neuron, backend="fused")
    assert found.levels is None
    assert_same_bits(found, eager(inputs, threshold, neuron))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@settings(max_examples=40)
@given(neuron=RECTIFIERS, seed=SEEDS, num_steps=st.integers(1, 9), inner=INNER, how=LAYOUTS)
def test_halves(dtype, neuron, seed, num_steps, inner, how) -> None:
    inputs, threshold = draw(seed, num_steps, inner, "contiguous")
    inputs = lay_out(inputs.to(dtype), how, seed)
    state = torch.rand(inner).to(dtype)
    wanted = eager(inputs, threshold, neuron, state=state, start=2, want_levels=True)
    assert_same_bits(encode(inputs, threshold, neuron, state=state, start=2, want_levels=True, backend="fused"), wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half_is_read_and_rounded(dtype) -> None:
    halves = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    read = np.empty(len(halves), np.float32)
    _loops.widen(halves.view(torch.int16).numpy(), read, dtype == torch.float16)
    assert torch.equal(torch.from_numpy(read).nan_to_num(0.5, INF), halves.float().nan_to_num(0.5, INF))
    exact = halves[halves.isfinite()].double()
    between = (exact[1:] + exact[:-1]).div(2).float()  # ties, and what is next to them
    values = torch.cat([*(torch.nextafter(between, between + d) for d in (-1, 0, 1)), exact.float(), SPECIAL])
    rounded = np.empty(len(values), np.int16)
    _loops.narrow(values.numpy(), rounded, dtype == torch.float16)
    assert torch.equal(torch.from_numpy(rounded), values.to(dtype).view(torch.int16))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("how", ["contiguous", "still", "channels_last", "time_inside"])
@pytest.mark.parametrize("shape", [(), (37, 1, 1), (37, 29, 31)])
def test_same_bits_on_threads(how, shape) -> None:
    inputs = lay_out(torch.randn(3, 37, 29, 31) + torch.randn(4, 3, 37, 29, 31) / 4, how, 0)
    neuron, threshold = Neuron(lower=0.0, num_levels=4), torch.rand(shape) + 0.5
    way = layout.walk(tuple(inputs.shape), inputs.stride(), None, (shape,))
    assert cpu.Work(way, len(inputs), inputs.numel()).workers == 2
    assert_same_bits(encode(inputs, threshold, neuron, backend="fused"), eager(inputs, threshold, neuron))


@pytest.mark.usefixtures("two_threads")
def test_calls_from_two_threads() -> None:
    neuron, threshold = Neuron(lower=0.0, num_levels=4), torch.rand(16, 1, 1) + 0.5
    batches = [torch.randn(4, 5, 16, 40, 40) for _ in range(4)]
    wanted = [eager(x, threshold, neuron) for x in batches]
    with ThreadPoolExecutor(2) as pool:
        for found, right in zip(pool.map(lambda x: encode(x, threshold, neuron), batches * 5), wanted * 5, strict=True):
            assert_same_bits(found, right)


@pytest.mark.usefixtures("two_threads")
def test_an_interrupted_call_leaves_the_others_their_memory(monkeypatch) -> None:
    """They have its address only: it must not go to somebody else while they write."""
    interrupted, alive = threading.Event(), []

    def work(worker: int, *_: Any) -> bool:
        if worker == 0:
            raise KeyboardInterrupt
        interrupted.wait(10)
        gc.collect()
        alive.append(memory() is not None)
        return False

    monkeypatch.setattr(_loops, "work", work)
    numbers = np.zeros((4, 1 << 16), np.float32)
    memory = weakref.ref(numbers)
    with pytest.raises(KeyboardInterrupt) as caught:
        encode(torch.from_numpy(numbers), torch.ones(()), Neuron(), backend="fused")
    del numbers, caught
    interrupted.set()
    while not alive:
        time.sleep(0.01)
    assert alive == [True]


def test_the_default_type_does_not_matter() -> None:
    inputs, threshold = torch.randn(3, 2, 40, 8), torch.rand(40, 1) + 0.5
    fused = encode(inputs, threshold, Neuron(lower=0.0), count=Count(), want_levels=True)
    counts = fused.counts
    try:
        torch.set_default_dtype(torch.float64)
        with torch.device("meta"):
            again = encode(inputs, threshold, Neuron(lower=0.0), count=Count(), want_levels=True)
            same_counts = again.counts
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same_bits(again, fused)
    assert torch.equal(same_counts.weighted, counts.weighted)


def test_a_run_can_be_cut_and_joined() -> None:
    inputs = torch.randn(7, 2, 4, 6, 6).flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, (7, 2))
    neuron, threshold = Neuron(coding="rate", lower=0.0, upper=1.0), torch.rand(4, 1, 1) + 0.5
    whole = encode(inputs, threshold, neuron, want_levels=True)
    head = encode(inputs[:3], threshold, neuron, want_levels=True)
    tail = encode(inputs[3:], threshold, neuron, state=head.estimates[-1], start=4, want_levels=True)
    assert torch.equal(torch.cat([head.estimates, tail.estimates]), whole.estimates)
    assert torch.equal(torch.cat([head.levels, tail.levels]), whole.levels)


# -- layouts: what is folded into the batch folds back without a copy


@pytest.mark.parametrize(
    ("inputs", "fold"),
    [
        (torch.randn(4 * 2, 3, 5, 5).unflatten(0, (4, 2)), lambda out: out.flatten(0, 1)),
        (torch.randn(2, 3, 5, 5).expand(4, 2, 3, 5, 5), lambda out: out.flatten(0, 1)),
        (torch.randn(9, 4 * 2, 6).unflatten(1, (4, 2)).movedim(1, 0), lambda out: out.movedim(0, 1).flatten(1, 2)),
    ],
)
def test_steps_fold_back_for_free(inputs, fold) -> None:
    out = encode(inputs, torch.tensor(1.0), Neuron(), want_levels=True)
    for tensor in (out.estimates, out.levels[:, 0]):
        assert fold(tensor).data_ptr() == tensor.data_ptr()
        assert fold(tensor).is_contiguous()
    way = layout.walk(tuple(inputs.shape), inputs.stride())
    assert not way.copy_input


@pytest.mark.parametrize("still", [False, True])
def test_channels_last_stays(still) -> None:
    inputs = torch.randn(4 * 2, 3, 5, 5).contiguous(memory_format=torch.channels_last).unflatten(0, (4, 2))
    inputs = inputs[0].expand(inputs.shape) if still else inputs
    folded = encode(inputs, torch.rand(3, 1, 1) + 0.5, Neuron()).estimates.flatten(0, 1)
    assert folded.is_contiguous(memory_format=torch.channels_last)
    assert not layout.walk(tuple(inputs.shape), inputs.stride(), None, ((3, 1, 1),)).copy_input


@pytest.mark.parametrize(
    ("shape", "strides", "threshold", "run"),
    [
        ((8, 4, 64, 56, 56), None, (64, 1, 1), 56 * 56),
        ((8, 4, 64, 56, 56), None, (), 4 * 64 * 56 * 56),
        ((8, 4, 64, 56, 56), None, (64, 56, 56), 64 * 56 * 56),
        ((8, 4, 197, 384), None, (384,), 384),
        ((8, 4, 512, 7, 7), None, (512, 1, 1), 512 * 7 * 7),  # 7 x 7 is short: thresholds are repeated
        ((8, 4, 64, 56, 56), (802816, 200704, 1, 3584, 64), (64, 1, 1), 64 * 56),
        ((2, 1, 4, 8, 8), None, (4, 1, 1), 64),  # not worth it for so few
        ((8, 4, 16, 56, 56), (200704, 50176, 1, 896, 16), (16, 1, 1), 16 * 56),
    ],
)
def test_runs(shape, strides, threshold, run) -> None:
    strides = strides or torch.empty(shape, device="meta").stride()
    assert layout.walk(shape, strides, None, (threshold,)).run == run


# -- counts


@settings(max_examples=40)
@given(SEEDS, st.integers(1, 3), INNER, LAYOUTS, st.data())
def test_counts(seed, num_steps, inner, how, data) -> None:
    inputs, threshold = draw(seed, num_steps, inner, how)
    kept = [data.draw(st.booleans()) for _ in inner]
    fan_out = torch.randint(0, 2**40, [size if keep else 1 for size, keep in zip(inner, kept, strict=True)])
    axis = data.draw(st.sampled_from([None, *range(-len(inner), len(inner))]))
    neuron = Neuron(num_levels=5, burst=data.draw(st.sampled_from([1, 3])), lower=0.0)
    encoded = encode(inputs, threshold, neuron, count=Count(fan_out, axis), backend="fused")
    counts = encoded.counts
    wanted = eager(inputs, threshold, neuron, want_levels=True)
    assert encoded.levels is None
    assert torch.equal(encoded.estimates, wanted.estimates)
    fired, weights = wanted.levels.numpy() != 0, np.broadcast_to(fan_out.numpy(), inner)
    weighted: list[int] = [0] * num_steps
    along: dict[Any, Any] = {}
    for k, j, *place in itertools.product(*(range(size) for size in fired.shape)):
        if fired[(k, j, *place)]:
            weighted[k] += int(weights[tuple(place)])
            if axis is not None:
                del place[axis]
                along[(k, *place)] = along.get((k, *place), 0) + 1
    assert counts.weighted.tolist() == weighted
    assert counts.fired.tolist() == fired.reshape(num_steps, neuron.burst, -1).sum(2).tolist()
    if axis is None:
        assert counts.along is None
        assert counts.held is None
    else:
        assert torch.equal(counts.held, (wanted.estimates != 0).sum(axis % len(inner) + 1))
        assert counts.along.sum() == fired.sum()
        assert all(counts.along[place] == number for place, number in along.items())
    on_the_side = encode(inputs, threshold, neuron, count=Count(fan_out, axis), want_levels=True, backend="eager")
    assert torch.equal(on_the_side.levels, wanted.levels)
    assert torch.equal(on_the_side.counts.weighted, counts.weighted)
    assert torch.equal(on_the_side.counts.fired, counts.fired)
    assert axis is None or torch.equal(on_the_side.counts.along, counts.along)
    assert axis is None or torch.equal(on_the_side.counts.held, counts.held)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("axis", [None, -2, -1])
def test_counts_on_threads(axis) -> None:
    inputs = torch.randn(4, 2, 50, 6, 64).transpose(2, 3)  # heads before tokens, as attention has them
    encoded = encode(inputs, torch.ones(()), Neuron(lower=0.0), count=Count(axis=axis), want_levels=True)
    counts = encoded.counts
    fired = encoded.levels[:, 0] != 0
    assert torch.equal(counts.weighted, fired.sum((1, 2, 3, 4)))
    assert axis is None or torch.equal(counts.along, fired.sum(axis))
    assert axis is None or torch.equal(counts.held, (encoded.estimates != 0).sum(axis))


@pytest.mark.parametrize("backend", ["eager", "fused"])
@pytest.mark.parametrize(
    ("count", "message"),
    [
        (Count(torch.ones(3)), "whole numbers"),
        (Count(torch.ones(2, dtype=torch.int64)), "do not broadcast"),
        (Count(axis=2), "no axis 2"),
    ],
)
def test_counts_refuse(backend, count, message) -> None:
    with pytest.raises(DataError, match=message):
        encode(torch.zeros(2, 4, 3), torch.ones(()), Neuron(), count=count, backend=backend)


# -- mistakes, and which way is taken


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 5), (torch.float32, 200_000), (torch.float16, 5), (torch.bfloat16, 5)]
)
def test_nan_is_refused(dtype, size) -> None:
    inputs = torch.zeros(2, size, dtype=dtype)
    inputs[1, -1] = math.nan
    with pytest.raises(DataError, match="NaN"):
        encode(inputs, torch.ones(()), Neuron(lower=0.0), want_levels=dtype != torch.float32, backend="fused")


def test_inf_minus_inf_is_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        encode(torch.full((1, 3), INF), torch.ones(()), Neuron(), state=torch.full((3,), INF), want_levels=True)


@pytest.mark.parametrize("theta", [0.0, -1.0, math.nan, INF, 1e-45])
def test_thresholds_are_checked(theta) -> None:
    for form in (eager, encode):
        with pytest.raises(DataError, match="threshold"):
            form(torch.zeros(2, 3), torch.tensor([1.0, theta, 1.0]), Neuron())


def test_mistakes_are_those_of_the_eager_form() -> None:
    with pytest.raises(DataError, match="start >= 1"):
        encode(torch.zeros(2, 3), torch.ones(()), Neuron(), start=0)
    with pytest.raises(DataError, match="state has shape"):
        encode(torch.zeros(2, 3), torch.ones(()), Neuron(), state=torch.zeros(4))
    with pytest.raises(RuntimeError):
        encode(torch.zeros(2, 3), torch.ones(2), Neuron())
    with pytest.raises(DataError, match="no fused kernel"):
        encode(torch.zeros(2, 3, dtype=torch.float64), torch.ones(()), Neuron(), backend="fused")
    with pytest.raises(ConfigError, match=r"leak=0.1 with backend='fused': .*; use backend='auto'"):
        encode(torch.zeros(2, 3), torch.ones(()), Neuron(leak=0.1), backend="fused")
    with pytest.raises(ConfigError, match="backend"):
        encode(torch.zeros(2, 3), torch.ones(()), Neuron(), backend=cast(Any, "fast"))
    assert encode(torch.zeros(0, 3), torch.ones(()), Neuron()).estimates.shape == (0, 3)
    assert encode(torch.zeros(2, 0), torch.ones(()), Neuron()).estimates.shape == (2, 0)


def test_the_fused_form_is_taken(monkeypatch) -> None:
    def refuse(*args, **kwargs):
        raise AssertionError("eager")

    monkeypatch.setattr(kernels, "encode_eager", refuse)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        inputs = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
        encode(inputs, torch.ones(()), Neuron(lower=0.0), want_levels=True)
    double, single = torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3)
    plain, leaky = Neuron(), Neuron(leak=0.1)
    for inputs, neuron, backend in ((double, plain, "auto"), (single, plain, "eager"), (single, leaky, "auto")):
        with pytest.raises(AssertionError, match="eager"):
            encode(inputs, torch.ones(()), neuron, backend=cast(Any, backend))


FORKED = """
import os, torch
from spikecast.kernels import encode
from spikecast.theory.neuron import Neuron
torch.set_num_threads(2)
x = torch.randn(4, 300_000)
wanted = encode(x, torch.ones(()), Neuron(lower=0.0)).estimates
child = os.fork()
if child == 0:
    os._exit(0 if (encode(x, torch.ones(()), Neuron(lower=0.0)).estimates.numpy() == wanted.numpy()).all() else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_still_encodes() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
