"""What a network is asked to do, and how its answers are scored. A note on one sample is plain JSON data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from spikecast.errors import ConfigError, run_own

Decode = Callable[[Any], Any]


class Metric(NamedTuple):
    """How a figure is read.

    Args:
        unit: "%" for a share from 0 to 1, "" for any other number.
        more: Whether more of it is better.
        logarithmic: Whether its logarithm is a mean over the samples, as that of perplexity is. Methods are then
            compared by the logarithm.

    Example:
        >>> measure.Metric().text(0.934)
        '93.40%'
        >>> measure.Metric("", more=False).text(3.3255)
        '3.325'
    """

    unit: Literal["%", ""] = "%"
    more: bool = True
    logarithmic: bool = False

    def text(self, value: float, digits: int = 2) -> str:
        """The figure as tables show it."""
        return f"{value:.{digits}%}" if self.unit else f"{value:.{digits + 2}g}"


@runtime_checkable
class Task(Protocol):
    """Scores answers: notes of all samples, in their order, give the result. `OwnTask` makes one of two functions.

    Example:
        >>> isinstance(measure.Detection(), measure.Task)
        True
    """

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The figures in a result by name, the most important one first."""

    @property
    def draws(self) -> int:
        """How often samples are drawn anew for an interval; 0 where a note is 0 or 1 for each metric, a share."""

    def notes(self, answer: Any, target: Any) -> list[Any]:
        """What there is to know of the answer to each sample of a batch."""

    def same(self, answer: Any, reference: Any) -> list[tuple[float, float]]:
        """How much of the answer to each sample agrees with the ANN's, and of how much."""

    def result(self, notes: Sequence[Any]) -> dict[str, float]:
        """The figures."""


def decoded(decode: Decode | None, answer: Any) -> Any:
    """The answer as a task scores it, made out of what the model returns."""
    return answer if decode is None else run_own("decode fails on an answer", lambda: decode(answer))


def _classification() -> Task:
    from spikecast.measure.tasks.classify import Classification

    return Classification()


def _segmentation() -> Task:
    from spikecast.measure.tasks.segment import Segmentation

    return Segmentation()


def _detection() -> Task:
    from spikecast.measure.tasks.detect import Detection

    return Detection()


def _language() -> Task:
    from spikecast.measure.tasks.language import Language

    return Language()


def _reconstruction() -> Task:
    from spikecast.measure.tasks.reconstruct import Reconstruction

    return Reconstruction()


TASKS: dict[str, Callable[[], Task]] = {
    "classification": _classification,
    "segmentation": _segmentation,
    "detection": _detection,
    "language": _language,
    "reconstruction": _reconstruction,
}


def task_named(task: str | Task) -> Task:
    """A task by its name, or the task itself."""
    if not isinstance(task, str):
        return task
    if task not in TASKS:
        raise ConfigError(f"task={task!r} is not one of {', '.join(TASKS)}")
    return TASKS[task]()
