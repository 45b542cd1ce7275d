"""How far a long job is: told to a function, or shown as a bar on stderr; to nobody unless it is asked for.

Whoever works tells (`tell`, `counted`), and need not know who listens. Of several processes only the first says
anything.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from spikecast import distributed
from spikecast.errors import ConfigError
from spikecast.text import duration

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
Listener = Callable[[str, int, int | None], None]  # is told the stage, how much of it is done, and of how much if known
Done = Callable[..., None]  # is told how many more are done, and what is done now
A_WHILE = 60.0  # seconds between lines where there is no bar
SOON = 3.0  # seconds until the first of them; a job that is over sooner, or soon after, says nothing
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_bars: list[Progress] = []  # the one on the screen; a stage inside a stage is another line of it
_lines: list[_Line] = []  # of it, the innermost last


def tell(stage: str, done: int, total: int | None = None) -> None:
    """Say how much of a stage is done; the last time, all of it."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)


def length(items: Iterable[Any]) -> int | None:
    """How many there are, where that is known; a DataLoader of a stream has a length to ask for, and none to give."""
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return None


def counted(items: Iterable[Item], stage: str, total: int | None = None) -> Iterator[Item]:
    """The items of a stage, told one by one as they are done; how many there are is asked of them, if not given."""
    total, done = length(items) if total is None else total, 0
    tell(stage, 0, total)
    for done, item in enumerate(items, 1):
        yield item
        tell(stage, done, total)
    if done != total:
        tell(stage, done, done)


@contextmanager
def telling(progress: bool | Listener) -> Iterator[None]:
    """While this lasts, stages are told to a function, or shown as bars (True), or go on as they did (False)."""
    if not callable(progress) and not isinstance(progress, bool):
        raise ConfigError(f"progress={progress!r} must be True, False or a function of (stage, done, total)")
    if progress is False or distributed.world()[0] != 0:
        yield
        return
    with stages() if progress is True else _same(progress) as listener:
        before = _listener.set(listener)
        try:
            yield
        finally:
            _listener.reset(before)


@contextmanager
def _same(listener: Listener) -> Iterator[Listener]:
    yield listener


@contextmanager
def stages(leave_out: str = "") -> Iterator[Listener]:
    """A listener that shows each stage as a line of the bar, but for one that is shown by other means."""
    lines: dict[str, _Line] = {}
    with _bar() as bar:

        def listener(stage: str, done: int, total: int | None) -> None:
            if stage == leave_out:
                return
            if stage not in lines:
                lines[stage] = _Line(bar, stage, total)
            lines[stage].set(done, total)
            if done == total:
                lines.pop(stage).close()

        try:
            yield listener
        finally:
            for line in lines.values():
                line.close()


@contextmanager
def progress(total: int | None, what: str = "", unit: str = "images") -> Iterator[Done]:
    """A bar with rate and time left on stderr; a line now and then, if that is no terminal."""
    size = distributed.world()[1]
    with _bar() as bar:
        line = _Line(bar, what, None if total is None else -(-total // size), unit)

        def done(more: int, what: str | None = None) -> None:
            line.set(line.done + more, line.total, what)

        try:
            yield done
        finally:
            line.close()


class _Line:
    """A line of the bar: one stage."""

    def __init__(self, bar: Progress, what: str, total: int | None, unit: str = "") -> None:
        self.bar, self.what, self.total, self.unit = bar, what, total, unit
        self.task = bar.add_task(what, total=total, rate="")
        self.done = self.times = 0
        self.began = self.said = time.monotonic()
        self.first = (self.began, 0)  # when the first were done, and how many
        self.is_judged = False  # whether it was said how long the rest takes
        _lines.append(self)

    def set(self, done: int, total: int | None, what: str | None = None) -> None:
        """So much of it is done, and what is done now."""
        self.done, self.total, self.what = done, total, what or self.what
        self.times += 1
        if self.times == 1:  # the first takes longer than others: kernels are compiled in it
            self.first = (time.monotonic(), done)
        self.bar.update(self.task, completed=done, total=total, description=self.what)
        speed = next(t for t in self.bar.tasks if t.id == self.task).speed
        self.bar.update(self.task, rate=f"{speed:.1f} {self.unit}/s" if speed is not None and self.unit else "")
        now = time.monotonic()
        # Once early, for the time that it will take; of the first batch alone that would be judged badly.
        early = self.unit and not self.is_judged and now - self.began >= SOON and (self.left() or 0) >= SOON
        if early or now - self.said >= A_WHILE:
            self.say()

    def left(self) -> float | None:
        """Seconds that the rest will take, as far as that is known."""
        since, before = self.first
        if self.total is None or self.done <= before or self.times < 2:
            return None
        return (time.monotonic() - since) / (self.done - before) * (self.total - self.done)

    def say(self) -> None:
        """A line for people who have no bar."""
        if not self.bar.disable or distributed.world()[0] != 0:
            return
        self.said = time.monotonic()
        taken = self.said - self.began
        text = f"{self.what or 'done'}: {self.done}{f' {self.unit}' if self.unit else ''}"
        if self.total is not None:
            text += f" of {self.total}"
        left = self.left()
        if left is not None:
            self.is_judged = True
            text += f", about {duration(left)} left"
        elif taken >= 1:
            text += f", for {duration(taken)} by now"
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        self.bar.remove_task(self.task)
        _lines.remove(self)


@contextmanager
def _bar() -> Iterator[Progress]:
    if _bars:
        yield _bars[-1]
        return
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    silent = distributed.world()[0] != 0 or not (console.is_terminal or console.is_jupyter)
    what, rate = rich.TextColumn("{task.description}"), rich.TextColumn("{task.fields[rate]}")
    clocks: tuple[Any, ...] = (rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn())
    columns = (what, rich.BarColumn(20), rich.MofNCompleteColumn(), rate, *clocks)
    with rich.Progress(*columns, console=console, disable=silent, transient=True) as bar, _watch(silent):
        _bars.append(bar)
        try:
            yield bar
        finally:
            _bars.pop()


@contextmanager
def _watch(silent: bool) -> Iterator[None]:
    """Where there is no bar, a thread says now and then what is at work, however long one part of it takes."""
    if not silent or distributed.world()[0] != 0:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(min(A_WHILE / 4, 5.0)):
            for line in _lines[-1:]:
                if time.monotonic() - line.said >= A_WHILE:
                    line.say()

    thread = threading.Thread(target=watch, name="spikecast progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
