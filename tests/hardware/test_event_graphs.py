"""Random networks whose neurons are joined by linear ops: the event-driven simulator is the network, and its meter."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.network.test_random_graphs import Net

from spikecast import Config, convert
from spikecast.hardware.events.simulator import Simulator
from spikecast.measure.energy.tally import Tally
from spikecast.measure.run import metered_run

BENDS = st.sampled_from(["relu", "relu6", "clamp", None])
BETWEEN = st.sampled_from(["average", None, None])
WEIGHTS = st.sampled_from(["conv", "grouped", "norm", "up"])
JOINS = st.tuples(st.sampled_from(["add", "concat"]), st.integers(0, 7))
RECIPES = st.lists(st.tuples(BENDS, BETWEEN, st.one_of(WEIGHTS, JOINS)), min_size=1, max_size=4).map(
    lambda steps: [block for step in steps for block in step if block]
)
CONFIGS = st.builds(
    Config,
    num_steps=st.just(6),
    num_levels=st.sampled_from([1, 3, 8]),
    coding=st.sampled_from(["differential", "differential", "rate"]),
    thresholds=st.sampled_from(["auto", "quantile"]),
    granularity=st.sampled_from(["channel", "layer", "neuron"]),
    initial_potential=st.sampled_from([0.0, 0.5, -0.3]),
    encode_input=st.booleans(),
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=RECIPES, config=CONFIGS, seed=st.integers(0, 2**31))
@torch.no_grad()
def test_simulator_is_the_network(recipe, config, seed) -> None:
    torch.manual_seed(seed)
    x = torch.randn(2, 3, 6, 6).double()
    snn = convert(Net(recipe).eval().double(), [x], config)
    simulator, tally = Simulator(snn), Tally(config.num_steps)
    expected = metered_run(snn, ((x,), {}), tally)
    assert torch.allclose(simulator.run(x), expected, atol=1e-9)
    for column in ("events", "spikes", "analog", "fired"):
        theirs = {op: line.columns[column] for op, line in tally.lines.items() if column in line.columns}
        mine = {op: found[column] for op, found in simulator.counts.items() if column in found}
        assert {op: numbers + [0] * (6 - len(numbers)) for op, numbers in mine.items()} == theirs
