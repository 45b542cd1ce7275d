"""A network with other settings, without capturing the model again: what converting anew would give, to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.conversion import prepare
from spikecast.errors import ConfigError
from spikecast.network.report import Report

X = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
FIRST = Config(num_steps=3, num_levels=4, burst=1)
OTHERS = [
    Config(num_steps=2, num_levels=8, burst=3),
    Config(num_steps=8, burst=1, coding="rate", thresholds="quantile", granularity="layer"),
    Config(num_steps=1, energy_budget=0.3),
    Config(num_steps=2, burst=1, overrides={"body.1": {"burst": 2, "num_levels": 3}}),
]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU())
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return out


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.parametrize("config", OTHERS)
@pytest.mark.parametrize("regions", [None, ["body"]])
def test_it_is_what_converting_anew_gives(model, config, regions, monkeypatch) -> None:
    first = spikecast.convert(model, [X], FIRST, regions=regions)
    before = first.run(X)
    wanted = spikecast.convert(model, [X], config, regions=regions)
    monkeypatch.setattr(prepare, "capture", None)  # whoever captures fails
    found = first.reconfigure(config, [X])
    assert type(found) is type(first)
    assert found.config == config
    assert found.neurons == wanted.neurons
    assert torch.equal(found.run(X), wanted.run(X))
    assert torch.equal(first.run(X), before)
    assert first.config == FIRST


def test_weights_are_those_of_the_network_now(model) -> None:
    first = spikecast.convert(model, [X], FIRST)
    state = first.state_dict()
    first.load_state_dict({name: 2 * value if name.startswith("weights") else value for name, value in state.items()})
    found = first.reconfigure(FIRST, [X])
    assert torch.equal(found.analog(X), first.analog(X))


def test_a_loaded_network_can_be_reconfigured(model, tmp_path) -> None:
    spikecast.convert(model, [X], FIRST).save(tmp_path / "net")
    found = spikecast.load(tmp_path / "net").reconfigure(OTHERS[0], [X])
    assert torch.equal(found.run(X), spikecast.convert(model, [X], OTHERS[0]).run(X))


@pytest.mark.parametrize("config", [Config(encode_input=True), Config(overrides={"body.1": None})])
def test_neurons_stay_where_they_are(model, config) -> None:
    with pytest.raises(ConfigError, match="convert the model again"):
        spikecast.convert(model, [X], FIRST).reconfigure(config, [X])


def test_the_report_knows_how_many_samples_thresholds_came_from(model: nn.Module) -> None:
    snn = spikecast.convert(model, [X[:4], X[4:]], FIRST)
    assert snn.report.calibrated == 6
    assert snn.reconfigure(OTHERS[0], [X[:2]]).report.calibrated == 2
    assert snn.report.calibrated == 6
    assert Report.from_json(snn.report.to_json()) == snn.report
    parts = spikecast.convert(model, [X[:4], X[4:]], FIRST, regions=["body"])
    assert parts.report.calibrated == 6
