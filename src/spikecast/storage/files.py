"""Files are written whole or not at all: beside their place first, then moved into it."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spikecast.errors import ArtifactError, SpikecastError, first_line


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside a file to write to: it takes the file's place at the end, and leaves no trace if that fails."""
    target = Path(os.path.realpath(path))  # a link stays one
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; give the name of a file")
    temporary = target.parent / f".spikecast-{secrets.token_hex(8)}"
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file of any size; whoever opens it sees the old content or the new, never a part."""
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary, temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SpikecastError(f"cannot write {path}: {error.strerror or error}; give another place") from error
    return target


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
    except (kind, RecursionError) as error:
        raise ArtifactError(f"{what}: {first_line(error)}; {remedy}") from None
