"""What commands share: progress, lines for people, and how results are printed."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spikecast import distributed
from spikecast.cli.options import FigureOptions
from spikecast.errors import ConfigError
from spikecast.network.base import Network
from spikecast.sources import Data
from spikecast.storage.files import write_whole
from spikecast.text import comma_separated, duration

if TYPE_CHECKING:
    from rich.progress import Progress

Done = Callable[..., None]  # is told how many images are done, and what is done now
A_WHILE = 60.0  # seconds between lines where there is no bar
_bars: list[Progress] = []  # the one on the screen; a stage inside a stage is another line of it


def note(text: str) -> None:
    """A line for people, from the first process only."""
    if distributed.world()[0] == 0:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress(total: int | None, what: str = "") -> Iterator[Done]:
    """A bar with rate and time left on stderr; a line now and then, if that is no terminal."""
    rank, size = distributed.world()
    share = None if total is None else -(-total // size)
    began = said = time.monotonic()
    with _bar() as bar:
        task = bar.add_task(what, total=share, rate="")

        def done(images: int, what: str | None = None) -> None:
            nonlocal said
            bar.update(task, advance=images, description=what)
            mine = next(t for t in bar.tasks if t.id == task)
            bar.update(task, rate="" if mine.speed is None else f"{mine.speed:.1f} images/s")
            now = time.monotonic()
            if bar.disable and rank == 0 and now - said >= A_WHILE:
                said = now
                each = (now - began) / max(mine.completed, 1)
                left = "" if share is None else f" of {share}, about {duration(each * (share - mine.completed))} left"
                note(f"{mine.description or 'done'}: {mine.completed:g} images{left}")

        try:
            yield done
        finally:
            bar.remove_task(task)


@contextmanager
def _bar() -> Iterator[Progress]:
    if _bars:
        yield _bars[-1]
        return
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    silent = distributed.world()[0] != 0 or not console.is_terminal
    what, rate = rich.TextColumn("{task.description}"), rich.TextColumn("{task.fields[rate]}")
    clocks = (rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn())
    columns = (what, rich.BarColumn(20), rich.MofNCompleteColumn(), rate, *clocks)
    with rich.Progress(*columns, console=console, disable=silent, transient=True) as bar:
        _bars.append(bar)
        try:
            yield bar
        finally:
            _bars.pop()


def show(table: str, data: Any, *, as_json: bool, out: Path | None = None) -> None:
    """The result on stdout, from the first process only; the file is written whole or not at all."""
    if distributed.world()[0] != 0:
        return
    if out is not None:
        write_whole(out, json.dumps(data, indent=1) + "\n")
        note(f"written to {out}")
    print(json.dumps(data) if as_json else table, flush=True)


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


def neurons(network: Network) -> str:
    """What the neurons of the sites are set to, in one line; the settings that most sites have come first."""
    kinds = Counter((own.num_levels, own.burst) for own in network.neurons.values())
    return ", ".join(f"n={n} burst={burst} at {sites} sites" for (n, burst), sites in kinds.most_common())


def skipped(batches: Iterable[Any]) -> None:
    """Say which images were passed over."""
    lost = batches.skipped if isinstance(batches, Data) else []
    if lost:
        note(f"{len(lost)} images were skipped: {'; '.join(lost[:5])}{' …' if len(lost) > 5 else ''}")
