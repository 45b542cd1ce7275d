"""Random small networks: with its neurons off the network is the model, and with them on it comes ever closer."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spikecast import convert
from spikecast.graph.program import NEURON
from tests.nets import Blocks, stir_norms
from tests.strategies import RECIPES, configs

# What passes spikes on: it moves or averages them.
MOVES = ("cat", "avg_pool", "mean", "reshape", "transpose", "permute", "slice", "select", "expand", "split", "flatten")
WEIGHTED = ("conv", "linear", "matmul", "bmm", "einsum")


def assert_fed_by_spikes(snn) -> None:
    """By a walk of its own: behind every weighted op lie neurons, or the image itself."""
    program = snn.plan.program
    nodes = {n.name: n for n in program.nodes}
    image = {i.name for i in program.inputs} if not snn.config.encode_input else set()

    def sent(name) -> bool:
        node = nodes.get(name)
        if node is None:
            return name in image
        if node.target == NEURON:
            return True
        sources = [r for r in node.inputs if r not in program.tensors and nodes.get(r, node).meta is not None]
        moves = node.target == "getitem" or any(m in node.op for m in MOVES)
        return moves and all(sent(r) for r in sources)

    weighted = [n for n in nodes.values() if any(w in n.op for w in WEIGHTED)]
    assert weighted
    for node in weighted:
        for name in node.inputs:
            if name not in program.tensors:
                assert sent(name), f"{node.op} in {node.scope} reads {name}"


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=RECIPES, config=configs(4, (3, 8)), seed=st.integers(0, 2**31))
@torch.no_grad()
def test_random_networks(recipe, config, seed) -> None:
    torch.manual_seed(seed)
    model = stir_norms(Blocks(recipe).eval().double())  # in float64 no spike hangs on the last bit
    x = torch.randn(6, 3, 6, 6).double()
    expected = model(x)
    snn = convert(model, [x], config, strict=True)

    def error(answer):
        return float(((answer - expected).norm(dim=1) / expected.norm(dim=1)).median())

    assert error(snn.analog(x)) <= 1e-5
    folded = snn.run(x, num_steps=32)
    stepwise = torch.stack([y for _, y in snn.steps(x, num_steps=4)])
    assert snn.foldable
    assert torch.allclose(folded[:4], stepwise, atol=1e-8)
    assert torch.allclose(snn.run(x, max_batch=8), stepwise, atol=1e-8)
    assert error(folded[31]) < max(error(folded[1]), 0.02)  # where all but the biases is small, T = 2 may be lucky
    assert_fed_by_spikes(snn)
