"""What every test stands on: fixed seeds, threads that fit the workers, and the way to the real models."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
import torch

REAL_FIXTURES = {"real", "real_loaders"}


class _TorchRandom:
    """Torch's generator as hypothesis wants it, so that each example starts from the same state and can be replayed."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


_TORCH_RANDOM = _TorchRandom()  # hypothesis keeps only a weak reference
hypothesis.register_random(_TORCH_RANDOM)
hypothesis.settings.register_profile("spikecast", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("spikecast")


def pytest_configure(config: pytest.Config) -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if REAL_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("real")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _one_torchrun_at_a_time(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Jobs of several processes look for free ports; two at once, from two test workers, can find the same."""
    starts = request.module.__name__.endswith(("test_distributed", "test_resume")) or "processes" in request.node.name
    if not starts:
        yield
        return
    import fcntl  # not on Windows, where the smoke test starts no jobs

    with (tmp_path_factory.getbasetemp().parent / "torchrun.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of the real models and images."""
    given = os.environ.get("SPIKECAST_REAL")
    if not given:
        pytest.skip("SPIKECAST_REAL is not set: it names the folder of the real models and images")
    path = Path(given).resolve()
    if not (path / "loaders.py").is_file():
        pytest.fail(f"SPIKECAST_REAL={given} has no loaders.py; set it to the folder of the real models, or unset it")
    return path


@pytest.fixture(scope="session")
def real_loaders(real: Path) -> ModuleType:
    """The module that builds the real models and reads their images."""
    spec = importlib.util.spec_from_file_location("spikecast_real_loaders", real / "loaders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # the folder is not ours
        spec.loader.exec_module(module)
    return module
