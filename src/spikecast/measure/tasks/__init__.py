"""What a network is asked to do, and how its answers are scored. A note on one sample is plain JSON data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from spikecast.errors import ConfigError


class Task(Protocol):
    """Scores answers: notes of all samples, in their order, give the result."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the figures in a result, the most important one first."""

    @property
    def draws(self) -> int:
        """How often samples are drawn anew for an interval; 0 where a note is 0 or 1 for each metric, a share."""

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """What there is to know of the answer to each sample of a batch."""

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        """How much of the answer to each sample agrees with the ANN's, and of how much."""

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        """The figures."""


def _classification() -> Task:
    from spikecast.measure.tasks.classify import Classification

    return Classification()


def _segmentation() -> Task:
    from spikecast.measure.tasks.segment import Segmentation

    return Segmentation()


def _detection() -> Task:
    from spikecast.measure.tasks.detect import Detection

    return Detection()


TASKS: dict[str, Callable[[], Task]] = {
    "classification": _classification,
    "segmentation": _segmentation,
    "detection": _detection,
}


def task_named(task: str | Task) -> Task:
    """A task by its name, or the task itself."""
    if not isinstance(task, str):
        return task
    if task not in TASKS:
        raise ConfigError(f"task={task!r} is not one of {', '.join(TASKS)}")
    return TASKS[task]()
