"""The spike view on what graphs hold besides layers: masks, tokens, several answers, sizes, indices, unknown ops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.errors import ConfigError, DataError
from spikecast.graph.structure import flatten
from spikecast.hardware import Twin, twin
from spikecast.hardware.twin.units import Unit, units
from spikecast.theory.firing import level_value

CODINGS = pytest.mark.parametrize("coding", ["differential", "rate"])
BURSTS = pytest.mark.parametrize("burst", [1, 3])
# Few samples: a channel's threshold would be its largest value, which takes one pulse.
COARSE: Any = {"granularity": "layer"}


class Body(nn.Module):
    """A rectifier between two layers, and whatever else on top."""

    def __init__(self, top) -> None:
        super().__init__()
        self.first, self.second, self.top = nn.Linear(6, 6), nn.Linear(6, 6), top
        self.register_buffer("mask", torch.tensor([1, 0, 1, 1, 0, 1]).bool())
        self.register_buffer("table", torch.randn(6))

    def forward(self, x):
        return self.top(self, self.second(self.first(x).relu()))


def two_answers(m, y):
    return {"scores": y, "more": [y.mean(1), y.shape[0]], "same": m.table}


TOPS = {
    "two answers": two_answers,
    "constant mask": lambda m, y: y.masked_fill(m.mask, -math.inf).softmax(-1),
    "added mask": lambda m, y: (y + torch.where(m.mask, -math.inf, 0.0)).softmax(-1),
    "mask of the values": lambda m, y: torch.where(y > 0, y, m.table),
    "square": lambda m, y: y * y,
    "product and sum": lambda m, y: torch.addcmul(y, y, torch.tanh(y), value=0.5),
    "addmm": lambda m, y: torch.addmm(m.table, y.T.sigmoid(), y),
    "baddbmm": lambda m, y: torch.baddbmm(y[None], y[None] @ y.T[None], y[None].tanh(), beta=0.5),
    "einsum": lambda m, y: torch.einsum("bi,bj->bij", y, y.sigmoid()),
    "three factors": lambda m, y: torch.einsum("bi,bi,bi->b", y, y, y),
    "bilinear": lambda m, y: F.bilinear(y, y, m.first.weight[:2, :, None] * m.second.weight[0]),
    "split": lambda m, y: torch.cat(y.split([2, 4], 1)[::-1], 1) - m.table,
    "top": lambda m, y: y.topk(2, dim=1),
    "index": lambda m, y: y.gather(1, y.argmax(1, keepdim=True)),
    "pad": lambda m, y: F.pad(y, (1, 1), value=3.0),
    "ones": lambda m, y: y + torch.ones_like(y) * 2,
    "unknown op": lambda m, y: torch.special.bessel_j0(y),
    "division": lambda m, y: y / (1 + y.abs()),
    "constant": lambda m, y: 1 - y * m.table,
    "cumsum": lambda m, y: y.cumsum(1),
}


@BURSTS
@CODINGS
@pytest.mark.parametrize("top", TOPS)
def test_it_answers_like_the_network(top, coding, burst) -> None:
    model, x = Body(TOPS[top]).double().eval(), torch.randn(5, 6).double()
    snn = convert(model, [x], Config(num_steps=5, num_levels=4, burst=burst, coding=coding, **COARSE))
    ours, form = flatten(twin(snn).run(x))
    theirs, expected = flatten(snn.run(x))
    assert form == expected
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
        else:
            assert a == b


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.out = (
            nn.Embedding(9, 8),
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.Linear(8, 3),
        )

    def forward(self, tokens, present):
        x = self.words(tokens)
        y, _ = self.mix(x, x, x, key_padding_mask=~present, need_weights=False)
        return self.out(F.gelu(x + y))


@BURSTS
@CODINGS
def test_tokens_and_masks_are_inputs(coding, burst) -> None:
    model = Words().eval().double()
    tokens, present = torch.randint(0, 9, (3, 5)), torch.rand(3, 5) > 0.3
    present[:, 0] = True
    snn = convert(model, [(tokens, present)], Config(num_steps=6, num_levels=8, burst=burst, coding=coding, **COARSE))
    torch.testing.assert_close(twin(snn).run(tokens, present), snn.run(tokens, present), rtol=1e-9, atol=1e-9)


@BURSTS
def test_trace_holds_every_signal(burst) -> None:
    layer, x = nn.Linear(4, 8), torch.randn(2, 4)
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(8, 3))
    snn = convert(model.eval(), [x], Config(num_steps=6, num_levels=4, burst=burst, **COARSE))
    trace = Twin(snn).trace(x)
    program = snn.plan.program
    first, spikes, last = (n.name for n in program.nodes)
    assert set(trace.signals) == {program.inputs[0].name, first, spikes, last}
    image = trace.signals[program.inputs[0].name]
    assert torch.equal(image[0], x)
    assert not image[1:].any()
    assert not trace.signals[first][1:].any()  # what lies before the first neuron is sent once
    torch.testing.assert_close(trace.signals[first][0], x @ layer.weight.T)  # without the bias,
    torch.testing.assert_close(trace.rest[first], layer.bias.expand(2, -1))  # which is where the wire rests
    (site,) = snn.sites
    record = snn.record(x)[site]
    assert trace.levels[site].shape == (6, burst, 2, 8)
    assert bool(trace.levels[site][:, 1:].any()) == (burst > 1)
    assert torch.equal(trace.levels[site], record.levels)
    sent = level_value(trace.levels[site]).sum(1) * snn.threshold(site)
    torch.testing.assert_close(sent, trace.signals[spikes])
    torch.testing.assert_close(trace.estimates(spikes), record.estimates)
    torch.testing.assert_close(trace.estimates(last), snn.run(x))
    assert trace.answer.shape == (6, 2, 3)


def test_rate_coding_sends_the_bias_at_every_step() -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(2, 4)
    snn = convert(model.eval(), [x], Config(num_steps=3, coding="rate"))
    trace = twin(snn).trace(x)
    first = snn.plan.program.nodes[0].name
    torch.testing.assert_close(trace.signals[first], model[0](x).expand(3, -1, -1))
    assert not trace.rest[first].any()


def test_float64_on_a_float32_network() -> None:
    model, x = Body(TOPS["added mask"]).eval(), torch.randn(5, 6)
    snn = convert(model, [x], Config(num_steps=4, num_levels=4))
    exact = twin(snn, torch.float64).run(x)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), snn.run(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="int32"):
        twin(snn, torch.int32)
    with pytest.raises(ConfigError, match="num_steps=0"):
        twin(snn).run(x, num_steps=0)


def test_kinds_of_units() -> None:
    model, x = Body(lambda m, y: (y * y.tanh()).masked_fill(m.mask, 0) + y.reshape(-1, 6)).eval(), torch.randn(5, 6)
    program = convert(model, [x], Config(num_steps=2)).plan.program
    kinds = units(program)
    found = {n.op: kinds[n.name] for n in program.nodes}
    assert found["aten.mul"] is Unit.PRODUCT
    assert found["aten.tanh"] is Unit.GRADED
    assert found["aten.linear"] is found["aten.masked_fill"] is found["aten.add"] is Unit.LINEAR
    assert found["spikecast.neuron"] is Unit.NEURON


@BURSTS
def test_it_can_follow_given_spikes(burst) -> None:
    """The wires carry what it was told to send, and the levels say what the neurons would have fired by themselves."""
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double().eval(), torch.randn(2, 4).double()
    snn = convert(model, [x], Config(num_steps=6, num_levels=4, burst=burst, **COARSE))
    (site,) = snn.sites
    free, recorded = twin(snn).trace(x), snn.record(x)[site]
    assert bool(recorded.levels[:, 1:].any()) == (burst > 1)
    same = twin(snn).trace(x, follow={site: recorded.levels})
    torch.testing.assert_close(same.answer, free.answer)
    assert torch.equal(same.levels[site], free.levels[site])
    late = recorded.levels.clone()
    late[0] = 0  # as if the first spikes were lost: the neurons know, and make up for it
    other = twin(snn).trace(x, follow={site: late})
    spikes = next(n.name for n in snn.plan.program.nodes if n.kwargs.get("site") == site)
    assert not other.signals[spikes][0].any()
    assert torch.equal(other.levels[site][0], free.levels[site][0])
    lost = free.levels[site][0, 0] > 0
    assert (other.levels[site][1, 0][lost] > 0).all()
    for wrong in (recorded.levels[:, 0], recorded.levels[:3]):
        with pytest.raises(DataError, match=rf"follow\['{site}'\] is .* where levels \[T, {burst}, 2, 8\] are due"):
            twin(snn).trace(x, follow={site: wrong})
