"""All commands; each is a file of its own that parses, calls and prints."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spikecast._version import __version__
from spikecast.cli import (
    bench,
    compare,
    convert,
    demo,
    doctor,
    evaluate,
    explain,
    export,
    figure,
    inspect,
    report,
    reproduce,
    sweep,
)


class _Commands(TyperGroup):
    """Says of each command all of its first sentence, where click would cut it off."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        first = {name: (command.help or "").split("\n\n")[0] for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(text.split())) for name, text in first.items()])


app = typer.Typer(
    name="spikecast",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},
    rich_markup_mode=None,
)
COMMANDS = {
    "demo": demo,
    "inspect": inspect,
    "convert": convert,
    "eval": evaluate,
    "explain": explain,
    "compare": compare,
    "sweep": sweep,
    "report": report,
    "bench": bench,
    "export": export,
    "reproduce": reproduce,
    "figure": figure,
    "doctor": doctor,
}
for _name, _module in COMMANDS.items():
    app.command(_name)(_module.command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"spikecast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and end")
    ] = False,
) -> None:
    """Turn a pretrained PyTorch network into a spiking network without training, and measure it."""
