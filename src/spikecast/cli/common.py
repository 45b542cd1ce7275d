"""What commands share: the options that name a model and data, progress, and how results are printed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from spikecast import distributed
from spikecast.data import Data, Preparation, open_data
from spikecast.errors import ConfigError, SpikecastError
from spikecast.models import Loaded, open_model

ModelSpec = Annotated[str, typer.Argument(metavar="MODEL", help="timm:NAME, torchvision:NAME or FILE.py:FACTORY")]
DataSpec = Annotated[
    str,
    typer.Option("--data", help="imagefolder:DIR, imagenet:DIR, cifar10:DIR, coco:DIR, voc:DIR or FILE.py:FUNCTION"),
]
Weights = Annotated[Path | None, typer.Option(help="safetensors, or a checkpoint of tensors")]
Pretrained = Annotated[bool, typer.Option("--pretrained", help="download the publisher's weights")]
Classes = Annotated[int | None, typer.Option("--classes", help="classes of the model, where not its usual number")]
Trust = Annotated[bool, typer.Option("--trust", help="run the code of FILE.py")]
Size = Annotated[int | None, typer.Option(help="pixels of a side, where not the model's usual size")]
Limit = Annotated[int | None, typer.Option(help="measure at most so many images")]
BatchSize = Annotated[int, typer.Option(help="images at a time")]
Images = Annotated[int, typer.Option("--calibrate", help="images that thresholds are found from")]
Skip = Annotated[bool, typer.Option("--skip-corrupt", help="pass over images that cannot be read, and name them")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
Resume = Annotated[
    Path | None, typer.Option(help="folder for finished batches; a run that was stopped goes on from it")
]
Costs = Annotated[str, typer.Option("--costs", help="paper, honest or full")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]
Out = Annotated[Path | None, typer.Option("--out", help="write the JSON to a file as well")]


@dataclass
class Job:
    """A model, the images its thresholds come from, and those it is measured on."""

    loaded: Loaded
    batches: Any
    images: int
    device: torch.device
    said: dict[str, Any]  # what was asked for, so that records of another job are not mixed in

    @property
    def model(self) -> nn.Module:
        return self.loaded.model

    def data(self) -> Iterator[Any]:
        """The batches, on the device."""
        return (_moved(batch, self.device) for batch in self.batches)

    def calibration(self) -> Iterator[Any]:
        """The first images, without their targets."""
        size = self.batches.batch_size if isinstance(self.batches, Data) else 1
        return (_moved([batch[0]], self.device) for batch in islice(self.batches, -(-self.images // size)))


def job(
    model: str,
    data: str,
    *,
    weights: Path | None = None,
    pretrained: bool = False,
    classes: int | None = None,
    trust: bool = False,
    size: int | None = None,
    limit: int | None = None,
    batch_size: int = 32,
    calibrate: int = 100,
    skip_corrupt: bool = False,
    device: str = "cpu",
    options: Mapping[str, Any] | None = None,
) -> Job:
    """Open the model and the data, and say on stderr what was understood."""
    chosen = {**(options or {}), **({} if classes is None else {"num_classes": classes})}
    loaded = open_model(model, weights=weights, pretrained=pretrained, trust=trust, options=chosen)
    preparation = loaded.preparation if size is None else _resized(loaded.preparation, size)
    batches = open_data(data, preparation, batch_size=batch_size, limit=limit, skip_corrupt=skip_corrupt, trust=trust)
    place = _device(device)
    loaded.model.to(place)
    if calibrate < 1:
        raise ConfigError(f"--calibrate {calibrate}: thresholds need at least one image")
    note(f"{model}, {data}: {len(batches) if hasattr(batches, '__len__') else 'some'} images; {preparation}")
    said = {
        "model": model,
        "weights": "pretrained" if pretrained else None if weights is None else str(weights),
        "data": data,
        "images": limit,
        "batch_size": batch_size,
        "calibrate": calibrate,
        "preparation": preparation.to_json(),
        "options": {k: str(v) for k, v in chosen.items()},
    }
    return Job(loaded, batches, calibrate, place, said)


def _resized(preparation: Preparation, size: int) -> Preparation:
    return Preparation.from_json({**preparation.to_json(), "size": size})


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device {name!r} is not a device; give cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name!r}: this machine has no CUDA device that torch can use; give cpu")
    return device


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(_moved(v, device) for v in value)
    return {k: _moved(v, device) for k, v in value.items()} if isinstance(value, dict) else value


def note(text: str) -> None:
    """A line for people, from the first process only."""
    if distributed.world()[0] == 0:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress(total: int | None) -> Iterator[Any]:
    """A bar with rate and time left on stderr; yields what is told the number of images that are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    rank, size = distributed.world()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    console = Console(stderr=True)
    bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=rank != 0 or not console.is_terminal)
    with bar:
        task = bar.add_task("", total=None if total is None else -(-total // size), rate="")

        def done(images: int, what: str = "") -> None:
            bar.update(task, advance=images, description=what)
            speed = bar.tasks[0].speed
            bar.update(task, rate="" if speed is None else f"{speed:.1f} images/s")

        yield done


def show(table: str, data: Any, *, as_json: bool, out: Path | None) -> None:
    """The result on stdout, from the first process only; the file is written whole or not at all."""
    if distributed.world()[0] != 0:
        return
    if out is not None:
        write_whole(out, json.dumps(data, indent=1) + "\n")
        note(f"written to {out}")
    print(json.dumps(data) if as_json else table, flush=True)


def write_whole(path: Path, text: str) -> None:
    """Write next to the file and put it in its place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SpikecastError(f"cannot write {path}: {error.strerror}; give another --out") from error


def numbers(text: str, name: str) -> list[int]:
    """Whole numbers out of "1,4,8"."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigError(f"--{name} {text!r}: give whole numbers, as in 1,4,8") from error
    if not found:
        raise ConfigError(f"--{name} {text!r}: give at least one number")
    return found


def skipped(batches: Iterable[Any]) -> None:
    """Say which images were passed over."""
    lost = batches.skipped if isinstance(batches, Data) else []
    if lost:
        note(f"{len(lost)} images were skipped: {'; '.join(lost[:5])}{' …' if len(lost) > 5 else ''}")
