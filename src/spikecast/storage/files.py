"""Files are written whole or not at all: beside their place first, then moved into it."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from spikecast.errors import ArtifactError, ResourceError, SpikecastError, first_line

_LEFT = re.compile(r"\.spikecast-[0-9a-f]{16}\.tmp")


@contextmanager
def replacing(path: str | os.PathLike[str], *, folders: bool = False) -> Iterator[IO[bytes]]:
    """A new file that takes the place of another at the end, and leaves no trace if anything fails before.

    A link stays one: the file that it leads to is replaced. With `folders` those that lack are made. What writers that
    were killed have left in the folder is removed.
    """
    made: list[Path] = []
    try:
        target = _target(path)
        if folders:
            made = [folder for folder in target.parents if not folder.exists()]
            target.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(target.parent)
        with _temporary(target.parent) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # where an open file cannot be moved
                file.close()
            os.replace(file.name, target)
    except Exception as error:
        for folder in made:
            with suppress(OSError):  # as where it was not made, or somebody else uses it already
                folder.rmdir()
        said = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise ArtifactError(f"{path} is not written: {said}; nothing was changed") from error
    with suppress(OSError):  # the name, too, is on the disk only then; not every system can do it
        listing = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(listing)
        finally:
            os.close(listing)


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file, and folders that lack; whoever opens it sees the old content or the new, never a part."""
    with replacing(path, folders=True) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(os.path.realpath(path))


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a name that no file can be written to, while there is nothing to write yet; folders that lack are made."""
    try:
        target = Path(os.path.abspath(path))
        folder = next(parent for parent in target.parents if parent.exists())
        if not folder.is_dir():
            raise SpikecastError(f"{folder} is a file, not a folder; give a name in another folder")
        target = _target(path)
    except (OSError, ValueError) as error:  # a name that is too long, or with a zero in it
        said = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise SpikecastError(f"no file can have this name ({said}); give another") from None
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise SpikecastError(f"{folder} may not be written to; give a name in another folder")


def lock(descriptor: int) -> bool:
    """Whether an open file is this one's alone from now on, until it is closed; a process that dies lets go of it.

    Raises OSError where the file system has no locks. Windows has none of this kind: there the answer is always yes.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _target(path: str | os.PathLike[str]) -> Path:
    """The file that a name stands for; what is there and is no file is refused."""
    target, folder = Path(os.path.realpath(path)), os.path.realpath(os.path.dirname(os.path.abspath(path)))
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        kind = stat.S_IFREG
    if stat.S_ISDIR(kind):
        raise SpikecastError("it is a folder; give the name of a file")
    # The open files of a process are in /dev and /proc, under names that lead to files like any link.
    if not stat.S_ISREG(kind) or folder == "/dev" or Path(folder).is_relative_to("/proc"):
        raise SpikecastError("it is a device, a pipe or a socket; give the name of a file")
    return target


@contextmanager
def _temporary(folder: Path) -> Iterator[IO[bytes]]:
    """A new file, locked as long as it is open: that says that its writer lives. It is removed unless it was moved."""
    while True:
        path, is_own = folder / f".spikecast-{secrets.token_hex(8)}.tmp", True
        file = open(path, "xb")  # noqa: SIM115 - closed below
        try:
            with suppress(OSError):
                is_own = lock(file.fileno())
            if is_own and os.fstat(file.fileno()).st_nlink:
                yield file
                return  # else another writer was quicker, and took it for one that was left
        finally:
            with suppress(OSError):  # what counts is on the disk already
                file.close()
            with suppress(OSError):
                os.unlink(path)


def _remove_left(folder: Path) -> None:
    """Remove the files that no living writer has locked."""
    names: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:  # a folder may be written to and not listed
        names += (entry.name for entry in entries if _LEFT.fullmatch(entry.name))
    for name in names:
        with suppress(OSError):
            left = folder / name
            descriptor = os.open(left, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            try:
                if lock(descriptor):
                    left.unlink()
            finally:
                os.close(descriptor)


def file_start(path: str | os.PathLike[str], what: str) -> tuple[int, bytes]:
    """The size of a file and its first eight bytes; a complaint says `what` should have been given."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe would wait for ever
            raise ArtifactError(f"{path} is a folder or a device; give {what}")
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_size, file.read(8)
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {path}; check the name") from None
    except PermissionError:
        raise ArtifactError(f"{path} may not be read; change its permissions, or run as its owner") from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be opened ({first_line(error)}); check the name") from None


@contextmanager
def blaming(what: str, remedy: str, kind: type[Exception] = SpikecastError) -> Iterator[None]:
    """One line that begins with the file and ends with what to do, for whatever was found wrong inside."""
    try:
        yield
    except (MemoryError, ResourceError):  # which are nobody's fault here
        raise
    except (kind, RecursionError) as error:
        raise ArtifactError(f"{what}: {first_line(error)}; {remedy}") from None
