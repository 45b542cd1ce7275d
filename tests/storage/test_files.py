"""One writer for all files: the old one whole or the new one whole, whatever happens, and nothing left beside it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import safetensors.torch
import torch

from spikecast.errors import ArtifactError
from spikecast.storage import container
from spikecast.storage.files import replacing, write_whole

LEFT = ".spikecast-0123456789abcdef.tmp"


@contextmanager
def bound(path: Path) -> Iterator[Path]:
    """A socket in a folder."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        yield path


@pytest.mark.parametrize(
    "place", ["/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/new", "pipe", "socket", "link", "loop"]
)
def test_what_is_no_file_is_refused_and_stays(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    os.mkfifo("pipe")
    os.symlink("pipe", "link")
    os.symlink("loop", "loop")
    with bound(Path("socket")):
        before = sorted((path.name, path.lstat().st_mode) for path in Path().iterdir())
        with pytest.raises(ArtifactError, match=f"^{place} is not written: .*; nothing was changed$") as caught:
            write_whole(place, "new")
        assert "give the name of a file" in str(caught.value) or place == "loop"
        assert sorted((path.name, path.lstat().st_mode) for path in Path().iterdir()) == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_device_node_is_not_replaced(tmp_path: Path) -> None:
    node = tmp_path / "null"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes device nodes")
    with pytest.raises(ArtifactError, match="it is a device"):
        write_whole(node, "new")
    assert stat.S_ISCHR(node.stat().st_mode)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/file")
    for content in ("first", "second"):  # where it leads to nothing yet, and to a file
        assert write_whole(tmp_path / "link", content) == (tmp_path / "folder" / "file").resolve()
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "folder" / "file").read_text() == content


KILLED = """
import os, sys
from spikecast.storage.files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
"""


def test_what_killed_writers_left_is_removed_by_the_next(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "file")], check=False)
    assert killed.returncode == -9
    assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / "file").read_text() == "old"
    (tmp_path / LEFT).touch()  # killed before it was locked
    others = [".spikecast-notes", f"{LEFT}.mine", ".spikecast-0123456789ABCDEF.tmp"]
    for name in others:
        (tmp_path / name).touch()
    write_whole(tmp_path / "other", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["file", "other", *others])


def test_files_of_living_writers_stay(tmp_path: Path) -> None:
    with replacing(tmp_path / "slow") as file:
        file.write(b"slow")
        write_whole(tmp_path / "quick", "quick")
        code = "import sys; from spikecast.storage.files import write_whole; write_whole(sys.argv[1], 'other')"
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "other")], check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "slow": "slow",
        "quick": "quick",
        "other": "other",
    }


def test_many_threads_write_one_file(tmp_path: Path) -> None:
    """Each of them also looks for what dead ones left."""
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for _ in range(50):
                write_whole(tmp_path / "file", str(number) * 1000)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (content := (tmp_path / "file").read_text()) == content[0] * 1000


def test_the_bytes_are_those_of_safetensors(tmp_path: Path) -> None:
    kinds = [dtype for dtype in container._KINDS if dtype is not torch.bool]
    tensors = {f"ä {i}": torch.arange(i + 1).to(dtype) for i, dtype in enumerate(kinds)}
    tensors |= {"b": torch.tensor(True), "empty": torch.zeros(0, 3), '"\n': torch.eye(3), "a": torch.ones(2).half()}
    container.write(tmp_path / "ours", 'text "é\n', tensors)
    assert (tmp_path / "ours").read_bytes() == safetensors.torch.save(tensors, {"spikecast": 'text "é\n'})


def test_numbers_that_safetensors_has_not(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"the tensor 'z' has the type torch.complex128"):
        container.write(tmp_path / "file", "{}", {"z": torch.zeros(2, dtype=torch.complex128)})
    assert list(tmp_path.iterdir()) == []
