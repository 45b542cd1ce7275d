"""A task of one's own, by two functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spikecast.measure.tasks import Metric
from spikecast.measure.tasks.reconstruct import Reconstruction


@dataclass(frozen=True)
class OwnTask:
    """A task of your own: what to note of each sample of a batch, and the score of any notes.

    Args:
        note: note(answer, target) gives a list with one entry for each sample: plain data for JSON.
        score: score(notes) gives the figure.
        name: The name of the figure.
        metric: How it is read: a share in "%" or a number "", and whether more is better.
        agree: agree(answer, reference) gives (how much is like the ANN's answer, of how much) for each sample. Unless
            given, what counts is how much of the ANN's answer, all its tensors together, is there.
        draws: How often samples are drawn anew for an interval.

    Example:
        >>> def note(answer, target):
        ...     return (answer.argmax(1) - target).abs().tolist()
        >>> distance = measure.OwnTask(note, lambda notes: sum(notes) / len(notes), name="distance")
        >>> list(measure.evaluate(snn, [(x, labels)], distance).steps)
        ['distance']
    """

    note: Callable[[Any, Any], list[Any]]
    score: Callable[[Sequence[Any]], float]
    name: str = "score"
    metric: Metric = field(default_factory=Metric)
    agree: Callable[[Any, Any], list[tuple[float, float]]] = field(default_factory=lambda: Reconstruction().same)
    draws: int = 400

    @property
    def metrics(self) -> dict[str, Metric]:
        return {self.name: self.metric}

    def notes(self, answer: Any, target: Any) -> list[Any]:
        return self.note(answer, target)

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        return self.agree(answer, reference)

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        return {self.name: float(self.score(notes))}
