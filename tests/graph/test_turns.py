"""Threads that convert, capture again and run at once: the bits of doing it in turn, and every switch in its place."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.errors import DataError
from spikecast.graph.turns import capturing, computing

QUICK = Config(num_steps=3, thresholds="quantile")
X = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
NEW = [torch.randn(2, 3, 8, 2 * i + 9, generator=torch.Generator().manual_seed(i)) for i in range(8)]


class Odd(nn.Module):
    """Takes another path where an image has an odd width, and so has to be captured again for it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.b, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.a(x[..., 1:] if x.shape[-1] % 2 else x)).relu()
        return self.head(self.b(x).relu().mean((2, 3)))


def switches() -> dict[str, Any]:
    """All that a capture sets for the whole process."""
    return {
        "stderr": sys.stderr,
        "log": logging.getLogger("torch").level,
        "warnings": (list(warnings.filters), warnings.showwarning),
        "stance": torch._dynamo.eval_frame._stance.stance,
        "attention": torch.backends.mha.get_fastpath_enabled(),
        "onednn": torch.backends.mkldnn.enabled,
        "nnpack": torch._C._get_nnpack_enabled(),
        "cudnn": torch.backends.cudnn.enabled,
        "flags": (torch.compiler.is_exporting(), torch.compiler.is_compiling()),
        "modules": (nn.Module.__call__, nn.Module.__getattr__),
        "hooks": dict(nn.modules.module._global_forward_pre_hooks),
    }


@pytest.fixture
def unmoved() -> Iterator[None]:
    before = switches()
    yield
    assert switches() == before


def at_once(tasks: list[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


def converted(model: nn.Module) -> tuple[Tensor, ...]:
    snn = spikecast.convert(model, [X], QUICK)
    return snn.run(X), *snn.thresholds.values()


@pytest.mark.usefixtures("unmoved")
def test_converts_recaptures_and_runs_at_once() -> None:
    serial = spikecast.convert(Odd(9), [X], QUICK)
    new, old, called = [serial.run(x) for x in NEW], serial.run(X), serial(X)
    models = [Odd(seed) for seed in range(4)]  # here: threads share one source of random weights
    alone = [converted(model) for model in models]
    snn = spikecast.convert(Odd(9), [X], QUICK)

    def repeated(call: Callable[[Tensor], Tensor], expected: Tensor) -> bool:
        return all(torch.equal(call(X), expected) for _ in range(10))

    tasks: list[Callable[[], Any]] = [partial(converted, model) for model in models]
    tasks += [partial(snn.run, x) for x in NEW]
    tasks += [partial(repeated, snn.run, old)] * 4 + [partial(repeated, snn, called)] * 4
    found = at_once(tasks)
    for one, other in zip(found[:4], alone, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(found[4:12], new, strict=True))
    assert all(found[12:])
    assert len(snn.plans) == len(serial.plans)  # none was captured twice


@pytest.mark.usefixtures("unmoved")
def test_a_network_by_region_in_many_threads_beside_a_convert() -> None:
    snn = spikecast.convert(Odd(9), [X], QUICK, regions=["a", "b"])
    model = Odd(0)
    expected, alone = snn.run(X), converted(model)
    found = at_once([*[partial(snn.run, X)] * 6, *[partial(converted, model)] * 2])
    assert all(torch.equal(answer, expected) for answer in found[:6])
    assert all(torch.equal(a, b) for one in found[6:] for a, b in zip(one, alone, strict=True))


def test_a_trace_of_another_thread_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says to every thread that it exports, while one of them does."""
    serial, snn = (spikecast.convert(Odd(0), [X], QUICK) for _ in range(2))
    new = serial.run(NEW[0])
    monkeypatch.setattr(torch.compiler, "_is_exporting_flag", True)
    with pytest.raises(DataError, match="holds NaN"):
        snn.run(X * torch.nan)
    assert torch.equal(snn.run(NEW[0]), new)


def test_a_capture_waits_for_runs_and_they_for_it() -> None:
    order: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def run() -> None:
        with computing(), computing():
            inside.set()
            go_on.wait(10)
            order.append("run")

    def capture() -> None:
        inside.wait(10)
        threading.Timer(0.2, go_on.set).start()
        with capturing(), capturing(), computing():
            order.append("capture")

    at_once([run, capture])
    assert order == ["run", "capture"]


def test_runs_that_both_have_to_capture_do_not_block_each_other() -> None:
    both = threading.Barrier(2)

    def run() -> bool:
        with computing():
            both.wait(10)
            with capturing():
                return True

    assert at_once([run, run]) == [True, True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process")  # Python 3.12 and later warn of threads
def test_a_process_forked_beside_a_capture() -> None:
    """It waits for its end, and may capture as well."""
    inside = threading.Event()

    def capture() -> None:
        with capturing():
            torch.backends.mha.set_fastpath_enabled(False)
            inside.set()
            time.sleep(0.3)
            torch.backends.mha.set_fastpath_enabled(True)

    thread = threading.Thread(target=capture)
    thread.start()
    inside.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # rather than wait for ever
        with capturing():
            os._exit(0 if torch.backends.mha.get_fastpath_enabled() else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
