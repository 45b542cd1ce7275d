"""The command line: results on stdout, the rest on stderr; exit 0: done, 1: a mistake to mend, 2: wrong usage."""

from __future__ import annotations

import sys

import typer

from spikecast.cli import compare, convert, evaluate, reproduce, sweep
from spikecast.errors import SpikecastError

app = typer.Typer(
    name="spikecast",
    help="Turn a pretrained PyTorch network into a spiking network without training, and measure it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("convert")(convert.command)
app.command("eval")(evaluate.command)
app.command("compare")(compare.command)
app.command("sweep")(sweep.command)
app.command("reproduce")(reproduce.command)


def main() -> None:
    """Run a command; a mistake of the user's is one line."""
    from spikecast import distributed

    rank, size = distributed.join()
    where = f"spikecast (process {rank})" if size > 1 else "spikecast"
    try:
        app()
    except SpikecastError as error:
        print(f"{where}: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"{where}: stopped", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"{where}: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
        sys.exit(1)
