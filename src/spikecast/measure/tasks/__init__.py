"""What a network is asked to do, and how its answers are scored. A note on one batch is plain JSON data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from spikecast.errors import ConfigError


class Task(Protocol):
    """Scores answers: notes of all batches, in their order, give the result."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the figures in a result, the most important one first."""

    def note(self, answer: Any, target: Any) -> Any:
        """What there is to know of the answer to one batch."""

    def same(self, answer: Any, reference: Any) -> tuple[float, float]:
        """How much of an answer agrees with the ANN's, and of how much."""

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
