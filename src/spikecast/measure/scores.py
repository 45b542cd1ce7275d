"""Figures of notes on the same samples: of each step, of the ANN, and of two of them side by side, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import DataError
from spikecast.measure.intervals import UNKNOWN, Interval, Score, mean, middle, paired_share, redrawn, share
from spikecast.measure.tasks import Task

DRAWS = 400  # of agreement, where it is not a share of samples
DRAWS_OF_MEANS = 2000  # which are fast
ALL = Interval(0.0, 1.0)  # what is known of a share of one sample, which cannot be drawn anew
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
        steps = [self._intervals(notes, drawn) for notes, drawn in zip(self.notes, self._drawn, strict=True)]
        found = {name: [step[i] for step in steps] for i, name in enumerate(self.task.metrics)}
        if self.ann is not None:
            found["ann"] = self._intervals(self.ann, self._ann_drawn)
        if self.same is not None:
            found["agreement"] = [_of_agreement(pairs) for pairs in self.same]
        return found

    def less_ann(self) -> dict[str, list[Interval]] | None:
        """Of every figure minus the ANN's, after each step."""
        if self.ann is None:
            return None
        steps = [
            self._differences(notes, self.ann, drawn, self._ann_drawn)
            for notes, drawn in zip(self.notes, self._drawn, strict=True)
        ]
        return {name: [step[i] for step in steps] for i, name in enumerate(self.task.metrics)}

    def less(self, other: Scores, steps: tuple[int, int] = (0, 0)) -> dict[str, Interval]:
        """Of every figure less that of another network on the same samples, after so many steps of each; 0: all."""
        ours, theirs = (step - 1 for step in steps)
        found = self._differences(self.notes[ours], other.notes[theirs], self._drawn[ours], other._drawn[theirs])
        return dict(zip(self.task.metrics, found, strict=True))

    def readings(self) -> tuple[Score, list[list[Any]], int]:
        """A score of the first figure, of which more is better, the notes it takes after each step, and its draws.

        Two settings that share the samples have the mean of their scores. For a figure that is `logarithmic`, as
        perplexity is, that is true of its logarithm.
        """
        name, how = next(iter(self.task.metrics.items()))
        if self.task.draws == 0 and how.more:
            return mean, [[note[0] for note in notes] for notes in self.notes], DRAWS_OF_MEANS
        sign = 1 if how.more else -1

        def score(notes: Sequence[Any]) -> float:
            figure = self.task.result(notes)[name]
            return sign * (math.log(figure) if how.logarithmic else figure)

        return score, self.notes, self.task.draws or DRAWS

    # All samples are drawn anew once, the same for each step and the ANN, and every figure is read off the same draws.

    @cached_property
    def _drawn(self) -> list[Tensor | None]:
        return [self._figures(notes) for notes in self.notes]

    @cached_property
    def _ann_drawn(self) -> Tensor | None:
        return None if self.ann is None else self._figures(self.ann)

    def _figures(self, notes: list[Any]) -> Tensor | None:
        """Every figure of each draw, [draws, figures]; None where there is nothing to draw: shares, or one sample."""
        if self.task.draws == 0 or len(notes) < 2:
            return None
        return redrawn(self._values, notes, draws=self.task.draws)

    def _values(self, notes: Sequence[Any]) -> list[float]:
        result = self.task.result(notes)
        return [result[name] for name in self.task.metrics]

    def _intervals(self, notes: list[Any], drawn: Tensor | None) -> list[Interval]:
        """Of each figure."""
        units = [metric.unit for metric in self.task.metrics.values()]
        if drawn is not None:
            figures = zip(units, drawn.T, strict=True)
            return [_of_share(column, len(notes)) if unit == "%" else middle(column) for unit, column in figures]
        if self.task.draws == 0:
            return [share(sum(note[i] for note in notes), len(notes)) for i in range(len(units))]
        return [ALL if unit == "%" else UNKNOWN for unit in units]

    def _differences(
        self, first: list[Any], second: list[Any], ours: Tensor | None, theirs: Tensor | None
    ) -> list[Interval]:
        """Of each figure of the first notes less that of the second."""
        if len(first) != len(second):
            raise DataError(f"{len(first)} samples against {len(second)}; measure both networks on the same samples")
        if ours is not None and theirs is not None:
            return [middle(column) for column in (ours - theirs).T]
        if self.task.draws == 0:
            a, b = (torch.tensor(notes, dtype=torch.bool) for notes in (first, second))
            return [paired_share(a[:, i], b[:, i]).interval for i in range(len(self.task.metrics))]
        return [Interval(-1.0, 1.0) if metric.unit == "%" else UNKNOWN for metric in self.task.metrics.values()]


def _part(pairs: Sequence[Pair]) -> float:
    return math.fsum(pair[0] for pair in pairs) / max(math.fsum(pair[1] for pair in pairs), 1.0)


def _of_agreement(pairs: list[Pair]) -> Interval:
    if all(whole == 1 and part in (0, 1) for part, whole in pairs):
        return share(sum(part for part, _ in pairs), len(pairs))
    samples = sum(whole > 0 for _, whole in pairs)
    return _of_share(redrawn(_part, pairs, draws=DRAWS), samples) if samples > 1 else ALL


def _of_share(drawn: Tensor, samples: int) -> Interval:
    """Of a figure from 0 to 1, by its draws. Where all are 0 or all are 1, draws say nothing of samples not seen.

    Then it is as with a share of samples: if the mean of the samples' own shares is m, all of them are 1 with a chance
    of m**samples at most, which is the chance that so many are right.
    """
    ends = drawn.unique().tolist()
    return share(ends[0] * samples, samples) if ends in ([0.0], [1.0]) else middle(drawn)
