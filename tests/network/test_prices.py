"""What a spike of a site costs, against hand counts and against the products of the ANN."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.costs import COSTS
from spikecast.graph.reach import reach
from spikecast.network.counting.wiring import wiring
from spikecast.network.prices import spike_prices
from tests.nets import COUNTED, sparse

QUICK = Config(num_steps=1, num_levels=3, thresholds="quantile")


def converted(model, x):
    torch.manual_seed(1)
    return spikecast.convert(model.eval(), [x], QUICK)


def test_borders_are_exact() -> None:
    # A 3 x 3 filter over 4 x 4 with padding: corners are read 4 times, edges 6, the inside 9 times; two filters.
    model = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Conv2d(1, 2, 3, padding=1))
    snn = converted(model, sparse(1, 4, 4))
    own = reach(snn.plan.program)["1"]
    assert own.synapses == pytest.approx(2 * (4 * 4 + 8 * 6 + 4 * 9) / 16)
    macs = 100 + 200  # of both convolutions
    assert spike_prices(snn.plan.program, COSTS["paper"])["1"] == pytest.approx(12.5 * 0.9 / (4.6 * macs))


def test_an_averaged_spike_is_the_spike_it_is() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3))
    own = reach(converted(model, sparse(1, 4, 4)).plan.program)["1"]
    assert own.synapses == pytest.approx(3)  # it reaches one average, and that three outputs


def test_a_product_is_paid_with_the_partners_spikes() -> None:
    class Gram(nn.Module):
        def forward(self, x):
            return torch.relu(x) @ torch.tanh(x).transpose(1, 2)

    snn = converted(Gram(), torch.randn(2, 5, 7))
    (first, own), (second, other) = reach(snn.plan.program).items()
    assert own.synapses == other.synapses == 0
    assert list(own.partners.values()) == list(other.partners.values()) == [5]
    macs = 5 * 5 * 7
    prices = spike_prices(snn.plan.program, COSTS["paper"], pulses={first: 0.5, second: 3.0})
    assert prices[first] == pytest.approx(5 * 3.0 * 0.9 / (4.6 * macs))
    assert prices[second] == pytest.approx(5 * 0.5 * 0.9 / (4.6 * macs))
    later = spike_prices(snn.plan.program, COSTS["paper"], pulses={second: 3.0}, num_steps=2)
    assert later[first] == pytest.approx(5 * (3.0 + 1) / 2 * 0.9 / (4.6 * macs))  # half of the steps meet what is held


def test_all_spikes_together_are_the_products() -> None:
    """Where spikes go straight to weighted ops, one spike of every neuron pays for every product, on both sides."""
    checked = 0
    for make, size, given in COUNTED.values():
        torch.manual_seed(1)
        config = Config(**{"num_steps": 2, "num_levels": 3, "thresholds": "quantile", **given})
        snn = spikecast.convert(make().eval(), [sparse(*size)], config)
        flow = snn.plan.program.flow
        fed = {name: [o.name in flow.spikes for o in operands] for name, operands in flow.operands.items() if operands}
        if wiring(snn.plan.program).moving or any(len(set(each)) == 2 for each in fed.values()):
            continue
        checked += 1
        products = sum(flow.macs[name] * len(each) for name, each in fed.items() if all(each))
        total = 0.0
        for site, own in reach(snn.plan.program).items():
            neurons = torch.Size(snn.sites[site].meta.shape).numel() / flow.samples
            total += neurons * (own.synapses + sum(own.partners.values()))
        assert total == pytest.approx(products)
    assert checked >= 10
