"""What the head of the page speaks of: from which step on the answers are as good as the ANN's, at the least energy."""

from __future__ import annotations

from dataclasses import dataclass

from spikecast.measure.intervals import Interval
from spikecast.page.data import NetworkData, ReportData

WHOLE = Interval(-1.0, 1.0)  # of the difference of two shares of one sample: any difference


@dataclass(frozen=True)
class Headline:
    """A network, by its place in the report, and a step of it, counted from 1.

    `holds` says that from this step on its answers are as good as the ANN's within the interval; else it is the step
    that comes nearest. `known` is False where there are too few samples for any interval.
    """

    place: int
    step: int
    holds: bool
    known: bool = True


def from_step(network: NetworkData) -> int | None:
    """The first step from which on, at it and at all later ones, 0 lies in the interval of the distance from the ANN.

    An interval that holds every number tells nothing, and does not count.
    """
    found = None
    for step in range(len(network.less_ann), 0, -1):
        interval = network.less_ann[step - 1]
        if _tells_nothing(interval) or not interval.holds(0.0):
            break
        found = step
    return found


def headline(report: ReportData, costs: str) -> Headline:
    """The network that is as good as the ANN at the least energy under these costs; where none is, the nearest step.

    Of networks that need equal energy it is the first of the report.
    """
    spent = [network.energy[costs]["snn"] for network in report.networks]
    steps = [from_step(network) for network in report.networks]
    good = [(spent[i][step - 1], i, step) for i, step in enumerate(steps) if step is not None]
    if good:
        _, place, step = min(good)
        return Headline(place, step, holds=True)
    ann = report.ann[report.metric]
    distances = [
        (abs(value - ann), spent[i][t], i, t + 1)
        for i, network in enumerate(report.networks)
        for t, value in enumerate(network.steps[report.metric])
    ]
    *_, place, step = min(distances)
    known = any(not _tells_nothing(interval) for network in report.networks for interval in network.less_ann)
    return Headline(place, step, holds=False, known=known)


def _tells_nothing(interval: Interval) -> bool:
    return interval.is_unknown or interval == WHOLE
