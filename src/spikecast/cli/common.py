"""What commands share: lines for people, and how results are printed."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spikecast import distributed
from spikecast.cli.options import FigureOptions
from spikecast.errors import ConfigError
from spikecast.network.base import Network
from spikecast.sources import Data
from spikecast.storage.files import write_whole
from spikecast.text import comma_separated, many

MOST = 6  # kinds of neurons that are named in one line


def note(text: str) -> None:
    """A line for people, from the first process only."""
    if distributed.world()[0] == 0:
        print(text, file=sys.stderr, flush=True)


def show(table: str, data: Any, *, as_json: bool, out: Path | None = None) -> None:
    """The result on stdout, from the first process only; the file is written whole or not at all."""
    if distributed.world()[0] != 0:
        return
    if out is not None:
        write_whole(out, json.dumps(data, indent=1) + "\n")
        note(f"written to {out}")
    print(json.dumps(data) if as_json else table, flush=True)


@contextmanager
def folders_for(path: Path) -> Iterator[None]:
    """Make the folders that lack for a file, and remove them if writing it fails."""
    made = [folder for folder in Path(os.path.abspath(path)).parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):  # somebody else uses it already
                folder.rmdir()
        raise


def figures(
    options: FigureOptions, write_plot: Callable[[Path], Any], rows: Callable[[], Sequence[Mapping[str, Any]]]
) -> None:
    """Draw and write what was asked for, from the first process only."""
    if distributed.world()[0] != 0:
        return
    if options.plot is not None:
        write_plot(options.plot)
        note(f"written to {options.plot}")
    if options.csv is not None:
        write_whole(options.csv, comma_separated(rows()))
        note(f"written to {options.csv}")


def numbers(text: str, name: str) -> list[int]:
    """Whole numbers out of "1,4,8"."""
    try:
        values = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigError(f"--{name} {text!r}: give whole numbers, as in 1,4,8") from error
    if not values:
        raise ConfigError(f"--{name} {text!r}: give at least one number")
    return values


def fractions(text: str, name: str) -> tuple[float, ...]:
    """Numbers out of "0.5,0.25"."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--{name} {text!r}: give numbers, as in 0.5 or 0.485,0.456,0.406") from error


def names(text: str) -> list[str]:
    """Words out of "a,b"."""
    return [part.strip() for part in text.split(",") if part.strip()]


def some_names(text: str, name: str) -> list[str]:
    """The same for an option that needs at least one."""
    found = names(text)
    if not found:
        raise ConfigError(f"--{name} {text!r}: it names nothing; give at least one, or leave it out")
    return found


def neurons(network: Network) -> str:
    """What the neurons of the sites are set to, in one line; the settings that most sites have come first."""
    kinds = Counter((own.num_levels, own.burst) for own in network.neurons.values())
    said = [f"n={n} burst={burst} at {many(sites, 'site')}" for (n, burst), sites in kinds.most_common(MOST)]
    rest = sum(kinds.values()) - sum(sites for _, sites in kinds.most_common(MOST))
    return ", ".join([*said, f"others at {many(rest, 'site')}"] if rest else said)


def skipped(batches: Iterable[Any]) -> None:
    """Say which images were passed over."""
    lost = batches.skipped if isinstance(batches, Data) else []
    if lost:
        were = "1 image was" if len(lost) == 1 else f"{len(lost)} images were"
        note(f"{were} skipped: {'; '.join(lost[:5])}{' …' if len(lost) > 5 else ''}")
