"""Random networks whose neurons are joined by linear ops: the event-driven simulator is the network, and its meter."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spikecast import convert
from spikecast.hardware.events.simulator import Simulator
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Tally
from tests.nets import Blocks
from tests.strategies import LINEAR_RECIPES, configs

CONFIGS = configs(6, (1, 3, 8), starts=(0.0, 0.5, -0.3), bursts=(1, 2, 4))


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=LINEAR_RECIPES, config=CONFIGS, seed=st.integers(0, 2**31))
@torch.no_grad()
def test_simulator_is_the_network(recipe, config, seed) -> None:
    torch.manual_seed(seed)
    x = torch.randn(2, 3, 6, 6).double()
    snn = convert(Blocks(recipe).eval().double(), [x], config)
    simulator, tally = Simulator(snn), Tally(config.num_steps)
    expected = metered_run(snn, ((x,), {}), tally)
    assert torch.allclose(simulator.run(x), expected, atol=1e-9)
    for column in ("events", "spikes", "analog", "fired"):
        theirs = {op: line.columns[column] for op, line in tally.lines.items() if column in line.columns}
        mine = {op: found[column] for op, found in simulator.counts.items() if column in found}
        assert {op: numbers + [0] * (6 - len(numbers)) for op, numbers in mine.items()} == theirs
