"""Steps laid into the batch give the numbers of one step after the other, wherever the batch lies."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.conversion.planning import plan
from spikecast.errors import ModelError
from spikecast.graph.capture.clean import clean
from spikecast.graph.capture.export import capture
from spikecast.graph.capture.simplify import simplify
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.execute.run import Execution
from spikecast.network.chunks import _comfortable
from tests.nets import encoder

QUICK = Config(num_steps=5, num_levels=4, burst=1, thresholds="quantile")


class Outer(nn.Module):
    """The batch merged into longer axes, before and behind others, and taken out again."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):  # [B, S, 4]
        size, length = x.shape[:2]
        x = self.a(x.reshape(size * length, 4)).relu()  # the batch outside
        x = x.reshape(size, length, 6).transpose(0, 1).reshape(length * size, 6)  # the batch inside
        x = self.b(x).relu()
        inside = self.c(x)
        x = x.reshape(length, size, 2, 3).permute(0, 2, 1, 3).reshape(-1, 3)  # inside of two others
        back = F.gelu(x).reshape(length, 2, size, 3).permute(2, 0, 1, 3).flatten(2)
        return {"inside": inside, "third": x.relu(), "back": self.c(back), "rows": self.b(back).flatten(0, 1)}


class Still(nn.Module):
    """Values that do not move in time beside those that do, and sizes of both."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, other):
        still = self.a(x).tanh()
        moving = self.b(still.relu())
        ones = torch.ones(x.shape[0], 4, device=x.device, dtype=x.dtype)
        place = torch.arange(x.shape[0], device=x.device) * 0
        mixed = moving * still + other.unsqueeze(1).expand(-1, 4) + moving.new_zeros(moving.shape[0], 4)
        return mixed + ones + place.unsqueeze(1), still, torch.cat([moving, still], 1).reshape(x.shape[0], 2, -1)


class Mean(nn.Module):
    """Samples see each other."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b((self.a(x) - self.a(x).mean(0)).relu())


