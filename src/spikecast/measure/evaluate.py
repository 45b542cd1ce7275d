"""How well a converted network does its task after each step, beside the ANN, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from spikecast._version import __version__
from spikecast.batches import TARGETS, Binder, Call, InputFunction, calls
from spikecast.costs import Costs, costs_named
from spikecast.errors import ConfigError, DataError
from spikecast.measure.figures import Energy
from spikecast.measure.intervals import Interval
from spikecast.measure.run import answer_of, check_network
from spikecast.measure.scores import Scores
from spikecast.measure.tasks import Task, task_named
from spikecast.network.answers import at_step
from spikecast.network.base import Network
from spikecast.network.counting.tally import Tally
from spikecast.network.frames import mean_call, split
from spikecast.progress import Listener, counted, telling
from spikecast.storage.tensors import digest_of_model
from spikecast.text import columns, many, si

Record = dict[str, Any]  # of one batch: plain JSON data


@dataclass(frozen=True)
class Evaluation:
    """What `measure.evaluate` found. Index 0 of a list over steps is t = 1.

    Attributes:
        task: Its name.
        samples: How many were measured.
        slots: Pulse slots up to each step: bursts take time.
        steps: Each figure after each step, by metric.
        ann: The figures of the ANN; None without a `model`.
        agreement: Share of answers like the ANN's, after each step.
        energy: What was counted; None where it was not asked for.
        scores: Notes of all samples. `intervals` come from them: 95 % of each figure after each step, by metric, of the
            ANN's under "ann", of agreement under "agreement"; and `less_ann`, of each figure minus the ANN's.

    Example:
        >>> found = measure.evaluate(snn, [(x, labels)], model=model)
        >>> found.samples, len(found.steps["top1"]), found.agreement[-1]
        (2, 4, 1.0)
    """

    task: str
    samples: int
    slots: list[int]
    steps: dict[str, list[float]]
    ann: dict[str, float] | None
    agreement: list[float] | None
    energy: Energy | None
    scores: Scores

    @cached_property
    def intervals(self) -> dict[str, list[Interval]]:
        return self.scores.intervals()

    @cached_property
    def less_ann(self) -> dict[str, list[Interval]] | None:
        return self.scores.less_ann()

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        return {
            "task": self.task,
            "samples": self.samples,
            "slots": self.slots,
            "steps": self.steps,
            "ann": self.ann,
            "agreement": self.agreement,
            "intervals": self.intervals,
            "less_ann": self.less_ann,
            "energy": None if self.energy is None else self.energy.to_json(),
        }

    def table(self) -> str:
        """One row for each step; the first figure and agreement have their intervals."""
        names = list(self.steps)
        extra = [] if self.agreement is None else ["agreement"]
        costs = [] if self.energy is None else ["energy", "of the ANN's", "spikes per neuron"]
        rows: list[Sequence[str]] = [["t", "slots", *names, *extra, *costs]]
        for t, slots in enumerate(self.slots):
            row = [str(t + 1), str(slots), self.text(t)]
            row += [self.scores.task.metrics[name].text(self.steps[name][t]) for name in names[1:]]
            row += [] if self.agreement is None else [self.intervals["agreement"][t].text(self.agreement[t])]
            if self.energy is not None:
                e = self.energy
                row += [si(e.snn[t], "J"), e.ratio_text(t + 1), f"{e.spikes_per_neuron[t]:.3f}"]
            rows.append(row)
        if self.ann is not None:
            figures = (metric.text(self.ann[name]) for name, metric in self.scores.task.metrics.items())
            ann = ["ANN", "", *figures, *("" for _ in extra)]
            rows.append([*ann, *([] if self.energy is None else [self.energy.ann_text, "", ""])])
        notes = [f"{many(self.samples, 'sample')}, 95 % intervals"]
        if self.ann is not None:
            notes.append(f"{names[0]} minus the ANN's at the end {self.less_text()}")
        if self.energy is not None:
            notes += filter(None, [f"energy per sample, costs: {self.energy.costs_name}", self.energy.missing])
        return f"{columns(rows)}\n{'; '.join(notes)}"

    def rows(self) -> list[dict[str, Any]]:
        """A row for each step with every figure, its interval, and its distance from the ANN's."""
        found = []
        for t, slots in enumerate(self.slots):
            row: dict[str, Any] = {"t": t + 1, "slots": slots}
            for name, values in self.steps.items():
                row |= {name: values[t], **_ends(name, self.intervals[name][t])}
                if self.ann is not None and self.less_ann is not None:
                    less = f"{name}_less_ann"
                    row |= {f"{name}_ann": self.ann[name], less: values[t] - self.ann[name]}
                    row |= _ends(less, self.less_ann[name][t])
            if self.agreement is not None:
                row |= {"agreement": self.agreement[t], **_ends("agreement", self.intervals["agreement"][t])}
            if self.energy is not None:
                ratio = None if self.energy.ratio is None else self.energy.ratio[t]
                row |= {"joules": self.energy.snn[t], "energy_ratio": ratio}
            found.append({**row, "samples": self.samples})
        return found

    def text(self, t: int) -> str:
        """The first figure after step t + 1, with its interval."""
        name, metric = next(iter(self.scores.task.metrics.items()))
        return self.intervals[name][t].text(self.steps[name][t], metric.unit)

    def less_text(self) -> str:
        """The first figure after the last step minus the ANN's on the same samples, with its interval."""
        if self.ann is None or self.less_ann is None:
            return ""
        name, metric = next(iter(self.scores.task.metrics.items()))
        less = self.steps[name][-1] - self.ann[name]
        return self.less_ann[name][-1].text(less, "points" if metric.unit == "%" else "")


