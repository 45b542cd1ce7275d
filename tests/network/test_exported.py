"""torch.export.export(snn, ...): plain ops that answer as the network does, to the bit and for any batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.errors import DataError, ModelError

FREE = torch.export.Dim.DYNAMIC


class Net(nn.Module):
    """A rectifier, a clamp, identity neurons and a nonlinear op, with an answer that holds more than a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, object]:
        tokens = self.norm(self.conv(x).relu().flatten(2).transpose(1, 2))
        return {"scores": self.head(tokens.clamp(-0.5, 0.5)).mean(1), "name": "net"}


def converted(dtype: torch.dtype = torch.float32, **settings) -> tuple[spikecast.SpikingNetwork, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(3, 2, 4, 4, dtype=dtype)
    config = Config(num_steps=2, thresholds="quantile", **settings)
    return spikecast.convert(Net().eval().to(dtype), [x], config), torch.randn(5, 2, 4, 4, dtype=dtype)


@pytest.mark.parametrize(
    "settings",
    [{}, {"coding": "rate", "signed": False, "burst": 1, "firing_boundary": 1.0}, {"num_levels": 14, "leak": 0.1}],
    ids=["differential", "rate", "leaky"],
)
def test_exported_program_answers_to_the_bit(settings) -> None:
    snn, x = converted(**settings)
    program = torch.export.export(snn, (x,), dynamic_shapes=(({0: FREE},),))
    assert all(isinstance(n.target, torch._ops.OpOverload) for n in program.graph.nodes if n.op == "call_function")
    assert torch.equal(program.module()(x)["scores"], snn.run(x)["scores"][-1])
    more = torch.randn(7, 2, 4, 4)
    found = program.module()(more)
    assert torch.equal(found["scores"], snn(more)["scores"])
    assert found["name"] == "net"


def test_double_precision() -> None:
    snn, x = converted(torch.float64)
    assert torch.equal(torch.export.export(snn, (x,)).module()(x)["scores"], snn(x)["scores"])


class Pinned(nn.Module):
    """Its batch cannot hold time-steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x.reshape(2, 4))))


def test_a_network_that_runs_one_step_at_a_time() -> None:
    x = torch.randn(2, 4)
    snn = spikecast.convert(Pinned().eval(), [x], Config(num_steps=3, thresholds="quantile"))
    assert not snn.foldable
    assert torch.equal(torch.export.export(snn, (x,)).module()(x), snn(x))


def test_refusals_are_one_line() -> None:
    model, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval(), torch.randn(2, 4)
    parts = spikecast.convert(model, [x], Config(thresholds="quantile"), regions=["0"])
    with pytest.raises(
        ModelError, match=r"torch.export needs a network that was converted whole; .*snn.networks\['0'\]"
    ):
        torch.export.export(parts, (x,))
    whole = spikecast.convert(model, [x], Config(thresholds="quantile"))
    with pytest.raises(DataError, match="convert the model again with a batch of this form"):
        torch.export.export(whole, (torch.randn(2, 4, dtype=torch.float64),))
