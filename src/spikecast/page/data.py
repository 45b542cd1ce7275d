"""What a report says, as plain data: every field goes to JSON as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from spikecast.measure.intervals import Interval
from spikecast.measure.tasks import Metric
from spikecast.storage.schema import known


def _plain(value: Any) -> str | float:
    """Texts and numbers of classes of their own, as torch's version and figures of NumPy are."""
    return str(value) if isinstance(value, str) else float(value)


@dataclass(frozen=True)
class Layer:
    """One site of neurons, or one op that costs something; lists have one entry per step.

    node    its name in the graph
    kind    spiking (neurons), synapse (an op that is fed by spikes), graded, analog, affine or shape
    macs    of one sample; None where nobody counts them
    theta   least, median and largest base threshold of a site
    firing  spikes of a site's neuron, in the mean; above one where neurons burst
    error   of a site's estimate against the ANN's activation, relative; `own` is what the site itself adds
    joules  by the name of the costs, of one sample, at each step
    """

    node: str
    name: str
    op: str
    scope: str
    kind: str
    role: str
    neurons: int | None
    macs: int | None
    theta: list[float] | None
    firing: list[float] | None
    error: list[float] | None
    own: list[float] | None
    joules: dict[str, list[float]]


@dataclass(frozen=True)
class GraphNode:
    """One op as it is drawn: a row, a lane, the rows of its inputs, and until which row its value is needed."""

    name: str
    op: str
    scope: str
    kind: str
    role: str
    lane: int
    inputs: list[int]
    until: int


@dataclass(frozen=True)
class Sample:
    """An input that is shown: its picture as a PNG data URI if it has one, the right class, the ANN's answer."""

    number: int
    image: str | None
    label: int | None
    ann: int | None


@dataclass(frozen=True)
class Example:
    """A sample that the spiking network saw differently: its answer after each step."""

    sample: Sample
    answers: list[int]


@dataclass(frozen=True)
class Trace:
    """A few neurons of one site for each traced sample.

    activations  [sample][neuron] of the ANN
    estimates    [sample][step][neuron]
    levels       [sample][step][neuron][spike of the burst]: 0 silent, ±1 the largest level
    """

    site: str
    neurons: int
    shown: list[int]
    activations: list[list[float]]
    estimates: list[list[list[float]]]
    levels: list[list[list[list[int]]]]


@dataclass(frozen=True)
class NetworkData:
    """One converted network.

    `energy` holds, by the name of the costs, joules of the ANN (`ann`), up to each step (`snn`), and their `ratio`.
    `slots` are pulse slots up to each step: bursts take time.
    `intervals` are 95 % after each step, by metric and of "agreement"; `less_ann` is of the report's metric less the
    ANN's, after each step. The ratio and the share of products that are fed by spikes are None where an op has products
    that nobody counts. `calibrated` is the number of samples that thresholds were found from, where it is known, and
    `advice` says which layers lose most and what would help them.
    """

    name: str
    config: dict[str, Any]
    slots: list[int]
    steps: dict[str, list[float]]
    agreement: list[float]
    intervals: dict[str, list[Interval]]
    less_ann: list[Interval]
    energy: dict[str, dict[str, Any]]
    spikes_per_neuron: list[float]
    summary: str
    spiking_share: float | None
    layers: list[Layer]
    graph: list[GraphNode]
    traces: list[Trace]
    examples: list[Example]
    disagree: int | None
    calibrated: int | None = None
    advice: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReportData:
    """Everything a report says. `samples` were measured, the errors of layers come from `layer_samples` of them.

    `how` says how the metric is read; `ann_interval` is 95 % of the ANN's.
    """

    title: str
    task: str
    metric: str
    how: Metric
    samples: int
    layer_samples: int
    ann: dict[str, float]
    ann_interval: Interval
    networks: list[NetworkData]
    traced: list[Sample]
    classes: list[str]
    command: str
    made: str
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        made: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_plain)
        return made

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReportData:
        """The report again from `to_json`."""
        return msgspec.convert(data, cls)

    def html(self) -> str:
        """The page."""
        from spikecast.page.html import page

        return page(self)

    def write_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the page as one file that needs no other; whole or not at all."""
        from spikecast.storage.files import write_whole

        return write_whole(path, self.html())


known(ReportData)
