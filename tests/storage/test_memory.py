"""Memory while a file is read: each tensor is there once, and want of memory is not called damage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config, hardware
from spikecast.errors import ResourceError
from spikecast.hardware.events import files as event_files
from spikecast.hardware.nir import extended
from spikecast.sources import documents
from spikecast.sources.models import load_weights
from spikecast.storage import container

NO_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8192 bytes. Error code 12"
SCRIPT = """
import resource, sys
import spikecast, spikecast.storage.artifact
from pathlib import Path

def size_of(what):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[what].split()[0])

path, size = sys.argv[1], Path(sys.argv[1]).stat().st_size
before = size_of("VmRSS")
kept = spikecast.load(path)
print((size_of("VmHWM") - before) / size)
resource.setrlimit(resource.RLIMIT_DATA, (size_of("VmData") + size // 2,) * 2)
try:
    spikecast.load(path)
except spikecast.errors.ResourceError as error:
    print(error)
"""


def saved(path: Path, width: int) -> Path:
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)).eval()
    spikecast.convert(model, [torch.randn(2, width)], Config(num_steps=2, thresholds="quantile")).save(path)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_tensor_is_in_memory_once(tmp_path: Path) -> None:
    """A file of 64 MB takes little more than that, and one that does not fit is refused by name."""
    path = saved(tmp_path / "net", 4096)
    done = subprocess.run([sys.executable, "-c", SCRIPT, path], capture_output=True, text=True, check=True)
    share, line = done.stdout.splitlines()
    assert 0.9 < float(share) < 1.4, "it was 2 where the file was mapped and copied"
    assert line.startswith(f"the memory is not enough to read {path}: 67108864 bytes more cannot be had; close other")


def refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError(NO_MEMORY)


def run_out(*_: Any, **__: Any) -> Any:
    raise MemoryError


@pytest.mark.parametrize("fail", [refuse, run_out])
@pytest.mark.parametrize("place", [(torch, "empty"), (container, "is_whole"), (torch.Tensor, "isfinite")])
def test_a_saved_network(
    place: tuple[Any, str], fail: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "net", 4)
    monkeypatch.setattr(*place, fail)
    with pytest.raises(ResourceError, match=rf"^the memory is not enough to read {path}.*; close other programs, or"):
        spikecast.load(path)


def test_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, x = saved(tmp_path / "net", 4), torch.randn(2, 4)
    snn = spikecast.load(path)
    hardware.record_events(snn, x).save(tmp_path / "x.npz")
    hardware.export_nir(snn, tmp_path / "x.nir", profile="extended")
    torch.save({}, tmp_path / "x.pt")
    (tmp_path / "x.json").write_text("{}")
    monkeypatch.setattr(event_files, "_load_npz", run_out)
    monkeypatch.setattr(extended, "is_whole", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr("spikecast.sources.documents.json.loads", run_out)
    readers: dict[str, Callable[[Path], Any]] = {
        "x.npz": hardware.load_events,
        "x.nir": hardware.load_nir,
        "x.pt": lambda path: load_weights(nn.ReLU(), path),
        "x.json": lambda path: documents.read_json(path, "get it again"),
    }
    for name, read in readers.items():
        with pytest.raises(ResourceError, match=rf"^the memory is not enough to read {tmp_path / name}"):
            read(tmp_path / name)


def test_the_system_says_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: Any) -> Any:
        raise OSError(12, "Cannot allocate memory")

    path = saved(tmp_path / "net", 4)
    monkeypatch.setattr(container, "_tensors", no_memory)
    with pytest.raises(ResourceError, match="to read"):
        spikecast.load(path)
    monkeypatch.setattr(container, "_tensors", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(spikecast.errors.ArtifactError, match=r"cut short or damaged .*Input/output error"):
        spikecast.load(path)
