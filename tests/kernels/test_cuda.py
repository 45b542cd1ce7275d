"""The fused CUDA kernel gives the bits of the eager neuron; without a GPU, Triton's interpreter runs it on the CPU."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spikecast import kernels
from spikecast.errors import DataError
from spikecast.kernels import Count
from spikecast.kernels.count import count_levels
from spikecast.theory.neuron import Encoded, Neuron
from spikecast.theory.neuron import encode as eager
from tests.strategies import INF, SEEDS, SPECIAL, assert_same_bits, lay_out, neurons

# Before the variable is set: what is Triton's own is then compiled for others in this process, our kernel interpreted.
try:
    import triton  # noqa: F401
except ImportError:
    if torch.version.cuda is not None:  # a torch for CUDA brings Triton; its absence is a failure, no reason to skip
        raise
    pytest.skip("this torch has no CUDA, and Triton is not installed", allow_module_level=True)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
with pytest.MonkeyPatch.context() as patch:
    if DEVICE == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")
    from spikecast.kernels import cuda

INTERVALS = [(-INF, INF), (0.0, INF), (0.0, 6.0), (-INF, 6.0), (-0.1, 0.7), (0.0, 0.0)]
SHAPES = [(), (1,), (7,), (33,), (257,), (1000,), (3, 1), (7, 33), (33, 7), (1, 130), (300, 2)]
SHAPES += [(3, 2, 67), (2, 3, 5, 7), (2, 16, 3, 3), (1, 2, 9, 9), (2, 1, 4, 1)]
INNER = st.sampled_from(SHAPES)
LAYOUTS = ["contiguous", "still", "channels_last", "any_order", "time_inside", "gaps", "strided", "expanded"]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
NEURONS = neurons(INTERVALS, levels=(1, 4, 8, 14), boundaries=(0.75, 0.72))
KINDS = ["layer", "channel", "last", "neuron", "mixed"]


def broadcast_shape(kind: str, inner: tuple[int, ...]) -> list[int]:
    """The shape of what is the same for the whole layer, for a channel (the first axis but the batch), and so on."""
    kept = {"layer": [], "channel": [1], "last": [len(inner) - 1], "neuron": range(len(inner)), "mixed": [0, 2]}[kind]
    return [size if d in kept else 1 for d, size in enumerate(inner)]


def draw_inputs(seed: int, num_steps: int, inner: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Inputs that move, with special values among them."""
    torch.manual_seed(seed)
    inputs = torch.randn(inner) * 2 + torch.randn(num_steps, *inner)
    places = torch.rand(inputs.shape) < 0.05
    return torch.where(places, SPECIAL[torch.randint(len(SPECIAL), inputs.shape)], inputs).to(DEVICE, dtype)


def draw_thresholds(kind: str, inner: tuple[int, ...]) -> torch.Tensor:
    shape = broadcast_shape(kind, inner)
    return (torch.rand(shape[next((d for d, size in enumerate(shape) if size > 1), len(shape)) :]) + 0.3).to(DEVICE)


def fused(*args, **kwargs):
    with np.errstate(all="ignore"):  # NumPy, which interprets, would warn of inf
        return cuda.encode(*args, **kwargs)


