"""Reports with figures made up by hand, whose page can be worked out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from spikecast import Config
from spikecast.measure.intervals import Interval
from spikecast.measure.tasks import Metric
from spikecast.page import ReportData
from spikecast.page.data import Layer, NetworkData


def made_network(name: str, accuracy: float, ratio: float, burst: int = 1, **changes: object) -> NetworkData:
    """Two steps; the first is worse than the ANN, the second is not."""
    energies = {
        costs: {"ann": 2e-6, "snn": [k * 1e-6, k * ratio * 2e-6], "ratio": [k * ratio / 2, k * ratio]}
        for k, costs in enumerate(("paper", "honest", "full"), 1)
    }
    layer = Layer("a", "a", "conv2d", "", "synapse", "synapse", None, 10, None, None, None, None, {"paper": [1.0, 1.0]})
    steps = {"top1": [0.5, accuracy], "top5": [1.0, 1.0]}
    slots, seen = [burst, 2 * burst], dict[str, Any](graph=[], traces=[], examples=[], disagree=0)
    within = {"top1": [Interval(0.4, 0.6), Interval(accuracy - 0.125, 0.95)], "agreement": [Interval(0.45, 0.93)] * 2}
    less = [Interval(-0.5, -0.25), Interval(-0.125, 0.0625)]
    config = Config(num_steps=2, num_levels=2, burst=burst).to_json()
    made = NetworkData(
        name, config, slots, steps, [0.5, 0.9], within, less, energies, [0.5, 1], "s", 0.9, [layer], **seen
    )  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def made_report(**changes: object) -> ReportData:
    """Two networks, the second cheaper than the first."""
    networks = [made_network("one", 0.8, 0.5), made_network("two", 0.8, 0.25)]
    base = ReportData(
        title="Title", task="classification", metric="top1", how=Metric(), samples=1234, layer_samples=3,
        ann={"top1": 0.875}, ann_interval=Interval(0.855, 0.8925), networks=networks,
        traced=[], classes=[], command="spikecast report x", made="2026-01-01T00:00:00+00:00",
        versions={"torch": "2"},
    )  # fmt: skip
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def made_numbers(**changes: object) -> ReportData:
    """A report of a figure that is no share, of which less is better."""
    networks = [
        made_network(
            name,
            0.5,
            0.5,
            steps={"perplexity": [9.0, value]},
            intervals={"perplexity": [Interval(8.0, 10.0), Interval(value - 1, value + 1)], "agreement": [INSIDE] * 2},
            less_ann=[Interval(0.5, 6.5), Interval(low, 2.5)],
        )
        for name, value, low in (("more", 6.0, 0.25), ("less", 5.0, -0.25))
    ]
    given = {"metric": "perplexity", "how": Metric("", more=False), "ann": {"perplexity": 4.0}, "networks": networks}
    return made_report(**{**given, "ann_interval": Interval(3.0, 5.5), **changes})


INSIDE = Interval(0.45, 0.93)


@pytest.fixture
def network() -> Callable[..., NetworkData]:
    return made_network


@pytest.fixture
def report() -> Callable[..., ReportData]:
    return made_report


@pytest.fixture
def numbers() -> Callable[..., ReportData]:
    return made_numbers
