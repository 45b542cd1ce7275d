"""Every writer, with every call to the system failing or ending the process: the old file whole, or the new one.

Run as a script, this file ends children of its own; pytest, which has threads, does better not to be forked.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import spikecast
from spikecast.errors import ArtifactError
from spikecast.hardware import export_nir, record_events
from spikecast.page.plots import write_figure
from spikecast.storage import files

NAMES_OF_CALLS = ("stat", "fstat", "open", "close", "fsync", "replace", "unlink", "mkdir", "rmdir", "scandir")
CALLS = [(os, name) for name in NAMES_OF_CALLS] + [(fcntl, "flock")]
NAMES = ("net.spikecast", "net.nir", "events.npz", "events.h5", "events.csv", "plot.svg", "page.html")


@functools.cache
def writers() -> dict[str, Callable[[Path], Any]]:
    """By the name of a file, what writes it."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval(), torch.rand(4, 6)
    config = spikecast.Config(num_steps=4, thresholds="quantile", coding="rate", num_levels=1, burst=1)
    network = spikecast.convert(model, [x], config)
    events = record_events(network, x)
    text = "<p>page</p>" * 10_000  # HTML, JSON, CSV and ONNX are all written so
    made: dict[str, Callable[[Path], Any]] = {
        "net.spikecast": network.save,
        "net.nir": functools.partial(export_nir, network, profile="extended"),
        "events.npz": events.save,
        "events.h5": events.save,
        "events.csv": events.write_csv,
        "plot.svg": functools.partial(write_figure, draw=lambda figure: figure.subplots().plot([1, 2])),
        "page.html": lambda path: files.write_whole(path, text),
    }
    assert tuple(made) == NAMES
    return made


@contextmanager
def faults(at: int, fault: Callable[[], None]) -> Iterator[list[str]]:
    """Call `fault` in place of one call to the system, by its number; the names of all calls are noted."""
    calls: list[str] = []

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            is_at = len(calls) == at
            if is_at and name == "close":  # also where it fails, the file is closed
                function(*args, **kwargs)
            if is_at:
                fault()
            return function(*args, **kwargs)

        return call

    def opened(path: Path, mode: str) -> io.BufferedWriter:
        raw = counted("create", io.FileIO)(path, mode.replace("b", ""))
        raw.write, raw.close = counted("write", raw.write), counted("close", raw.close)
        return io.BufferedWriter(raw)

    with pytest.MonkeyPatch.context() as patch:
        for module, name in CALLS:
            patch.setattr(module, name, counted(name, getattr(module, name)))
        patch.setattr(files, "open", opened, raising=False)
        yield calls


def expected(name: str, folder: Path) -> bytes:
    """What a writer writes where nothing happens."""
    folder.mkdir()
    writers()[name](folder / name)
    return (folder / name).read_bytes()


def failing(number: int) -> None:
    raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("name", NAMES)
def test_every_call_fails_once(name: str, number: int, tmp_path: Path) -> None:
    new, path = expected(name, tmp_path / "good"), tmp_path / "bad" / name
    seen: set[str] = set()
    path.parent.mkdir()
    for at in range(1, 100):
        path.write_bytes(b"old")
        complaint = ""
        with faults(at, functools.partial(failing, number)) as calls:
            try:
                writers()[name](path)
            except ArtifactError as error:
                complaint = str(error)
        assert os.listdir(path.parent) == [name], calls
        assert path.read_bytes() == (b"old" if complaint else new), calls
        assert not complaint or complaint == f"{path} is not written: {os.strerror(number)}; nothing was changed"
        if len(calls) < at:
            break
        seen.update({calls[at - 1]} if complaint else ())
    assert seen >= {"stat", "create", "fstat", "write", "fsync", "replace"}
    assert not seen & {"close", "scandir"}, "neither has a part in what is written"


def test_folders_that_lack(tmp_path: Path) -> None:
    """They are made, or nothing is."""
    path, seen = tmp_path / "a" / "b" / "page.html", set[str]()
    for at in range(1, 100):
        complaint = ""
        with faults(at, functools.partial(failing, errno.EIO)) as calls:
            try:
                files.write_whole(path, "new")
            except ArtifactError as error:
                complaint = str(error)
        if len(calls) < at:
            break
        if complaint:
            seen.add(calls[at - 1])
            assert complaint == f"{path} is not written: {os.strerror(errno.EIO)}; nothing was changed"
            assert os.listdir(tmp_path) == [], calls
        else:
            assert path.read_text() == "new"
            assert os.listdir(path.parent) == [path.name], calls
            shutil.rmtree(tmp_path / "a")
    assert seen >= {"mkdir", "create", "write", "fsync", "replace"}
    assert {"close", "scandir"} & seen == set(), "what they fail at does not matter for the file"


def kill(name: str, path: Path, new: bytes) -> None:
    """End a child at each call of a writer; then see what it left, and that the next writer removes it."""
    for at in range(1, 100):
        path.write_bytes(b"old")
        child = os.fork()
        if not child:
            with faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                writers()[name](path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        left, content = set(os.listdir(path.parent)) - {name}, path.read_bytes()
        assert content in (b"old", new), (name, at)
        files.write_whole(path.parent / "next", "next")
        assert sorted(os.listdir(path.parent)) == sorted([name, "next"]), (name, at, left)
        (path.parent / "next").unlink()
        if status == 0:
            assert content == new
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError(f"{name} takes a hundred calls")


def test_killed_at_every_call(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(NAMES)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with hardly any room."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    for name in writers():
        (small_disk / name).write_bytes(b"old")
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    before = sorted(os.listdir(small_disk))
    for name, write in writers().items():
        with pytest.raises(ArtifactError, match=f"{name} is not written: No space left on device; nothing was changed"):
            write(small_disk / name)
        assert (small_disk / name).read_bytes() == b"old"
        assert sorted(os.listdir(small_disk)) == before


if __name__ == "__main__":
    home = Path(sys.argv[1])
    for each in NAMES:
        content = expected(each, home / f"good-{each}")
        (home / each).mkdir()
        kill(each, home / each / each, content)
        print(each)
