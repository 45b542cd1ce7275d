"""What the counts cost: prices worked out by hand, tables, mistakes; networks converted by region."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError, DataError
from spikecast.measure import Costs, Energy, energy
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Line, Tally
from spikecast.text import si

T = 4


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 2, 7, 6)


@pytest.fixture
def snn(x: Tensor) -> spikecast.SpikingNetwork:
    layers = (nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 2, stride=2))
    return spikecast.convert(nn.Sequential(*layers).eval(), [x], Config(num_steps=T, thresholds="quantile"))


def test_costs_by_hand() -> None:
    """One linear layer of two neurons that read a mean: every number worked out on paper."""
    layer = nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.fill_(0.0)
    model = nn.Sequential(nn.ReLU(), nn.AvgPool1d(2), layer).eval()
    x = torch.tensor([[[1.0, 1.0]]])
    snn = spikecast.convert(model, [x], Config(num_steps=2, num_levels=1, burst=1, thresholds="quantile"))
    found = energy(snn, [x])  # both neurons fire 1 at the first step and are silent at the second
    assert found.macs == 2
    assert found.accumulates == [2, 0]
    assert found.ann == pytest.approx(2 * 4.6e-12)
    assert found.snn == pytest.approx([2 * 0.9e-12] * 2)
    assert found.ratio == pytest.approx([2 * 0.9 / (2 * 4.6)] * 2)
    assert found.spikes_per_neuron == [1.0, 1.0]
    assert found.under("honest").accumulates == [4, 0]
    full = 4 * 0.9 + 2 * 4 * 0.9 + 2 * 0.9  # two spikes for two outputs, two neurons, two biases
    assert found.under("full").snn == pytest.approx([full * 1e-12, (full + 2 * 4 * 0.9) * 1e-12])
    assert found.under(Costs(weight=1.0)).snn == pytest.approx([2 * 1.9e-12] * 2)


def test_a_product_of_activations_by_hand() -> None:
    """Three products a step in the paper's costs (Thm 4.3), the two that would do in the full ones."""
    lines = {
        "matmul": Line("attention", "matmul", {"dense": [8, 0], "events": [9, 7], "two": [6, 5]}),
        "softmax": Line("attention", "softmax", {"graded": [4, 4]}),
    }
    found = Energy(Tally(2, 1, lines), Costs(), "paper", [1, 2])
    assert [found.under(costs).accumulates for costs in ("paper", "honest", "full")] == [[9, 7], [9, 7], [6, 5]]
    assert found.snn == pytest.approx([9 * 0.9e-12, 16 * 0.9e-12])
    assert found.under("full").snn == pytest.approx([(6 * 0.9 + 4 * 4.6) * 1e-12, (11 * 0.9 + 8 * 4.6) * 1e-12])


def test_analog_input_is_charged_as_it_is(snn, x) -> None:
    found = energy(snn, [x])
    first = next(line for line in found.tally.lines.values() if "analog" in line.columns)
    assert first["analog"].tolist()[1:] == [0, 0, 0]
    events = first["analog"][0].item()
    more = found.under("honest").snn[0] - found.snn[0]
    assert more == pytest.approx(events * (4.6 - 0.9) * 1e-12 / 2)


def test_table_and_json(snn, x) -> None:
    found = energy(snn, [(x, torch.zeros(2)), x], num_steps=3)
    assert isinstance(found, Energy)
    assert found.tally.samples == 4
    text = found.table(ops=True)
    assert "paper" in text
    assert "conv2d" in text
    shares = [float(line.split()[-1].rstrip("%")) for line in text.split("\n\n")[1].splitlines()[1:]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=1)
    last = found.table().splitlines()[3].split()
    assert last[2] == si(found.spikes[-1]).split()[0]
    assert found.spikes[-1] * 4 == sum(int(line["fired"].sum()) for line in found.tally.lines.values())
    assert len(found.table().splitlines()) == 5
    data = json.loads(json.dumps(found.to_json()))
    assert data["samples"] == 4
    assert len(data["ratio"]) == 3
    assert sum(sum(row["joules"]) for row in data["rows"]) == pytest.approx(found.snn[-1])


def test_ops_are_called_by_what_they_are(x) -> None:
    """A convolution that has taken in a BatchNorm is a convolution."""
    model = nn.Sequential(nn.Conv2d(x.shape[1], 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
    model(x)
    found = energy(spikecast.convert(model.eval(), [x]), [x])
    rows = [line.split() for line in found.table(ops=True).split("\n\n")[1].splitlines()[1:]]
    assert sorted((where, op) for where, op, *_ in rows) == [("0", "conv2d"), ("4", "linear")]


def test_neurons_are_called_by_their_site(x) -> None:
    """Also those that stand before an op, in no module; of regions each by its whole name."""
    model = nn.Sequential(nn.Conv2d(x.shape[1], 4, 3), nn.GELU(), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 1))
    for regions in (None, ["2", "4"]):
        network = spikecast.convert(model.eval(), [x], regions=regions)
        rows = [line.split()[:2] for line in energy(network, [x], "full").table(ops=True).splitlines()]
        assert {row[0] for row in rows if row[1:] == ["neurons"]} == set(network.sites)


def test_mistakes(snn, x) -> None:
    with pytest.raises(ConfigError, match="'cheap' is not one of paper, honest, full"):
        energy(snn, [x], "cheap")
    with pytest.raises(ConfigError, match="accumulate=-1"):
        Costs(accumulate=-1)
    with pytest.raises(DataError, match="yielded no batch"):
        energy(snn, [])
    with pytest.raises(DataError, match="holds NaN"):
        energy(snn, [x * torch.nan])


def test_regions_are_counted(x) -> None:
    """A region counts as the same module alone does, and is called twice a step here."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) + self.body(x.flip(-1))

    model = Twice().eval()
    config = Config(num_steps=T, num_levels=3, thresholds="quantile")
    snn = spikecast.convert(model, [x], config, regions=["body"])
    tally, alone = Tally(T), Tally(T)
    answers = metered_run(snn, ((x,), {}), tally)
    assert all(torch.equal(a, b) for a, b in zip(answers, snn.run(x), strict=True))
    body = snn.networks["body"]
    for part in (x, x.flip(-1)):
        metered_run(body, ((part,), {}), alone)
    assert all(name.startswith("body.") for name in tally.lines)
    assert {n: line.columns for n, line in tally.lines.items()} == {n: line.columns for n, line in alone.lines.items()}
