"""No class is made because a file names it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast.graph.structure import Fields, Row, flatten, unflatten

made: list[str] = []


@dataclasses.dataclass
class Answer:
    scores: Tensor

    def __post_init__(self) -> None:
        made.append("dataclass")


class Pair(NamedTuple):
    first: Any
    second: Any


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Pair:
        return Pair(Answer(self.head(torch.relu(x))), x)


@pytest.fixture(scope="module")
def network() -> spikecast.SpikingNetwork:
    config = spikecast.Config(num_steps=2, thresholds="quantile")
    return spikecast.convert(Net().eval(), [torch.randn(4, 4)], config)


def test_no_class_is_made_from_a_file(network: spikecast.SpikingNetwork, tmp_path: Path) -> None:
    """Though this process knows the classes: a `__post_init__` is not the file's to call."""
    network.save(tmp_path / "net")
    loaded, x = spikecast.load(tmp_path / "net"), torch.randn(2, 4)
    expected = network(x)
    assert type(expected) is Pair
    assert type(expected.first) is Answer
    made.clear()
    for answer in (loaded(x), next(loaded.steps(x, num_steps=2))[1], loaded.analog(x)):
        assert (type(answer), type(answer.first)) == (Row, Fields)
        assert answer["first"] is answer[0] is answer.first
    assert made == []
    assert torch.equal(loaded(x).first.scores, expected.first.scores)


def test_a_class_with_fields_of_its_own_making_becomes_plain_fields() -> None:
    @dataclasses.dataclass
    class Counted:
        x: int
        double: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.double = 2 * self.x

    leaves, form = flatten(Counted(3))
    assert leaves == [3, 6]
    assert unflatten(form, leaves) == SimpleNamespace(x=3, double=6)


def test_places_are_counted_as_the_class_did() -> None:
    """Hugging Face passes over what is None; a named tuple does not."""
    items = [("loss", {"kind": "leaf"}), ("logits", {"kind": "leaf"})]
    for kind, first in (("dataclass", 2), ("namedtuple", None)):
        answer = unflatten({"kind": kind, "items": items}, [None, 2])
        assert (answer.logits, answer["logits"], answer["loss"], answer[0], answer[-1]) == (2, 2, None, first, 2)
        assert tuple(answer) == ((2,) if kind == "dataclass" else (None, 2))
