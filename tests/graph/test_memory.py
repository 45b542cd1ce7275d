"""Values that are overwritten, and weights that lie otherwise, change no number and nothing of the caller's."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.graph.execute.schedule import keeps_form
from spikecast.kernels import encode
from spikecast.theory.neuron import Neuron
from spikecast.theory.neuron import encode as oracle


class Block(nn.Module):
    """Every kind of sharing: a residual read twice, a view of a fresh value, x + x, an output that is read on."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.other, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.conv(x).relu()
        y = F.gelu(self.other(x))
        z = self.other(y)
        z = z + x  # may be written over z
        w = z * z  # may not
        v = self.other(w)
        view = v.flatten(2)
        u = F.silu(v) + view.reshape(v.shape)  # v is seen through its view
        tokens = (self.other(z) * y).mean((2, 3))  # may be written over the first factor
        return self.last(F.gelu(tokens)), u, self.other(u) + torch.ones(2, *u.shape)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    model = Block().eval()
    x = torch.randn(5, 3, 6, 6)
    return model, x, convert(model, [x], Config(num_steps=4, thresholds="quantile", encode_input=True))


def test_what_may_be_overwritten(network) -> None:
    program = network[2].plan.program
    owned = program.flow.schedule().overwriting
    by_name = {node.name: node for node in program.nodes}
    sources = {by_name[name].args[0].name for name in owned}
    for name in sources:
        assert len(program.users[name]) == 1
        assert name not in program.output_names
    assert {by_name[name].op for name in owned} >= {"aten.gelu", "aten.add", "aten.mul", "spikecast.neuron"}
    squares = [node for node in program.nodes if node.op == "aten.mul" and node.args[0] == node.args[1]]
    assert len(squares) == 1
    assert squares[0].name not in owned


@pytest.mark.parametrize("way", ["run", "steps", "analog", "max_batch"])
def test_the_same_numbers_with_and_without(way, network, monkeypatch) -> None:
    model, x, snn = network
    before = x.clone(), {k: v.clone() for k, v in snn.state_dict().items()}

    def answers():
        if way == "steps":
            return [leaf for _, answer in snn.steps(x) for leaf in answer]
        if way == "analog":
            return list(snn.analog(x))
        return list(snn.run(x, max_batch=3 if way == "max_batch" else None))

    found = answers()
    again = answers()
    schedule = snn.plan.program.flow.schedule()
    careful = dataclasses.replace(schedule, overwriting=frozenset())
    monkeypatch.setattr(type(snn.plan.program.flow), "schedule", lambda *_: careful)
    expected = answers()
    for a, b, c in zip(found, again, expected, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, c)
    if way == "analog":
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, model(x), strict=True))
    assert torch.equal(x, before[0])
    assert all(torch.equal(v, before[1][k]) for k, v in snn.state_dict().items())


def test_form_of_the_first_argument() -> None:
    x = torch.ones(2, 3)
    assert keeps_form((x, torch.ones(3)))
    assert keeps_form((x, 2.0))
    assert not keeps_form((torch.ones(3), x))
    assert not keeps_form((x, torch.ones(4, 2, 3)))
    assert not keeps_form((x, x.double()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 2, 7, 3, 3), (3, 4, 300), (6, 1), (2, 3, 5000)])
@pytest.mark.parametrize("state", [False, True])
def test_kernel_overwrites(dtype, shape, state) -> None:
    inputs, neuron = torch.randn(shape).to(dtype), Neuron(lower=0.0, num_levels=5)
    threshold = torch.rand(shape[2] if len(shape) > 3 else 1, *(1,) * max(len(shape) - 3, 0)) + 0.5
    held = torch.rand(shape[1:]) if state else None
    start = 3 if state else 1
    expected = oracle(inputs, threshold, neuron, state=held, start=start, want_levels=True)
    mine = inputs.clone()
    found = encode(mine, threshold, neuron, state=held, start=start, want_levels=True, overwrite=True)
    assert torch.equal(found.estimates, expected.estimates)
    assert torch.equal(found.levels, expected.levels)
    assert found.estimates.data_ptr() == mine.data_ptr()
    kept = inputs.clone()
    encode(kept, threshold, neuron, state=held, start=start)
    assert torch.equal(kept, inputs)


def test_kernel_spares_what_it_cannot_overwrite() -> None:
    """Steps that share their memory (an image that does not change) are read, not written."""
    image = torch.randn(3, 40)
    steps, neuron = image.expand(4, 3, 40), Neuron()
    before = image.clone()
    found = encode(steps, torch.ones(1), neuron, overwrite=True).estimates
    assert torch.equal(image, before)
    assert torch.equal(found, oracle(steps, torch.ones(1), neuron).estimates)


def test_convolutions_get_their_channels_innermost(network) -> None:
    model, x, snn = network
    assert snn.weights["other.weight"].shape == (8, 8, 1, 1)
    assert snn.weights["conv.weight"].is_contiguous(memory_format=torch.channels_last)
    assert model.conv.weight.is_contiguous()
    recorded = snn.record(x)
    late = [r.estimates for r in recorded.values() if r.estimates.dim() == 5][1:]
    assert late
    assert all(e[0].is_contiguous(memory_format=torch.channels_last) for e in late)
