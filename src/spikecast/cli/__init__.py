"""The command line: results on stdout, the rest on stderr; exit 0: done, 1: a mistake to mend, 2: wrong usage."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any


def main(words: Sequence[str] | None = None) -> None:
    """Run a command; a mistake of the user's is one line, and so is Ctrl-C, even while torch is being imported."""
    where = "spikecast"
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file may be no text at all
    try:
        from spikecast import distributed
        from spikecast.cli.app import app

        rank, size = distributed.join()
        where = f"spikecast (process {rank})" if size > 1 else where
        code = app(args=words, standalone_mode=False) or 0
        if code == 130:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code)
    except KeyboardInterrupt:
        _stop(f"{where}: stopped", 130)
    except Exception as error:
        from spikecast import distributed
        from spikecast.errors import SpikecastError

        distributed.failed(error)
        if getattr(error, "exit_code", None) == 2:  # typer's own: words that are no command, no option, no number
            if type(error).__name__ == "NoArgsIsHelpError":
                _stop(str(error), 2)
            _stop(f"{where}: {_usage(error)}", 2)
        if isinstance(error, SpikecastError):
            _stop(f"{where}: {error}", 1)
        if isinstance(error, OSError):
            named = f": {error.filename}" if error.filename else ""
            _stop(f"{where}: {error.strerror or error}{named}", 1)
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            _stop(f"{where}: the memory is not enough; give a smaller --batch-size", 1)
        raise


def _usage(error: Any) -> str:
    """What typer finds wrong with the words, in one line."""
    context, said = error.ctx, " ".join(error.format_message().rstrip(".").split())
    command = "spikecast" if context is None or context.parent is None else f"spikecast {context.info_name}"
    return f"{said}; {command} --help says what can be given"


def _stop(line: str, code: int) -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # a full disk: what is left must not fail once more at exit
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
    sys.exit(code)
