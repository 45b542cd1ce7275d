"""What a command works on: a model or a saved network, images for its thresholds, and those it is measured on."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from spikecast import distributed
from spikecast.batches import Binder, calls
from spikecast.cli import common
from spikecast.cli.options import JobOptions, MeasureOptions, SettingOptions
from spikecast.cli.own_data import own_origin, own_size
from spikecast.cli.source import Source, on_device, open_source, open_task
from spikecast.config import Config
from spikecast.conversion.pipeline import convert
from spikecast.errors import ConfigError, DataError, run_own
from spikecast.experiments.compare import Comparison, compare, has_rectifiers
from spikecast.experiments.resume import evaluate_all
from spikecast.measure import Detection, Evaluation, Evaluator, Segmentation
from spikecast.measure.tasks import TASKS, Task, task_named
from spikecast.measure.tasks.classify import scores
from spikecast.network.base import Network
from spikecast.network.frames import mean_call
from spikecast.progress import progress, stages, telling
from spikecast.sources import Data, open_data, samples
from spikecast.sources.data import check_data
from spikecast.text import duration, many


@dataclass(frozen=True)
class Job:
    """A model and its data, both on the device."""

    source: Source
    batches: Iterable[Any]
    calibrating: Iterable[Any]
    said: Mapping[str, Any]  # what was asked for, so that records of another job are not mixed in
    task: str | Task
    time_axis: int | None = None  # of inputs that hold frames

    @cached_property
    def asked(self) -> dict[str, Any]:
        """What was asked for, with checksums of the lists of images."""
        lists = {"data": self.batches, "calibration": self.calibrating}
        digests = {f"list of {name}": made.digest() for name, made in lists.items() if isinstance(made, Data)}
        return {**self.said, **digests}

    def data(self) -> Iterator[Any]:
        """The batches, on the device."""
        return (on_device(batch, self.source.device) for batch in self.batches)

    def counted(self, what: str) -> Iterator[Any]:
        """The same, with a bar."""
        return self._counted(self.batches, what)

    def calibration(self) -> Iterator[Any]:
        """The images that thresholds are found from."""
        # Labels of classes say that the answers are scores, and labels of pixels do not; detectors would take targets
        # for a second argument.
        alone = isinstance(task_named(self.task), Detection | Segmentation)
        binder = Binder.of_model(self.source.model)
        for batch in self._counted(self.calibrating, "calibrating"):
            given = batch[:-1] if alone and isinstance(batch, list | tuple) and len(batch) > 1 else batch
            axis = self.time_axis
            yield given if axis is None else binder.changed(given, partial(mean_call, time_axis=axis))

    def _counted(self, batches: Iterable[Any], what: str) -> Iterator[Any]:
        with progress(_size(batches), what) as done:
            for batch in batches:
                yield on_device(batch, self.source.device)
                done(samples(batch))

    def config(self, settings: SettingOptions, seed: int) -> Config:
        """The settings; those of a saved network are fixed but for the number of steps."""
        saved = self.source.network
        if saved is None:
            return settings.config(seed, self.has_rectifiers)
        fixed = [name for name in settings.names if name != "num_steps"]
        if fixed:
            raise ConfigError(
                f"{self.source.spec} has its own {', '.join(fixed)}; leave them out, or convert the model again"
            )
        return dataclasses.replace(saved.config, **settings.given)

    def network(self, config: Config, *, strict: bool = False) -> Network:
        """The spiking network: the saved one, or the model converted now."""
        if self.source.network is not None:
            return self.source.network
        with _stages():
            network = convert(self.source.model, self.calibration(), config, strict=strict, regions=self.source.regions)
        network.about = self.source.about
        return network

    def evaluate(
        self, config: Config, options: MeasureOptions, *, steps: int | None = None, label: str = ""
    ) -> Evaluation:
        """Convert and measure; a label tells several measurements of one command apart."""
        total = config.steps_or(steps)
        evaluator = Evaluator(
            lambda: self.network(config),
            self.task,
            model=self.source.model,
            costs=options.costs,
            num_steps=total,
            time_axis=self.time_axis,
        )
        folder = options.resume / label.replace(" ", "-") if options.resume is not None else None
        said = {**self.asked, "config": config.to_json(), "steps": total} if folder is not None else {}
        with progress(_size(self.batches), label or "measuring") as done:
            return evaluate_all(evaluator, self.data(), folder=folder, job=said, progress=done, say=common.note)

    @torch.no_grad()
    def expected(self, steps: int) -> str:
        """How long so many steps of all images will take, judged by the ANN: a step takes about as long."""
        batch = next(self.data())
        (call,) = calls([batch], Binder.of_model(self.source.model))
        began = time.monotonic()
        self.source.model(*call[0], **call[1])
        each = (time.monotonic() - began) / samples(batch)
        size = _size(self.batches)
        if size is None:
            return f"about {duration(each * (steps + 1))} for each image"
        return f"{many(size, 'image')}, about {duration(each * (steps + 1) * size / distributed.world()[1])}"

    def has_rectifiers(self) -> bool:
        """Whether the network that comes of the model has rectifying neurons."""
        self.source.refuse_saved()
        return has_rectifiers(self.source.model, self.calibration(), regions=self.source.regions)

    def compare(self, configs: Mapping[str, Config], options: MeasureOptions) -> Comparison:
        """Convert by several configurations and measure all."""
        self.source.refuse_saved()
        size, order = _size(self.batches), list(configs)
        with progress(None if size is None else size * len(configs)) as done, _stages():
            comparison = compare(
                self.source.model,
                self.calibration,
                self.data,
                configs,
                task=self.task,
                costs=options.costs,
                regions=self.source.regions,
                folder=options.resume,
                job=self.asked if options.resume is not None else {},
                progress=lambda name, images: done(images, f"{name}, {order.index(name) + 1} of {len(order)}"),
                say=common.note,
            )
        common.skipped(self.batches)
        return comparison


@contextmanager
def _stages() -> Iterator[None]:
    """The stages of a conversion as bars; calibration has its own, which counts images."""
    with stages(leave_out="calibrate") as listener, telling(listener):
        yield


def _size(batches: Iterable[Any]) -> int | None:
    """How many images there are, where that is known."""
    return len(batches) if isinstance(batches, Data) else None


def open_job(
    options: JobOptions,
    time_axis: int | None = None,
    *,
    prepared: Mapping[str, Any] | None = None,
    calibrate_on_measured: bool = False,
) -> Job:
    """Open the model and the data, and say on stderr what was understood.

    `prepared` is what is other than the publisher says when images are made ready; with `calibrate_on_measured`
    thresholds are found from the images that are measured.
    """
    check_data(options.data)
    given = open_task(options.task, trust=options.trust) if options.task else None
    common.note(f"loading {options.model}")
    source = open_source(options, options).reading(options.data, options.task)
    if given is None and source.task not in TASKS:  # a file does not say which code is run
        raise ConfigError(
            f"{source.spec} is for the task {source.task[:80]!r}, which is none of {', '.join(TASKS)}; "
            "say --task FILE.py:FUNCTION --trust"
        )
    if prepared:
        source = dataclasses.replace(source, preparation=dataclasses.replace(source.preparation, **prepared))
    opened = partial(
        open_data,
        options.data,
        source.preparation,
        batch_size=options.batch_size,
        skip_corrupt=options.skip_corrupt,
        trust=options.trust,
    )
    batches = _numbered(opened(split="val", limit=options.limit), source, options)
    if calibrate_on_measured:
        calibrating = batches
    else:
        try:
            calibrating = opened(split="train", limit=options.calibrate)
        except DataError:  # there is no training split
            calibrating = opened(split="val", limit=options.calibrate)
    common.note(
        f"{options.model}, {options.data}: {_size_text(batches, source)}{_overlap(calibrating, batches, source)}"
    )
    said = {**_said(source, options), "time_axis": time_axis}
    return Job(source, batches, calibrating, said, source.task if given is None else given, time_axis)


@torch.no_grad()
def _numbered(batches: Iterable[Any], source: Source, options: JobOptions) -> Iterable[Any]:
    """Folders of images as classes of the model, which is asked for its number of outputs."""
    other = source.task in TASKS and source.task != "classification"
    if not isinstance(batches, Data) or not batches.classes or other or batches.task != "classification":
        if options.class_map is not None:
            raise ConfigError(f"--class-map {options.class_map}: {options.data} is no folder of classes; leave it out")
        return batches
    first = next(iter(dataclasses.replace(batches, batch_size=1, skipped=[])), None)
    if first is None:  # none can be read, which is said when they are measured
        return batches
    image, _ = on_device(first, source.device)
    answer = run_own(f"{options.model} cannot take what {options.data} holds", lambda: source.model(image))
    return batches.for_outputs(scores(answer).shape[1], options.class_map)


def _size_text(batches: Iterable[Any], source: Source) -> str:
    """What was understood of the data."""
    if not isinstance(batches, Data):
        return own_size(batches)
    if not source.takes_images:
        return many(len(batches), "sample")
    assumed = " (assumed; say --size, --crop, --mean, --std if not so)" if source.is_assumed else ""
    return f"{many(len(batches), 'image')}; {source.preparation}{assumed}"


def _overlap(calibrating: Iterable[Any], batches: Iterable[Any], source: Source) -> str:
    """Whether thresholds come from other images than those measured, where that can be told."""
    if source.network is not None:
        return ""
    if not isinstance(calibrating, Data) or not isinstance(batches, Data):
        return f"; thresholds from {own_origin(calibrating, batches)}"
    total, measured = len(calibrating), calibrating.shared_with(batches)
    if 0 < measured < total:
        return f"; thresholds from {total}, {measured} of which are measured too"
    return f"; thresholds from {total} of these" if measured else f"; thresholds from {many(total, 'other')}"


def _said(source: Source, options: JobOptions) -> dict[str, Any]:
    weights = "pretrained" if options.pretrained else None if options.weights is None else str(options.weights)
    return {
        "model": options.model,
        "task": source.task,
        "weights": weights,
        "data": options.data,
        "images": options.limit,
        "batch_size": options.batch_size,
        "calibrate": options.calibrate,
        "preparation": source.preparation.to_json() if source.takes_images else None,
        "regions": source.regions,
        "classes": options.classes,
        "class_map": None if options.class_map is None else str(options.class_map),
        "files": _digests(options.model, options.data, options.task, str(options.class_map)),
    }


def _digests(*specs: str) -> dict[str, str]:
    """The checksums of the files that are named, as in FILE.py:FUNCTION or onnx:FILE."""
    named = {name for spec in specs for name in (spec, spec.rpartition(":")[0], spec.partition(":")[2])}
    found = {}
    for name in sorted(named):
        if Path(name).is_file():
            with open(name, "rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def save(network: Network, path: Path) -> None:
    """Write a network from the first process, into a folder that is made if need be."""
    if distributed.world()[0] == 0:
        with common.folders_for(path):
            network.save(path)
    common.note(f"written to {path}")
