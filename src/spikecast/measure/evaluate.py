"""How well a converted network does its task after each step, beside the ANN, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from spikecast.batches import TARGETS, Binder, InputFunction, calls
from spikecast.costs import Costs, costs_named
from spikecast.errors import DataError
from spikecast.measure.figures import Energy
from spikecast.measure.tasks import Task, task_named
from spikecast.network.answers import at_step
from spikecast.network.base import Network
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Tally
from spikecast.text import columns, si

Record = dict[str, Any]  # of one batch: plain JSON data


@dataclass(frozen=True)
class Evaluation:
    """Figures after each step (index 0 is t = 1), those of the ANN, how much the two agree, and the energy.

    `slots` are the pulse slots up to each step: bursts take time.
    """

    task: str
    samples: int
    slots: list[int]
    steps: dict[str, list[float]]
    ann: dict[str, float] | None
    agreement: list[float] | None
    energy: Energy | None

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        return {
            "task": self.task,
            "samples": self.samples,
            "slots": self.slots,
            "steps": self.steps,
            "ann": self.ann,
            "agreement": self.agreement,
            "energy": None if self.energy is None else self.energy.to_json(),
        }

    def table(self) -> str:
        """One row for each step."""
        names = list(self.steps)
        extra = [] if self.agreement is None else ["agreement"]
        costs = [] if self.energy is None else ["energy", "of the ANN's", "spikes per neuron"]
        rows: list[Sequence[str]] = [["t", "slots", *names, *extra, *costs]]
        for t, slots in enumerate(self.slots):
            row = [str(t + 1), str(slots), *(f"{self.steps[name][t]:.2%}" for name in names)]
            row += [] if self.agreement is None else [f"{self.agreement[t]:.2%}"]
            if self.energy is not None:
                e = self.energy
                row += [si(e.snn[t], "J"), e.ratio_text(t + 1), f"{e.spikes_per_neuron[t]:.3f}"]
            rows.append(row)
        if self.ann is not None:
            ann = ["ANN", "", *(f"{self.ann[name]:.2%}" for name in names), *("" for _ in extra)]
            rows.append([*ann, *([] if self.energy is None else [self.energy.ann_text, "", ""])])
        notes = [f"{self.samples} samples"]
        if self.energy is not None:
            notes += filter(None, [f"energy per sample, costs: {self.energy.costs_name}", self.energy.missing])
        return f"{columns(rows)}\n{'; '.join(notes)}"


class Evaluator:
    """Measures one batch at a time; the records of all batches, in any order, make up the result.

    The network may be a function that makes it, and is then made when the first batch needs it.
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
    ) -> None:
        self.task, self.model, self.inputs, self.targets = task_named(task), model, inputs, targets
        self.name = task if isinstance(task, str) else type(task).__name__
        self.costs = None if costs is None else costs_named(costs)
        self._network = network
        self.num_steps = self.network.config.num_steps if num_steps is None else num_steps

    @property
    def network(self) -> Network:
        """The network."""
        if not isinstance(self._network, Network):
            self._network = self._network()
        return self._network

    @cached_property
    def binder(self) -> Binder:
        return self.network.binder(self.inputs)

    @torch.no_grad()
    def measure(self, number: int, batch: Any) -> Record:
        """What there is to know of one batch."""
        (call,) = calls([batch], self.binder)
        target = _target(batch) if self.targets is None else self.targets(batch)
        tally = Tally(self.num_steps)
        if self.costs is None:
            answers = self.network.run(*call[0], num_steps=self.num_steps, **call[1])
        else:
            answers = metered_run(self.network, call, tally)
        each = [at_step(answers, t) for t in range(self.num_steps)]
        record: Record = {"batch": number, "samples": _length(target), "slots": self.network.slots(self.num_steps)}
        record["steps"] = [self.task.note(answer, target) for answer in each]
        if self.costs is not None:
            record["tally"] = tally.to_json()
        if self.model is not None:
            reference = self.model(*call[0], **call[1])
            record["ann"] = self.task.note(reference, target)
            record["same"] = [self.task.same(answer, reference) for answer in each]
        return record

    def result(self, records: Iterable[Record]) -> Evaluation:
        """The figures of all records, whose order does not matter."""
        found = sorted(records, key=lambda r: r["batch"])
        if not found:
            raise DataError("nothing was measured; give at least one batch")
        results = [self.task.result([r["steps"][t] for r in found]) for t in range(self.num_steps)]
        steps = {name: [result[name] for result in results] for name in self.task.metrics}
        ann = self.task.result([r["ann"] for r in found]) if "ann" in found[0] else None
        agreement = None
        if "same" in found[0]:
            sums = torch.tensor([r["same"] for r in found], dtype=torch.float64).sum(0)
            agreement = (sums[:, 0] / sums[:, 1].clamp_min(1)).tolist()
        energy, slots = None, found[0]["slots"]
        if self.costs is not None:
            tally = Tally(self.num_steps)
            for record in found:
                tally.merge(Tally.from_json(record["tally"]))
            energy = Energy(tally, *self.costs, slots)
        return Evaluation(self.name, sum(r["samples"] for r in found), slots, steps, ann, agreement, energy)


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
) -> Evaluation:
    """Run batches of (input, target) and score the answer after each step; with the `model`, beside it.

    `task` is "classification", "detection", "segmentation" or your own `Task`; `costs` price the operations (None
    leaves energy out); `inputs` and `targets` pick those out of a batch.
    """
    evaluator = Evaluator(
        network, task, model=model, costs=costs, num_steps=num_steps, inputs=inputs, targets=targets
    )  # fmt: skip
    return evaluator.result([evaluator.measure(i, batch) for i, batch in enumerate(data)])


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
