"""Figures of notes on the same samples: of each step, of the ANN, and of two of them side by side, with intervals."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from spikecast.measure.intervals import Interval, Score, bootstrap, mean, paired_bootstrap, paired_share, share
from spikecast.measure.tasks import Task

DRAWS = 400  # of agreement, where it is not a share of samples
DRAWS_OF_MEANS = 2000  # which are fast
# One sample cannot be drawn anew, so nothing is known: of a share, and of a number (inf has no word in JSON).
ALL, LARGEST = Interval(0.0, 1.0), sys.float_info.max
Pair = tuple[float, float]


@dataclass(frozen=True)
class Scores:
    """The notes of a task on each sample after each step; of the ANN, and how much the two agree, where it was run."""

    task: Task
    notes: list[list[Any]]
    ann: list[Any] | None
    same: list[list[Pair]] | None

    def halves(self) -> tuple[Scores, Scores]:
        """Of every other sample, and of the rest: to choose on the first, and report on the second.

        Every other, as data may come class by class. One sample is in both.
        """
        if len(self.notes[0]) < 2:
            return self, self
        first, second = (slice(start, None, 2) for start in (0, 1))
        return self._of(first), self._of(second)

    def _of(self, samples: slice) -> Scores:
        return Scores(
            self.task,
            [notes[samples] for notes in self.notes],
            None if self.ann is None else self.ann[samples],
            None if self.same is None else [pairs[samples] for pairs in self.same],
        )

    def steps(self) -> dict[str, list[float]]:
        """Every figure after each step."""
        results = [self.task.result(notes) for notes in self.notes]
        return {name: [result[name] for result in results] for name in self.task.metrics}

    def of_ann(self) -> dict[str, float] | None:
        return None if self.ann is None else self.task.result(self.ann)

    def agreement(self) -> list[float] | None:
        return None if self.same is None else [_part(pairs) for pairs in self.same]

    def intervals(self) -> dict[str, list[Interval]]:
        """Of every figure after each step, of the ANN's figures in their order, and of the agreement."""
        found = {name: [self._interval(i, notes) for notes in self.notes] for i, name in enumerate(self.task.metrics)}
        if self.ann is not None:
            found["ann"] = [self._interval(i, self.ann) for i in range(len(self.task.metrics))]
        if self.same is not None:
            found["agreement"] = [_of_agreement(pairs) for pairs in self.same]
        return found

    def less_ann(self) -> dict[str, list[Interval]] | None:
        """Of every figure less the ANN's, after each step."""
        return None if self.ann is None else self._less([self.ann] * len(self.notes))

    def less(self, other: Scores) -> dict[str, Interval]:
        """Of every figure less that of another network on the same samples, both after their last step."""
        last = Scores(self.task, self.notes[-1:], None, None)
        return {name: found[0] for name, found in last._less(other.notes[-1:]).items()}

    def readings(self) -> tuple[Score, list[list[Any]], int]:
        """A score of the first figure, of which more is better, the notes it takes after each step, and its draws."""
        name, how = next(iter(self.task.metrics.items()))
        if self.task.draws == 0 and how.more:
            return mean, [[note[0] for note in notes] for notes in self.notes], DRAWS_OF_MEANS
        sign = 1 if how.more else -1
        return lambda notes: sign * self.task.result(notes)[name], self.notes, self.task.draws or DRAWS

    def _less(self, others: Sequence[list[Any]]) -> dict[str, list[Interval]]:
        return {
            name: [self.difference(i, a, b) for a, b in zip(self.notes, others, strict=True)]
            for i, name in enumerate(self.task.metrics)
        }

    def _interval(self, metric: int, notes: list[Any]) -> Interval:
        if self.task.draws == 0:
            return share(sum(note[metric] for note in notes), len(notes))
        if len(notes) < 2:
            return ALL if self._is_share(metric) else Interval(0.0, LARGEST)
        return bootstrap(lambda drawn: self._figure(metric, drawn), notes, draws=self.task.draws)

    def difference(self, metric: int, first: list[Any], second: list[Any]) -> Interval:
        """Of a figure, by its place, of some notes less that of others on the same samples."""
        if self.task.draws == 0:
            ours, theirs = (torch.tensor([bool(note[metric]) for note in notes]) for notes in (first, second))
            return paired_share(ours, theirs).interval
        if len(first) < 2:
            return Interval(-1.0, 1.0) if self._is_share(metric) else Interval(-LARGEST, LARGEST)
        return paired_bootstrap(lambda drawn: self._figure(metric, drawn), first, second, draws=self.task.draws)

    def _is_share(self, metric: int) -> bool:
        return list(self.task.metrics.values())[metric].unit == "%"

    def _figure(self, metric: int, notes: Sequence[Any]) -> float:
        return self.task.result(notes)[list(self.task.metrics)[metric]]


def _part(pairs: Sequence[Pair]) -> float:
    return math.fsum(pair[0] for pair in pairs) / max(math.fsum(pair[1] for pair in pairs), 1.0)


def _of_agreement(pairs: list[Pair]) -> Interval:
    if all(whole == 1 and part in (0, 1) for part, whole in pairs):
        return share(sum(part for part, _ in pairs), len(pairs))
    return bootstrap(_part, pairs, draws=DRAWS) if len(pairs) > 1 else ALL
