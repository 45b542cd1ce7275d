"""A call from odd surroundings answers to the bit, or is refused in one line: autocast, tracers, want of memory."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import spikecast
from spikecast import Config, SpikingNetwork
from spikecast.errors import ConfigError, DataError, ModelError, ResourceError, SpikecastError
from spikecast.graph.execute.run import Execution
from spikecast.network.base import Network

X = torch.randn(4, 3, 6, 6)
QUICK = Config(num_steps=2, thresholds="quantile")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).eval()


@pytest.fixture(scope="module")
def snn() -> SpikingNetwork:
    return spikecast.convert(model(), [X], QUICK)


@pytest.fixture(scope="module")
def by_region() -> Network:
    return spikecast.convert(model(), [X], QUICK, regions=["0", "3"])


def runs(snn: Network) -> Iterator[Tensor]:
    yield from (snn(X), snn.run(X), snn.analog(X), snn.anytime(X)[0], *(y for _, y in snn.steps(X)))


def test_autocast_changes_nothing(snn: SpikingNetwork, by_region: Network) -> None:
    expected = [*runs(snn), *runs(by_region), snn.twin().run(X)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = [*runs(snn), *runs(by_region), snn.twin().run(X)]
        assert torch.is_autocast_enabled("cpu")
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def faked(snn: Network) -> Any:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return snn(mode.from_tensor(X))


FOLLOWERS: dict[str, tuple[Callable[[Network], Any], str]] = {
    "trace": (lambda snn: torch.jit.trace(snn, (X,)), "torch.jit.trace"),
    "script": (torch.jit.script, "torch.jit.script"),
    "vmap": (lambda snn: torch.vmap(snn)(X[:, None]), "torch.func"),
    "vmap of run": (lambda snn: torch.vmap(snn.run)(X[:, None]), "torch.func"),
    "gradient": (lambda snn: torch.func.grad(lambda x: snn(x).sum())(X), "torch.func"),
    "derivative": (lambda snn: torch.func.jvp(snn, (X,), (X,)), "torch.func"),
    "symbols": (fx.symbolic_trace, "torch.fx"),
    "make_fx": (lambda snn: make_fx(snn)(X), "torch.fx"),
    "make_fx of run": (lambda snn: make_fx(snn.run, tracing_mode="symbolic")(X), "torch.fx"),
    "fakes": (faked, "a fake tensor"),
}


@pytest.mark.parametrize("name", FOLLOWERS)
@pytest.mark.parametrize("kind", ["snn", "by_region"])
def test_only_export_can_follow_spikes(name: str, kind: str, request: pytest.FixtureRequest) -> None:
    follow, said = FOLLOWERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is to go, and says so
        with pytest.raises(ModelError, match=rf"^{said}.* cannot .*take torch\.export\.export\(snn, ") as error:
            follow(request.getfixturevalue(kind))
    assert "\n" not in str(error.value)


def test_functions_of_torch_that_compute_are_let_through(snn: SpikingNetwork) -> None:
    assert torch.equal(torch.func.functional_call(snn, dict(snn.named_buffers()), (X,)), snn(X))


@pytest.mark.parametrize("value", ["3", 2.5, True, float("nan"), [3], torch.tensor(3), 0, -1])
def test_settings_of_wrong_types(value: Any, snn: SpikingNetwork) -> None:
    with pytest.raises(ConfigError, match=r"^max_batch=.* must be a whole number of at least 1$"):
        snn.run(X, max_batch=value)
    if not isinstance(value, int) or isinstance(value, bool):
        with pytest.raises(DataError, match=r"^time_axis=.* needs that axis, of one length$"):
            snn.run(X, time_axis=value)


def test_a_copy_that_would_share_neurons(snn: SpikingNetwork, by_region: Network) -> None:
    for network in (snn, by_region):
        with pytest.raises(ModelError, match=r"use copy\.deepcopy\(snn\)$"):
            copy.copy(network)
        for way in (pickle.dumps, lambda network: torch.save(network, io.BytesIO())):
            with pytest.raises(ModelError, match=r"not pickled: use snn\.save"):
                way(network)


SHORT: dict[str, tuple[Callable[[], Exception], str]] = {
    "on the CPU": (lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to "
                                        "allocate 8192 bytes. Error code 12"), ": 8192 bytes more"),
    "on a GPU": (lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has"),
                 ": 20.00 GiB more"),
    "in a kernel": (MemoryError, "; give"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_memory_that_runs_out(
    name: str, snn: SpikingNetwork, by_region: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, said = SHORT[name]

    def fail(*_: Any) -> None:
        raise error()

    monkeypatch.setattr(Execution, "_evaluate", fail)
    for call in (snn, snn.run, snn.analog, by_region.run, lambda x: next(snn.steps(x))):
        with pytest.raises(ResourceError, match=rf"^the memory is not enough{said}.*--batch-size.*max_batch=1\)$"):
            call(X)


def test_memory_that_torch_cannot_have(snn: SpikingNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says today is understood."""
    monkeypatch.setattr(Execution, "_evaluate", lambda *_: torch.empty(1 << 50, dtype=torch.uint8))
    with pytest.raises(ResourceError, match=r"^the memory is not enough: \d+ bytes more"):
        snn.run(X)
    monkeypatch.setattr(Execution, "_evaluate", lambda *_: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size") as error:  # any other mistake is what it was
        snn.run(X)
    assert not isinstance(error.value, SpikecastError)