class Evaluator:
    """Measures one batch at a time; the records of all batches, in any order, make up the result.

    Args:
        network: A converted network, or a function that makes it when the first batch needs it.
        task: A name, as for `evaluate`, or a `Task`.
        model: The ANN, to compare with.
        costs: "paper", "honest", "full", a `Costs`, or None to count nothing.
        num_steps: T; what the network was converted for unless given.
        inputs: Picks the model's arguments out of a batch.
        targets: Picks the targets out of a batch.
        time_axis: Axis of the inputs that holds frames, one for each step.

    Example:
        >>> evaluator = measure.Evaluator(snn, model=model)
        >>> records = [evaluator.measure(number, batch) for number, batch in enumerate([(x, labels), (x, labels)])]
        >>> evaluator.result(records).samples
        4
    """

    def __init__(
        self,
        network: Network | Callable[[], Network],
        task: str | Task = "classification",
        *,
        model: nn.Module | None = None,
        costs: str | Costs | None = "paper",
        num_steps: int | None = None,
        inputs: InputFunction | None = None,
        targets: Callable[[Any], Any] | None = None,
        time_axis: int | None = None,
    ) -> None:
        self.time_axis = time_axis
        self.task, self.model, self.inputs, self.targets = task_named(task), model, inputs, targets
        self.name = task if isinstance(task, str) else type(task).__name__
        self.costs = None if costs is None else costs_named(costs)
        self._network = network
        self.num_steps = self.network.config.num_steps if num_steps is None else num_steps

    @property
    def network(self) -> Network:
        """The network."""
        if not isinstance(self._network, Network):
            if isinstance(self._network, nn.Module) or not callable(self._network):
                check_network(self._network)
            self._network = self._network()
        return self._network

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this measurement from others: code, settings, weights. A network still to be made has none."""
        made = self._network if isinstance(self._network, Network) else None
        return {
            "code": f"spikecast {__version__}, torch {torch.__version__}",
            "measured": [self.name, self.num_steps, self.time_axis, self.costs is not None],
            "weights of the model": None if self.model is None else digest_of_model(self.model),
            "weights of the network": None if made is None else digest_of_model(made),
            "settings of the network": None if made is None else made.config.to_json(),
        }

    @cached_property
    def binder(self) -> Binder:
        return self.network.binder(self.inputs)

    def _check_frames(self, call: Call) -> None:
        """The ANN is asked of the mean of all frames, so all of them are taken; the answer after each is there too."""
        if self.time_axis is not None and self.num_steps < (frames := len(split(call, self.time_axis)[2])):
            raise ConfigError(
                f"num_steps={self.num_steps} for {frames} frames, of whose mean the ANN is asked; "
                f"give a step for each (num_steps={frames}, or --steps {frames})"
            )

    @torch.no_grad()
    def measure(self, number: int, batch: Any) -> Record:
        """What there is to know of one batch."""
        (call,) = calls([batch], self.binder)
        target = _target(batch) if self.targets is None else self.targets(batch)
        self._check_frames(call)
        tally = Tally(self.num_steps)
        if self.costs is None:
            answers = self.network.run(*call[0], num_steps=self.num_steps, time_axis=self.time_axis, **call[1])
        else:
            answers = self.network.metered(call, tally, self.time_axis)
        each = [at_step(answers, t) for t in range(self.num_steps)]
        record: Record = {"batch": number, "samples": _length(target), "slots": self.network.slots(self.num_steps)}
        record["steps"] = [self.task.notes(answer, target) for answer in each]
        if self.costs is not None:
            record["tally"] = tally.to_json()
        if self.model is not None:
            args, kwargs = call if self.time_axis is None else mean_call(call, self.time_axis)
            reference = answer_of(self.model, (args, kwargs))
            record["ann"] = self.task.notes(reference, target)
            record["same"] = [self.task.same(answer, reference) for answer in each]
        return record

    def result(self, records: Iterable[Record]) -> Evaluation:
        """The figures of all records, whose order does not matter."""
        found = sorted(records, key=lambda r: r["batch"])
        if not found:
            raise DataError("nothing was measured; give at least one batch")
        scores = Scores(
            self.task,
            [[note for r in found for note in r["steps"][t]] for t in range(self.num_steps)],
            [note for r in found for note in r["ann"]] if "ann" in found[0] else None,
            [[tuple(pair) for r in found for pair in r["same"][t]] for t in range(self.num_steps)]
            if "same" in found[0]
            else None,
        )
        energy, slots = None, found[0]["slots"]
        if self.costs is not None:
            tally = Tally(self.num_steps)
            for record in found:
                tally.merge(Tally.from_json(record["tally"]))
            energy = Energy(tally, *self.costs, slots)
        number = sum(r["samples"] for r in found)
        return Evaluation(self.name, number, slots, scores.steps(), scores.of_ann(), scores.agreement(), energy, scores)


def evaluate(
    network: Network,
    data: Iterable[Any],
    task: str | Task = "classification",
    *,
    model: nn.Module | None = None,
    costs: str | Costs | None = "paper",
    num_steps: int | None = None,
    inputs: InputFunction | None = None,
    targets: Callable[[Any], Any] | None = None,
    time_axis: int | None = None,
    progress: bool | Listener = False,
) -> Evaluation:
    """Score the answer after each step, and count what it costs.

    Args:
        network: A converted network.
        data: Batches of (input, target), or dicts that name their target "labels", "label", "target" or "targets".
        task: "classification", "segmentation", "detection", "language", "reconstruction", or a task such as `OwnTask`.
        model: The ANN, to be scored beside it.
        costs: Prices of the operations: "paper", "honest", "full", or a `Costs`; None leaves energy out.
        num_steps: T; the network's own unless given.
        inputs: Picks the model's input out of a batch.
        targets: Picks the target out of a batch.
        time_axis: The axis on which inputs hold frames, one for each step; the ANN is asked about their mean.
        progress: True shows a bar on stderr. A function is called with (stage, done, total).

    Returns:
        An Evaluation: `.steps["top1"]`, `.ann`, `.agreement`, `.energy`, with intervals in `.table()` and `.to_json()`.

    Example:
        >>> found = measure.evaluate(snn, [(x, labels)], model=model)
        >>> len(found.steps["top1"]) == snn.config.num_steps
        True
    """
    evaluator = Evaluator(
        network,
        task,
        model=model,
        costs=costs,
        num_steps=num_steps,
        inputs=inputs,
        targets=targets,
        time_axis=time_axis,
    )
    with telling(progress):
        records = [evaluator.measure(i, batch) for i, batch in enumerate(counted(data, "measure"))]
    return evaluator.result(records)


def _ends(name: str, interval: Interval) -> dict[str, float]:
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}


def _target(batch: Any) -> Any:
    """What is asked for, out of a batch: its last item, or what its keys call so."""
    if isinstance(batch, Mapping):
        found = [batch[key] for key in TARGETS if key in batch]
        if found:
            return found[0]
    elif isinstance(batch, list | tuple) and len(batch) > 1:
        return batch[-1]
    raise DataError(
        f"a batch of type {type(batch).__name__} has no target; yield (input, target), a dict with one of "
        f"{', '.join(TARGETS)}, or give targets=function(batch)"
    )


def _length(target: Any) -> int:
    return len(target) if hasattr(target, "__len__") else 1
