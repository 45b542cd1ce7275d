"""JSON files of others, and the names of files in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spikecast.errors import DataError, enough_to_read, first_line

MAX_BYTES = 4 * 2**30  # the largest annotations that are published take three


def read_json(path: Path, remedy: str) -> Any:
    """What a JSON file holds. What is no file, too large, too deep or no JSON is refused in one line."""
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MAX_BYTES:  # a device would be read, and a pipe waited for, for ever
            raise ValueError(f"it is no file, or has more than {MAX_BYTES} bytes")
        with enough_to_read(path):
            return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON ({first_line(error)}); {remedy}") from error


def inside(folder: Path, name: str) -> Path:
    """The file that a list of names means. A name may not lead out of the folder; links that lie in it may."""
    path = Path(name)
    if path.anchor or ".." in path.parts:
        raise DataError(f"the name {name[:80]!r} leads out of the folder {folder}; get the data again")
    return folder / path
