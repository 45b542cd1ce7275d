"""Functions in files of the user's own, which run code and are therefore asked for explicitly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spikecast.errors import ConfigError, DataError, run_own
from spikecast.sources.neighbours import run_file


def check_file(spec: str, what: str) -> tuple[Path, str]:
    """The file and the function that FILE.py:FUNCTION names, if the file is there; nothing of it is run."""
    path, _, name = spec.rpartition(":")
    if not path or not name:
        raise ConfigError(f"{what} {spec!r}: give FILE.py:FUNCTION")
    if not Path(path).is_file():
        raise DataError(f"{what} {spec!r}: there is no file {path}; check the name")
    return Path(path), name


def function_in(spec: str, what: str, *, trust: bool) -> Callable[..., Any]:
    """The function of FILE.py:FUNCTION; without `trust` nothing of the file is run."""
    file, name = check_file(spec, what)
    if not trust:
        raise ConfigError(f"{what} {spec!r} would run the code in {file}; say --trust (trust=True) if you trust it")
    if file.suffix != ".py":
        raise DataError(f"{what} {spec!r}: {file} is not a Python file")
    module = run_own(f"{what} {spec!r}: {file} cannot be run", functools.partial(run_file, file))
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"{what} {spec!r}: {file} has no function {name!r}")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return run_own(f"{what} {spec!r} fails", lambda: function(*args, **kwargs))

    return call