@settings(max_examples=40)
@given(
    neuron=NEURONS,
    seed=SEEDS,
    num_steps=st.integers(1, 9),
    inner=INNER,
    how=st.sampled_from(LAYOUTS),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(DTYPES),
    start=st.integers(1, 5),
    held_how=st.sampled_from(LAYOUTS),
    want_levels=st.booleans(),
)
def test_same_bits(neuron, seed, num_steps, inner, how, kind, dtype, start, held_how, want_levels) -> None:
    inputs = lay_out(draw_inputs(seed, num_steps, inner, dtype), how, seed)
    threshold, state = draw_thresholds(kind, inner), None
    if start > 1:
        held = torch.rand(1, *inner).clamp(neuron.lower, neuron.upper).to(DEVICE)
        state = lay_out(torch.where(torch.rand_like(held) < 0.1, -0.0, held), held_how, seed + 1)[0]
    wanted = eager(inputs, threshold, neuron, state=state, start=start, want_levels=want_levels)
    found = fused(inputs, threshold, neuron, state=state, start=start, want_levels=want_levels)
    counts = found.counts
    assert counts is None
    assert_same_bits(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("inner", [(2, 5, 7, 3), (3, 33, 7)])
def test_layouts_and_thresholds(inner, how, kind) -> None:
    inputs, threshold = lay_out(draw_inputs(1, 3, inner), how), draw_thresholds(kind, inner)
    neuron = Neuron(lower=0.0, upper=6.0)
    found = fused(inputs, threshold, neuron, want_levels=True)
    assert_same_bits(found, eager(inputs, threshold, neuron, want_levels=True))


@pytest.mark.parametrize("scale", [1e-30, 1e20])
@pytest.mark.parametrize("lower", [0.0, -INF])
def test_far_from_one(scale, lower) -> None:
    inputs, threshold = draw_inputs(0, 6, (4, 33)) * scale, draw_thresholds("last", (4, 33)) * scale
    found = fused(inputs, threshold, Neuron(lower=lower), want_levels=True)
    assert_same_bits(found, eager(inputs, threshold, Neuron(lower=lower), want_levels=True))


@pytest.mark.parametrize("sign", [1, -1])
def test_what_overshoots_a_bound_is_cut(sign) -> None:
    """A spike may overshoot by the tolerance; the estimate then is the bound."""
    edges = (1 - torch.tensor([0.25, 0.5, 0.9, 1.1]) * Neuron(num_levels=4).tolerance).tolist()
    inputs, one = torch.full((2, 5), 9.0 * sign, device=DEVICE), torch.ones((), device=DEVICE)
    for edge in edges:
        neuron = Neuron(num_levels=4, lower=-edge, upper=edge)
        found = fused(inputs, one, neuron, want_levels=True)
        assert_same_bits(found, eager(inputs, one, neuron, want_levels=True))
        assert (found.estimates[0] == sign * edge).all() == (edge != edges[-1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half_is_read_and_rounded(dtype, monkeypatch) -> None:
    """Silent neurons hold their state: what is read as a half, or held in between two, is rounded to a half."""
    if DEVICE == "cpu":
        monkeypatch.setattr(cuda, "SMALL_TILE", 2**16)  # the interpreter takes its time for each tile
    halves = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    halves = halves[halves.isfinite()].to(DEVICE)
    neuron, huge = Neuron(num_levels=1), torch.tensor(2.0**120, device=DEVICE)
    exact = halves.sort().values.double()
    between = (exact[1:] + exact[:-1]).div(2).float()  # ties, and what is next to them
    for held in [torch.nextafter(between, between + d) for d in (-1, 0, 1)]:
        if dtype == torch.bfloat16:
            held = held[held.abs() < 2.0**115]
        found = cuda.encode(torch.zeros_like(held, dtype=dtype)[None], huge, neuron, state=held)
        assert torch.equal(found.estimates[0].view(torch.int16), held.to(dtype).view(torch.int16))
    one = torch.ones((), device=DEVICE)
    assert_same_bits(cuda.encode(halves[None], one, Neuron()), eager(halves[None], one, Neuron()))


def test_a_run_can_be_cut_and_joined() -> None:
    inputs, threshold = (
        lay_out(draw_inputs(0, 7, (2, 4, 6, 6)), "channels_last"),
        draw_thresholds("channel", (2, 4, 6, 6)),
    )
    neuron = Neuron(coding="rate", lower=0.0, upper=1.0)
    whole = fused(inputs, threshold, neuron, want_levels=True)
    head = fused(inputs[:3], threshold, neuron, want_levels=True)
    tail = fused(inputs[3:], threshold, neuron, state=head.estimates[-1], start=4, want_levels=True)
    assert torch.equal(torch.cat([head.estimates, tail.estimates]), whole.estimates)
    assert torch.equal(torch.cat([head.levels, tail.levels]), whole.levels)


def test_channels_last_stays() -> None:
    inputs = lay_out(draw_inputs(0, 4, (2, 3, 5, 5)), "channels_last")
    found = fused(inputs, draw_thresholds("channel", (2, 3, 5, 5)), Neuron(), want_levels=True)
    for out in (found.estimates, found.levels[:, 0]):
        assert out.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("rows", [1, 3, 1000, 10**6])
@pytest.mark.parametrize("run", [1, 7, 49, 257, 384, 1000, 1025, 56 * 56, 10**6])
def test_tiles(rows, run) -> None:
    tile = cuda.tile_of(rows, run)
    size = tile.rows * tile.columns
    assert all(n & (n - 1) == 0 for n in (tile.rows, tile.columns, tile.warps))
    assert size <= (1024 if rows * run > cuda.FEW else 256)
    assert tile.programs == math.ceil(rows / tile.rows) * math.ceil(run / tile.columns)
    assert rows * run < 1024 or tile.programs * size < 2 * rows * run


# -- counts


@settings(max_examples=25)
@given(SEEDS, st.integers(1, 3), INNER, st.sampled_from(LAYOUTS), st.sampled_from(KINDS), st.booleans(), st.data())
def test_counts(seed, num_steps, inner, how, kind, want_levels, data) -> None:
    inputs = lay_out(draw_inputs(seed, num_steps, inner), how, seed)
    threshold = draw_thresholds(data.draw(st.sampled_from(KINDS)), inner)
    fan_out = torch.randint(0, 2**40, broadcast_shape(kind, inner)).to(DEVICE)
    axis = data.draw(st.sampled_from([None, *range(-len(inner), len(inner))]))
    count = Count(data.draw(st.sampled_from([None, fan_out])), axis)
    neuron = Neuron(num_levels=5, lower=0.0, initial_potential=data.draw(st.sampled_from([0.0, 0.5])))
    found = fused(inputs, threshold, neuron, want_levels=want_levels, count=count)
    counts = found.counts
    wanted = eager(inputs, threshold, neuron, want_levels=True)
    assert_same_bits(found, wanted if want_levels else wanted._replace(levels=None))
    right = count_levels(wanted.levels, wanted.estimates, count)
    assert counts.weighted.dtype == torch.int64
    assert torch.equal(counts.weighted, right.weighted)
    assert torch.equal(counts.fired, right.fired)
    assert (counts.along is None) == (axis is None)
    assert axis is None or torch.equal(counts.along, right.along)
    assert axis is None or torch.equal(counts.held, right.held)


# -- mistakes, and which way is taken


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [5, 1000])
def test_nan_is_refused(dtype, size) -> None:
    inputs = torch.zeros(3, size, dtype=dtype, device=DEVICE)
    inputs[1, -1] = math.nan
    with pytest.raises(DataError, match="NaN"):
        fused(inputs, torch.ones((), device=DEVICE), Neuron(lower=0.0))


def test_inf_minus_inf_is_refused() -> None:
    inf = torch.full((1, 3), INF, device=DEVICE)
    with pytest.raises(DataError, match="NaN"):
        fused(inf, torch.ones((), device=DEVICE), Neuron(), state=inf[0])


def test_thresholds_are_checked() -> None:
    with pytest.raises(DataError, match="threshold"):
        fused(torch.zeros(2, 3, device=DEVICE), torch.tensor([1.0, 0.0, 1.0], device=DEVICE), Neuron())


def test_which_form_is_taken(monkeypatch) -> None:
    """A meta tensor stands for one on a GPU."""
    inputs, threshold = torch.zeros(2, 3, device="meta"), torch.ones((), device="meta")
    taken = cast(Callable[..., Any], kernels.encode)
    monkeypatch.setattr(kernels, "_is_plain", lambda tensor: True)
    monkeypatch.setattr(kernels, "encode_eager", lambda *args, **kwargs: Encoded(cast(Any, "eager"), None))
    monkeypatch.setattr(kernels, "cuda", SimpleNamespace(encode=lambda *args, **kwargs: "fused"))
    monkeypatch.setattr(kernels, "_has_triton", lambda device: True)
    assert taken(inputs, threshold, Neuron()) == "fused"
    assert taken(inputs, threshold, Neuron(), backend="fused") == "fused"
    assert taken(inputs, threshold, Neuron(), backend="eager").estimates == "eager"
    assert taken(inputs, torch.ones(()), Neuron()).estimates == "eager"  # on another device
    assert taken(inputs, threshold, Neuron(), count=Count()) == "fused"
    monkeypatch.setattr(kernels, "_has_triton", lambda device: False)
    assert taken(inputs, threshold, Neuron()).estimates == "eager"
    with pytest.raises(DataError, match="install triton or use backend='auto'"):
        kernels.encode(inputs, threshold, Neuron(), backend="fused")


@pytest.mark.parametrize(("spec", "major", "wanted"), [(None, 9, False), ("triton", 6, False), ("triton", 7, True)])
def test_whether_there_is_triton(spec, major, wanted, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
    assert kernels._has_triton.__wrapped__(torch.device("cuda", 0)) is wanted


def run_python(code: str, **changes: str) -> str:
    env = {**os.environ, "TRITON_INTERPRET": "0", **changes}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


WITHOUT_TRITON = """
import sys, torch, spikecast
from spikecast.kernels import Count, encode
from spikecast.theory.neuron import Neuron
encode(torch.randn(3, 4), torch.ones(()), Neuron(), count=Count(), want_levels=True)
print("numba" in sys.modules, "triton" in sys.modules, "spikecast.kernels.cuda" in sys.modules)
"""


def test_the_cpu_does_without_triton() -> None:
    assert run_python(WITHOUT_TRITON).split() == ["True", "False", "False"]


COMPILE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from spikecast.kernels import _triton, cuda
from spikecast.kernels.count import Count
from spikecast.theory.neuron import Neuron

class Driver:
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device: 0
    get_current_target = lambda self: GPUTarget("cuda", 80, 32)

def compile_only(*args, grid, warmup, **kwargs):
    print(type(_triton.encode).run(_triton.encode, *args, grid=grid, warmup=True, **kwargs).asm["ptx"])

driver.set_active(Driver())
_triton.encode.run = compile_only
clipped = Neuron(coding="rate", signed=False, lower=0.0, upper=6.0, initial_potential=0.3)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    x, state = torch.zeros(2, 3, 48, 64, dtype=dtype), torch.zeros(3, 48, 64)
    cuda.encode(x, torch.ones(()), Neuron())
    cuda.encode(x, torch.ones(48, 1), clipped, state=state, want_levels=True, count=Count(axis=1))
    cuda.encode(x.transpose(1, 3), torch.ones(48, 3), clipped, count=Count(torch.ones(64, 1, 1, dtype=int), axis=0))
"""


def test_compiled_operations_are_not_fused(tmp_path) -> None:
    """The compiler, which needs no GPU, takes the kernel; each operation is rounded, subnormals are kept."""
    ptx = run_python(COMPILE, TRITON_CACHE_DIR=str(tmp_path))
    assert ptx.count(".visible .entry") == 9
    assert "mul.rn.f32" in ptx
    assert "div.rn.f32" in ptx
    for wrong in ("fma.", "mad.rn", ".ftz", ".approx", "div.full"):
        assert wrong not in ptx