class Square(nn.Module):
    """Samples compared with samples: [B, B]."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x).relu()
        return y @ y.mT


PRE_NORM: dict[str, Any] = {"activation": "gelu", "norm_first": True}
MODELS = {
    "outer": (Outer(), (torch.randn(4, 5, 4),), True),
    "still": (Still(), (torch.randn(4, 4), torch.randn(4)), True),
    "mean": (Mean(), (torch.randn(4, 4),), False),
    "square": (Square(), (torch.randn(4, 4),), False),
    "batch first": (
        encoder(8, 2, 12, batch_first=True, **PRE_NORM),
        (torch.randn(4, 5, 8),),
        True,
    ),
    "batch second": (encoder(8, 2, 12, **PRE_NORM), (torch.randn(5, 4, 8),), True),
}


@pytest.fixture(scope="module")
def networks():
    """Converted on demand, once."""
    made = {}

    def get(name):
        if name not in made:
            torch.manual_seed(0)
            model, args, _ = MODELS[name]
            made[name] = convert(model.eval(), [args], QUICK, inputs=lambda batch: batch)
        return made[name]

    return get


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in (value.values() if isinstance(value, dict) else value) for t in leaves(v)]


def assert_close(found, expected) -> None:
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert a.shape == b.shape
        assert torch.allclose(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_analog_is_the_model(name, networks) -> None:
    model, args, _ = MODELS[name]
    with torch.no_grad():
        assert_close(networks(name).analog(*args), model(*args))


@pytest.mark.parametrize("name", MODELS)
def test_run_is_the_steps(name, networks) -> None:
    _, args, foldable = MODELS[name]
    snn = networks(name)
    assert snn.foldable == foldable
    assert snn.report.foldable == foldable
    stepwise = [answer for _, answer in snn.steps(*args)]
    for i, leaf in enumerate(leaves(snn.run(*args))):
        assert_close(leaf, torch.stack([leaves(a)[i] for a in stepwise]))
    assert_close(snn(*args), stepwise[-1])


@pytest.mark.parametrize("name", [n for n, (_, _, foldable) in MODELS.items() if foldable])
def test_chunks_do_not_matter(name, networks) -> None:
    _, args, _ = MODELS[name]
    snn = networks(name)
    whole = snn.run(*args, max_batch=10_000)
    for limit in (1, 7, 11, 16):  # samples times steps: chunks of 1, 1, 2, 3 samples
        assert_close(snn.run(*args, max_batch=limit), whole)


@pytest.mark.parametrize("name", ["outer", "still", "batch second"])
def test_each_sample_for_itself(name, networks) -> None:
    """A batch of one, and any order of samples, give the same answers: nothing leaks through the merged axes."""
    _, args, _ = MODELS[name]
    axis = 1 if name == "batch second" else 0
    snn = networks(name)
    order = torch.tensor([2, 0, 3, 1])
    whole = snn.run(*args, num_steps=3)
    mixed = snn.run(*(a.index_select(axis, order) for a in args), num_steps=3)
    single = snn.run(*(a.narrow(axis, 2, 1) for a in args), num_steps=3)
    if name == "outer":
        assert torch.allclose(mixed["back"], whole["back"][:, order], atol=1e-5)
        assert torch.allclose(single["back"], whole["back"][:, 2:3], atol=1e-5)
        assert torch.allclose(single["inside"], whole["inside"].unflatten(1, (5, 4))[:, :, 2], atol=1e-5)
    else:
        for a, b, c in zip(leaves(mixed), leaves(single), leaves(whole), strict=True):
            assert torch.allclose(a, c.index_select(axis + 1, order), atol=1e-5)
            assert torch.allclose(b, c.narrow(axis + 1, 2, 1), atol=1e-5)


def test_samples_that_see_each_other_are_noticed(networks) -> None:
    assert any("samples of a batch see each other" in note for note in networks("mean").report.notes)
    assert all(note.startswith("runs one step at a time") for note in networks("square").report.notes)
    model, (x,), _ = MODELS["mean"]
    errors = [(networks("mean").run(x, num_steps=t)[-1] - model(x)).detach().norm() for t in (2, 32)]
    assert errors[1] < errors[0] / 2


@pytest.fixture(scope="module")
def still():
    torch.manual_seed(0)
    model, args, _ = MODELS["still"]
    return plan(simplify(clean(capture(model.eval(), args))), QUICK).program


def test_what_lies_before_the_first_neuron_runs_once(still, monkeypatch) -> None:
    _, args, _ = MODELS["still"]
    execution = Execution(still, still.tensors)
    ran = []
    evaluate = Execution._evaluate

    def noted(run, node, *rest):
        ran.append(node.name)
        evaluate(run, node, *rest)

    monkeypatch.setattr(Execution, "_evaluate", noted)
    execution.start(args)
    assert [n.op for n in still.nodes if n.name in ran and n.op in ("aten.linear", "aten.tanh")] == [
        "aten.linear",
        "aten.tanh",
    ]
    ran.clear()
    for _ in range(3):
        execution.advance(Neurons(lambda site, steps: steps.clamp_min(0)))
    again = [n.op for n in still.nodes if n.name in ran]
    assert "aten.tanh" not in again
    assert again.count("aten.linear") == 1
    assert ran.count(next(n.name for n in still.nodes if n.op == "aten.linear" and n.name in ran)) == 3


def test_factory_ops_make_tensors_where_the_input_is(still) -> None:
    """Captured on the CPU, run elsewhere: every tensor made inside must follow."""
    _, args, _ = MODELS["still"]
    execution = Execution(still, {name: t.to("meta") for name, t in still.tensors.items()})
    execution.start([a.to("meta") for a in args])
    for fold in (1, 3):
        outputs = execution.advance(Neurons(lambda site, steps: steps.clamp_min(0)), fold)
        assert all(out.device.type == "meta" for out in outputs)
        assert outputs[0].shape == (4 * fold, 4)


def test_unfold_and_refold() -> None:
    class Axis(nn.Module):
        def forward(self, x):
            return x.transpose(0, 1).relu()

    program = plan(clean(capture(Axis().eval(), (torch.randn(4, 3),))), QUICK).program
    execution = Execution(program, {})
    steps = torch.randn(5, 3, 4)
    name = next(n.name for n in program.nodes if n.op == "aten.transpose")
    folded = execution.refold(name, steps)
    assert torch.equal(folded, torch.cat(list(steps), 1))  # step by step along the batch axis, the second
    assert torch.equal(execution.unfold(name, folded, 5), steps)


def test_a_value_without_a_batch_cannot_hold_steps() -> None:
    """As a file may have it, with a neuron on a constant."""
    snn = convert(nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), [torch.randn(2, 3)])
    execution = snn.execution(snn.plan.program)
    for change in (
        lambda: execution.unfold("w", torch.zeros(4, 3), 2),
        lambda: execution.refold("w", torch.zeros(2, 3)),
    ):
        with pytest.raises(ModelError, match="value 'w' has no batch axis to hold time-steps"):
            change()


def test_samples_without_entries() -> None:
    snn = convert(nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), [torch.randn(2, 3)])
    assert _comfortable(snn.plan.program, [torch.zeros(2, 0)], 4) >= 4


def test_deepcopy_is_a_network_of_its_own(networks) -> None:
    _, args, _ = MODELS["still"]
    snn = networks("still")
    expected = leaves(snn(*args))
    twin = copy.deepcopy(snn)
    for buffer in twin.buffers():
        buffer.mul_(1.5)
    assert all(torch.equal(a, b) for a, b in zip(leaves(snn(*args)), expected, strict=True))
    assert not torch.equal(leaves(twin(*args))[0], expected[0])
    twin.load_state_dict(snn.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(leaves(twin(*args)), expected, strict=True))
