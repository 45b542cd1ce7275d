"""A network takes its arguments by place or by name, however it was calibrated; and copies, but no pickles, of it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config, SpikingNetwork, measure
from spikecast.errors import DataError

A, B = torch.randn(4, 3), torch.randn(4, 5)
QUICK = Config(num_steps=2, burst=1, thresholds="quantile")


class Pair(nn.Module):
    """Two arguments that cannot be confused, and one more."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(3, 4), nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, a: Tensor, b: Tensor, c: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        x = (self.a(a) + self.b(b) * scale).relu()
        return self.out(x if c is None else x + c)


@pytest.fixture(params=["by name", "by place", "mixed up"])
def snn(request: pytest.FixtureRequest) -> SpikingNetwork:
    batch = {"by name": {"a": A, "b": B}, "by place": (A, B), "mixed up": {"b": B, "a": A}}[request.param]
    return spikecast.convert(Pair().eval(), [batch], QUICK)


def test_by_place_and_by_name(snn: SpikingNetwork, tmp_path: Path) -> None:
    snn.save(tmp_path / "net")
    for network in (snn, spikecast.load(tmp_path / "net")):
        expected = network(A, B)
        assert torch.equal(network(a=A, b=B), expected)
        assert torch.equal(network(b=B, a=A), expected)
        assert torch.equal(network(A, b=B), expected)
        assert len(network.plans) == 1, "none of these calls needs another graph"
        spent = [measure.energy(network, [batch]).snn for batch in ((A, B), {"a": A, "b": B}, (A, B, torch.zeros(4)))]
        assert spent[0] == spent[1] == spent[2]


def test_what_a_network_takes_is_said_plainly(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    spikecast.convert(model, [torch.randn(2, 3, 8, 8)], QUICK).save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    with pytest.raises(DataError, match=r"the input has shape \(8, 8, 8\), and the network takes \(any, 3, any, any\)"):
        loaded(torch.randn(8, 8, 8))
    with pytest.raises(DataError, match=r"give one as the model takes \(torch.from_numpy for an array"):
        loaded(torch.randn(2, 3, 8, 8).numpy())


def test_other_arguments_are_other_calls(snn: SpikingNetwork, tmp_path: Path) -> None:
    snn.save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    for args, kwargs in [((A,), {}), ((A, B), {"scale": 2.0}), ((A, B, torch.ones(4, 4)), {})]:
        with pytest.raises(DataError, match="captured for other arguments"):
            loaded(*args, **kwargs)
    with pytest.raises(DataError, match="other arguments"):
        loaded(A, B, a=A)
    assert not torch.equal(snn(A, B, scale=2.0), snn(A, B))


def test_a_dict_in_place_of_arguments(snn: SpikingNetwork) -> None:
    with pytest.raises(DataError, match=r"give them by name: snn.run\(\*\*batch\)"):
        snn.run({"a": A, "b": B})
    assert torch.equal(snn(**{"a": A, "b": B}), snn(A, B))
    with pytest.raises(DataError, match="captured for other arguments"):
        snn.run({"a": A, "z": B})


def test_by_name_only(tmp_path: Path) -> None:
    """c lies between: whoever calls by place would not mean scale."""
    snn = spikecast.convert(Pair().eval(), [{"a": A, "b": B, "scale": 2.0}], QUICK)
    snn.save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    assert torch.equal(loaded(A, B, scale=2.0), snn(a=A, b=B, scale=2.0))


def test_a_copy_is_a_network_of_its_own(snn: SpikingNetwork) -> None:
    expected = snn(A, B)
    made = copy.deepcopy(snn)
    assert torch.equal(made(A, B), expected)
    made.set_thresholds({site: 3 * value for site, value in made.thresholds.items()})
    for weight in made.weights.buffers():
        weight.mul_(2.0)
    assert torch.equal(snn(A, B), expected)
    assert not torch.equal(made(A, B), expected)


def test_a_network_by_region_is_copied() -> None:
    snn = spikecast.convert(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), [A], QUICK, regions=["0"]
    )
    assert torch.equal(copy.deepcopy(snn)(A), snn(A))


class Unsavable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.hypot(x, x)


def test_a_network_that_cannot_be_saved_says_so_at_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), Unsavable(), nn.Linear(4, 2)).eval()
    with pytest.warns(UserWarning, match=r"save\(\) will refuse it: the op 'aten\.hypot\.default' is not on the list"):
        snn = spikecast.convert(model, [A], QUICK)
    assert any("will refuse it" in note for note in snn.report.notes)
    assert snn(A).shape == (4, 2)


class Scratch(nn.Module):
    """Writes into memory that it did not clear before."""

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.empty_like(x), x.new_empty(x.shape), torch.empty(x.shape)
        return x + sum(part.fill_(1.0) for part in parts)


def test_no_file_reads_memory_that_nobody_wrote(tmp_path: Path) -> None:
    snn = spikecast.convert(nn.Sequential(nn.Linear(3, 4), Scratch(), nn.Linear(4, 2)).eval(), [A], QUICK)
    assert not any("empty" in node.target for node in snn.plan.program.nodes)
    snn.save(tmp_path / "net")
    assert torch.equal(spikecast.load(tmp_path / "net")(A), snn(A))


class Answer:
    """Neither a tensor nor anything that a file could hold."""


class Odd(nn.Module):
    def forward(self, x: Tensor) -> dict[str, object]:
        state = Answer()
        return {"out": x.relu(), "state": state, "loss": x.sum(), "past_key_values": ((x, x),), "nothing": None}


def test_state_and_losses_are_no_answer(tmp_path: Path) -> None:
    snn = spikecast.convert(nn.Sequential(nn.Linear(3, 4), Odd()).eval(), [A], QUICK)
    answer = snn(A)
    assert answer.keys() == {"out", "state", "loss", "past_key_values", "nothing"}
    assert [answer[key] for key in ("state", "loss", "nothing")] == [None] * 3
    assert answer["past_key_values"] == ((None, None),)
    (note,) = [note for note in snn.report.notes if "left out of the answer" in note]
    assert note.endswith(": state, loss, past_key_values")
    snn.save(tmp_path / "net")
    assert torch.equal(spikecast.load(tmp_path / "net")(A)["out"], answer["out"])
