"""Files are written whole or not at all: beside their place first, then moved into it."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from spikecast.errors import SpikecastError


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file of any size; whoever opens it sees the old content or the new, never a part."""
    target = Path(os.path.realpath(path))  # a link stays one
    temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}"
    data = content.encode() if isinstance(content, str) else content
    try:
        if target.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise SpikecastError(f"cannot write {path}: {error.strerror or error}; give another place") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return target
