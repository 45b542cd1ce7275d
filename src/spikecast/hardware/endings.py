"""Names of files that are written: what a file is called says what it is."""

from __future__ import annotations

import os
from pathlib import Path

from spikecast.errors import ConfigError


def check_ending(path: str | os.PathLike[str], *endings: str) -> None:
    """Refuse a name with another ending, before anything is worked out."""
    if Path(path).suffix not in endings:
        known = f"{'one of ' if len(endings) > 1 else ''}{', '.join(endings)}"
        raise ConfigError(f"{path}: the name must end in {known}; give such a name")
