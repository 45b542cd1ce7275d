"""Every mistake a user can make has one type here, and one line that says how to mend it.

SpikecastError
├── ConfigError        a setting out of its range, or unknown
│   └── GoalError      an energy budget or a fidelity that cannot be met
├── DataError          batches or inputs that cannot be used (empty, NaN, wrong shape or type)
├── ModelError         a model that cannot be taken as it is (training mode, NaN weights, ...)
│   ├── CaptureError   torch.export could not turn the forward into a graph
│   └── StrictError    strict=True met something that would not be fed by spikes
├── ArtifactError      a file that is truncated, tampered with, newer, or not ours
├── ResourceError      memory that runs out, or a process of the job that is gone
└── MissingExtraError  a package that is not installed
"""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any


class SpikecastError(Exception):
    """A mistake that can be mended by the user; the message names the value, the rule and the remedy."""


class ConfigError(SpikecastError, ValueError):
    """A setting is unknown or out of its range."""


class GoalError(ConfigError):
    """An energy budget or a fidelity cannot be met by this network."""


class DataError(SpikecastError, ValueError):
    """A batch or an input cannot be used."""


class ModelError(SpikecastError):
    """The model cannot be converted as it is."""


class CaptureError(ModelError):
    """The model's forward cannot be captured as one graph."""


class StrictError(ModelError):
    """strict=True: an op is unknown, or a weighted op would not be fed by spikes."""


class ArtifactError(SpikecastError):
    """A saved network cannot be read."""


class ResourceError(SpikecastError, RuntimeError):
    """What a job needs ran out: memory, or one of its processes."""


class MissingExtraError(SpikecastError, ImportError):
    """A package is not installed; the message names the extra that brings it."""


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, cut where it is endless; its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


_SMALLER = "give fewer samples at once (--batch-size), or run(..., max_batch=1)"
# What torch says on the CPU: its own allocator, C++, and a file that cannot be mapped.
_NO_MEMORY = re.compile("DefaultCPUAllocator|bad_alloc|Cannot allocate memory")


@contextmanager
def enough_memory(purpose: str = "", remedy: str = _SMALLER) -> Iterator[None]:
    """While this lasts, memory that runs out is said in one line, whoever finds out first.

    `purpose` says what it was needed for, as in " to read net.spikecast".
    """
    try:
        yield
    except SpikecastError:
        raise
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_want_of_memory(error):
            raise
        asked = re.search(r"allocate (\d\S*) (\w+)", str(error))
        more = f": {asked[1]} {asked[2]} more cannot be had" if asked else ""
        raise ResourceError(f"the memory is not enough{purpose}{more}; {remedy}") from error


def enough_to_read(path: Any) -> AbstractContextManager[None]:
    """While a file is read: want of memory is not the file's fault."""
    return enough_memory(f" to read {path}", "close other programs, or read it on a machine with more")


def is_want_of_memory(error: BaseException) -> bool:
    """Whether an exception says that there was no memory, however it says so."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    is_torch = type(error).__name__ == "OutOfMemoryError" or _NO_MEMORY.search(str(error)) is not None
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and is_torch)


def run_own(said: str, code: Callable[[], Any]) -> Any:
    """Code of the user's own, whose mistakes are said in one line with the place they come from."""
    try:
        return code()
    except SpikecastError:
        raise
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)
        own = str(Path(__file__).parent)  # this package, which imports the user's files
        last = next((place for place in reversed(places) if not place.filename.startswith(own)), places[-1])
        kind = type(error).__name__
        raise DataError(f"{said} ({kind}: {first_line(error)}, line {last.lineno} of {last.filename})") from error
