"""Gathers what a report says: each network is measured on all batches, and looked into on the first samples."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from spikecast.batches import Call, InputFunction, first_samples, one_sample, samples_in
from spikecast.costs import COSTS
from spikecast.errors import DataError
from spikecast.measure.agreement import agreement
from spikecast.measure.evaluate import Evaluation, Evaluator, Record
from spikecast.measure.tasks import Task, task_named
from spikecast.measure.tasks.classify import Classification
from spikecast.network.base import Network
from spikecast.network.spiking import SpikingNetwork
from spikecast.page.data import NetworkData, ReportData, Sample
from spikecast.page.drawing import drawing
from spikecast.page.layers import layers
from spikecast.page.picture import ToPixels, picture
from spikecast.page.provenance import own_command, versions
from spikecast.page.traces import traces
from spikecast.page.watch import Disagreements, Watched


def build(
    model: nn.Module,
    snns: Mapping[str, Network],
    batches: Iterable[Any],
    *,
    title: str | None = None,
    task: str | Task = "classification",
    classes: Sequence[str] | None = None,
    command: str | None = None,
    to_pixels: ToPixels | None = None,
    inputs: InputFunction | None = None,
    targets: Callable[[Any], Any] | None = None,
    traced: int = 4,
    layer_samples: int = 32,
    progress: Callable[[int], None] | None = None,
) -> ReportData:
    """Measure a model and networks that were made from it, for a page that shows them side by side.

    Args:
        model: The ANN.
        snns: Converted networks by name; the page has one curve for each.
        batches: (input, target); gone through once.
        title: Of the page.
        task: As for `measure.evaluate`.
        classes: Names to show instead of numbers.
        command: What made the networks; this process's own command unless given.
        to_pixels: Turns one sample of the input into an image in 0..1.
        inputs: Picks the model's input out of a batch.
        targets: Picks the target out of a batch.
        traced: How many samples are shown neuron by neuron.
        layer_samples: How many samples of the first batch are compared layer by layer.
        progress: Called with the number of samples of each batch.

    Returns:
        The data of the page; `.write_html("page.html")` writes it.

    Example:
        >>> page = spikecast.report(model, {"ours": snn}, [(x, labels)], title="My network")
        >>> _ = page.write_html("page.html")
    """
    if not snns:
        raise DataError("snns is empty; give at least one converted network by a name, as in {'differential': snn}")
    metric, how = next(iter(task_named(task).metrics.items()))
    given = {"model": model, "inputs": inputs, "targets": targets}
    jobs = [_Job(name, snn, task, to_pixels, **given) for name, snn in snns.items()]
    axis = jobs[0].snn.batch_axis
    first: Call | None = None
    samples = 0
    for number, batch in enumerate(batches):
        call = jobs[0].evaluator.binder.bind(batch)
        for job in jobs:
            job.measure(number, batch, call, samples)
        if first is None:
            first = first_samples(call, layer_samples, axis or 0) if jobs[0].free else call
        samples += samples_in(call, axis)
        if progress is not None:
            progress(samples_in(call, axis))
    if first is None:
        raise DataError("the batches are empty; give at least one batch of (input, target)")
    evaluated = [job.evaluator.result(job.records) for job in jobs]
    assert evaluated[0].ann is not None
    return ReportData(
        title=title or type(model).__name__,
        task=jobs[0].evaluator.name if not jobs[0].watched else "classification",
        metric=metric,
        how=how,
        samples=samples,
        layer_samples=samples_in(first, axis),
        ann=evaluated[0].ann,
        ann_interval=evaluated[0].intervals["ann"][0],
        networks=[job.result(found, model, first, traced) for job, found in zip(jobs, evaluated, strict=True)],
        traced=_samples(first, axis, jobs[0].shown, traced, to_pixels),
        classes=[str(name) for name in classes or ()],
        command=own_command() if command is None else command,
        made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions=versions(),
    )


class _Job:
    """One network under measurement."""

    def __init__(self, name: str, snn: Network, task: str | Task, to_pixels: ToPixels | None, **given: Any) -> None:
        classifies = task == "classification" or type(task) is Classification
        self.watched = Watched() if classifies else None
        self.evaluator = Evaluator(snn, self.watched or task, **given)
        self.name, self.snn, self.to_pixels = name, snn, to_pixels
        self.records: list[Record] = []
        self.disagreements = Disagreements()
        self.shown: list[tuple[int, int]] = []  # (label, ANN's answer) of the first batch

    @property
    def free(self) -> bool:
        """Whether the network takes batches of any size, and so can be given fewer samples."""
        return all(part.plan.program.batch_symbols for part in self.snn.networks.values())

    def measure(self, number: int, batch: Any, call: Call, start: int) -> None:
        watched = self.watched
        if watched is not None:
            watched.answers.clear()
        self.records.append(self.evaluator.measure(number, batch))
        if watched is None:
            return
        self.disagreements.add(
            watched, start, lambda i: picture(one_sample(call, i, self.snn.batch_axis or 0), self.to_pixels)
        )
        if not self.shown:
            self.shown = list(zip(watched.labels.tolist(), watched.reference.tolist(), strict=True))

    def result(self, found: Evaluation, model: nn.Module, first: Call, traced: int) -> NetworkData:
        assert found.energy is not None
        assert found.agreement is not None
        assert found.less_ann is not None
        priced = {costs: found.energy.under(costs) for costs in COSTS}
        report = self.snn.report
        compared, seen = None, dict[str, Any](graph=[], traces=[])
        if isinstance(self.snn, SpikingNetwork):
            compared = agreement(model, self.snn, [first], inputs=lambda call: call[1] or call[0])
            few = first_samples(first, traced, self.snn.batch_axis) if self.free else first
            seen = {"graph": drawing(self.snn), "traces": traces(self.snn, few, traced)}
        return NetworkData(
            name=self.name,
            config=self.snn.config.to_json(),
            slots=found.slots,
            steps=found.steps,
            agreement=found.agreement,
            intervals={name: each for name, each in found.intervals.items() if name != "ann"},
            less_ann=next(iter(found.less_ann.values())),
            energy={costs: {"ann": e.ann, "snn": e.snn, "ratio": e.ratio} for costs, e in priced.items()},
            spikes_per_neuron=found.energy.spikes_per_neuron,
            summary=report.summary(),
            spiking_share=report.spiking_share,
            layers=layers(self.snn, found.energy, compared),
            examples=self.disagreements.examples,
            disagree=None if self.watched is None else self.disagreements.disagree,
            calibrated=report.calibrated,
            advice=[] if compared is None else compared.explain(),
            notes=list(report.notes),
            **seen,
        )


def _samples(
    call: Call, axis: int | None, shown: list[tuple[int, int]], count: int, to_pixels: ToPixels | None
) -> list[Sample]:
    found = []
    for i in range(min(count, samples_in(call, axis))):
        label, ann = shown[i] if i < len(shown) else (None, None)
        found.append(Sample(i, picture(one_sample(call, i, axis), to_pixels), label, ann))
    return found
