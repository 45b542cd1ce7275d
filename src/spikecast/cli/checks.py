"""Rules of single options, held while the words are read: what is wrong is said before any work, in one line.

A rule is a function of the value that says what is wrong with it, or nothing. `held` makes it a callback of typer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import typer

from spikecast.costs import COSTS
from spikecast.errors import ConfigError, SpikecastError
from spikecast.page.plots import check_plot
from spikecast.sources.classes import read_class_map
from spikecast.sources.images import MAX_SIZE
from spikecast.storage.files import check_place
from spikecast.text import many

Rule = Callable[[Any], str | None]
Callback = Callable[[typer.CallbackParam, Any], Any]


def held(*rules: Rule) -> Callback:
    """The rules as a callback, which names the option and its value; an option that was not given breaks none."""

    def call(param: typer.CallbackParam, value: Any) -> Any:
        for rule in rules if value is not None and value != "" else ():
            try:
                wrong = rule(value)
            except SpikecastError as error:
                if str(error).startswith(str(value)):
                    raise
                wrong = str(error)
            if wrong is not None:
                raise ConfigError(f"{param.opts[0]} {str(value)[:200]}: {wrong}")
        return value

    return call


def at_least(low: int, why: str) -> Callback:
    """For whole numbers with a least one."""
    return held(lambda value: None if value >= low else f"{why}; give {low} or more")


def ending(*suffixes: str) -> Callback:
    """For a file that is written, whose name says what it is."""

    known = f"{'one of ' if len(suffixes) > 1 else ''}{', '.join(suffixes)}"

    def rule(path: Path) -> str | None:
        return None if path.suffix in suffixes else f"the name must end in {known}; give such a name"

    return held(rule, _place)


def one_of(*names: str) -> Callback:
    """For a word out of a few."""
    return held(lambda word: None if word in names else f"give one of {', '.join(names)}")


def _place(path: Path) -> None:
    check_place(path)


def _folder(path: Path) -> str | None:
    if path.exists() and not path.is_dir():
        return "it is a file; give the name of a folder"
    check_place(path / "a file")
    return None


def _plot(path: Path) -> None:
    check_plot(path)
    check_place(path)


def _weights(path: Path) -> str | None:
    return None if path.is_file() else "there is no such file; check the name"


def _class_map(path: Path) -> None:
    read_class_map(path)


def _seed(value: int) -> str | None:
    return None if 0 <= value < 2**63 else "a seed is a whole number from 0 to 2**63 - 1; give one"


def _size(value: int) -> str | None:
    return None if 1 <= value <= MAX_SIZE else f"images have 1 to {MAX_SIZE} pixels a side; give such a number"


def _crop(value: float) -> str | None:
    return None if 0 < value <= 1 else "the middle square is a share of a side above 0, at most 1; give such a number"


def _colours(text: str, *, positive: bool) -> str | None:
    values = fractions_of(text)
    if values is None or len(values) not in (1, 3) or not all(map(math.isfinite, values)):
        return "give one number, or three with commas between, as in 0.485,0.456,0.406"
    return "pixels are divided by it; give numbers above 0" if positive and min(values) <= 0 else None


def _shape(text: str) -> str | None:
    parts = text.split(",")
    fits = all(part.strip().isdecimal() and int(part) > 0 for part in parts)
    return None if fits else "give whole numbers above 0, as in 1,28,28"


def _device(name: str) -> None:
    device_named(name)


def fractions_of(text: str) -> tuple[float, ...] | None:
    """Numbers out of "0.5,0.25"; None where a part is no number."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        return None


def device_named(name: str) -> torch.device:
    """The device, if this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError("it is not a device; give cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("this machine has no CUDA device that torch can use; give cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"this machine has {many(torch.cuda.device_count(), 'CUDA device')}, counted from 0; give one of them"
        )
    return device


file_to_write = held(_place)
folder_to_write = held(_folder)
plot_to_write = held(_plot)
class_map = held(_class_map)
classes = at_least(1, "a model has at least one class")
costs = one_of(*COSTS)
device = held(_device)
mean = held(lambda text: _colours(text, positive=False))
seed = held(_seed)
shape = held(_shape)
size = held(_size)
crop = held(_crop)
std = held(lambda text: _colours(text, positive=True))
weights = held(_weights)
