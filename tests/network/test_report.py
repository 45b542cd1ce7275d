"""The report says what became of every op, and how many multiply-accumulates are fed by spikes."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from spikecast import Config, convert
from spikecast.conversion.planning import plan
from spikecast.errors import StrictError
from spikecast.graph.capture.clean import clean
from spikecast.graph.capture.export import capture
from spikecast.graph.capture.simplify import simplify
from spikecast.network.report import Report, report_of
from tests.nets import relative


def report(model, *args, config=None):
    program = simplify(clean(capture(model.eval(), args)))
    return report_of(plan(program, config or Config()), program)


class Many(nn.Module):
    """Every kind of weighted op, with sizes that tell them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(3, 4, 3, stride=2)
        self.groups = nn.Conv2d(4, 8, (3, 1), groups=2, padding=1, bias=False)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2, groups=2)
        self.line = nn.Conv1d(6, 10, 3, dilation=2)
        self.out = nn.Linear(10, 5)
        self.weight = nn.Parameter(torch.randn(5, 7))

    def forward(self, x):
        x = self.plain(x).relu()  # [B, 4, 3, 3]
        x = F.gelu(self.groups(x))  # [B, 8, 3, 5]
        x = self.up(x).relu()  # [B, 6, 6, 10]
        x = self.line(x.flatten(2)).relu()  # [B, 10, 56]
        x = self.out(x.mT)  # [B, 56, 5]
        q = F.silu(x @ self.weight)  # [B, 56, 7]
        y = torch.einsum("bic,bjc->bij", q, q * 2)  # [B, 56, 56]
        y = torch.bmm(torch.softmax(y, -1), q)
        heads = y.unflatten(2, (1, 7)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads[:, :, :9], heads[:, :, :9])


BY_HAND = {
    "plain": 4 * 3 * 3 * (3 * 3 * 3),
    "groups": 8 * (2 * (2 + 3 + 2) * 3),  # rows of taps inside, and the three columns that are not padding
    "up": 8 * 3 * 5 * (3 * 2 * 2),
    "line": 10 * 56 * (6 * 3),
    "out": 56 * 10 * 5,
    "weight": 56 * 5 * 7,
    "einsum": 56 * 56 * 7,
    "bmm": 56 * 56 * 7,
    "scores": 56 * 9 * 7,
    "attended": 56 * 9 * 7,
}


@pytest.fixture(scope="module")
def many():
    torch.manual_seed(0)
    model = Many().eval()
    x = torch.randn(3, 3, 8, 8)
    return model, x, report(model, x)


def test_macs_are_exact(many) -> None:
    model, x, made = many
    assert [row.macs for row in made.rows if row.macs] == list(BY_HAND.values())
    assert made.total_macs == sum(BY_HAND.values())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    outside = 8 * (2 * 3 * 3 * 5) - BY_HAND["groups"]  # torch counts borders as if they were inside
    assert counter.get_total_flops() == 2 * len(x) * (made.total_macs + outside)


def test_share_fed_by_spikes(many) -> None:
    made = many[2]
    assert made.spiking_share == 1 - BY_HAND["plain"] / sum(BY_HAND.values())
    assert [r.scope for r in made.rows if r.status == "analog"] == ["plain"]


def test_rows(many) -> None:
    made = many[2]
    status = {(row.scope, row.target.split(".")[1]): (row.status, row.why) for row in made.rows}
    assert status["plain", "conv2d"] == ("analog", "analog input")
    assert status["groups", "conv2d"] == ("spiking", "fed by spikes")
    assert status["", "relu"] == ("spiking", "rectifying neuron")
    assert status["", "gelu"] == ("graded", "nonlinear unit (Thm 4.2)")
    assert status["", "softmax"][0] == "graded"
    assert status["", "mul"] == ("affine", "scale or shift by constants")
    assert status["", "reshape"][0] == "shape"
    assert made.unknown == []
    weighted = [row for row in made.rows if row.macs and row.status == "spiking"]
    assert all(row.site for row in weighted)  # which site feeds it, whatever lies between
    # gelu, x @ weight, q, q·2, softmax, then the scaled heads, the keys, the softmax and the values
    assert made.num_sites == 3 + 9


def test_table(many) -> None:
    made = many[2]
    text = str(made)
    lines = text.splitlines()
    assert lines[0].split() == ["op", "where", "becomes", "MACs", "why", "site"]
    assert len([line for line in lines if "conv2d" in line]) == 2
    assert f"{made.num_sites} neuron sites" in made.summary()
    assert f"{made.spiking_share:.1%}" in made.summary()
    assert made.summary() in text
    assert "\n" not in made.summary()


def test_json_round_trip(many) -> None:
    made = Report(many[2].rows, many[2].num_sites, False, ("a note", "ein Vermerk: ≥ θ"), {"relu": 0.1, "b.input": 7.0})
    again = Report.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert str(again) == str(made)
    assert again.notes[0] in str(again)
    data = made.to_json()
    assert (data["total_macs"], data["foldable"]) == (made.total_macs, False)


def test_price_of_a_spike(small) -> None:
    made = report_of(plan(small, Config()), small)
    assert list(made.prices) == ["relu", "c.input"]
    assert made.prices == pytest.approx({"relu": 6 * 0.9, "c.input": 2 * 0.9})  # picojoules: it reaches 6 and 2 outputs
    assert made.to_json()["prices"] == made.prices
    lines = str(made).splitlines()
    at = lines.index("site     a spike costs")
    assert [line.split() for line in lines[at + 1 : at + 3]] == [["relu", "5.4", "pJ"], ["c.input", "1.8", "pJ"]]


def test_price_at_borders_and_of_averages() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4))
    made = report(nn.Sequential(model, nn.Flatten(), nn.Linear(2, 5)), torch.randn(2, 1, 4, 4))
    reached = 2 * (4 * 3 - 2) ** 2 / 16  # outputs of a neuron in the mean: fewer at the borders
    assert list(made.prices.values()) == pytest.approx([reached * 0.9, 5 * 0.9])


def test_nothing_to_pay() -> None:
    made = report(nn.ReLU(), torch.randn(2, 3))
    assert list(made.prices.values()) == [0.0]


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.out(torch.special.bessel_j0(self.inner(x)))


def test_unknown_op_is_reported_and_refused() -> None:
    made = report(Unknown(), torch.randn(3, 4))
    (row,) = made.unknown
    assert (row.target, row.why) == ("aten.special_bessel_j0.default", "graded (unknown op)")
    assert "1 unknown" in made.summary()
    assert [r.status for r in made.rows if r.scope == "out"] == ["spiking"]  # it is fed by a neuron nevertheless
    with pytest.raises(StrictError, match=r"special_bessel_j0.*not in the table") as error:
        made.refuse_analog()
    assert "\n" not in str(error.value)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.c(F.gelu(self.b(self.a(x).relu())))


@pytest.fixture(scope="module")
def small():
    return simplify(clean(capture(Small().eval(), (torch.randn(3, 4),))))


def test_strict_allows_the_first_layer_only(small) -> None:
    report_of(plan(small, Config()), small).refuse_analog()
    analog = report_of(plan(small, Config(overrides={"c.input": None})), small)
    assert analog.spiking_share == 24 / (16 + 24 + 12)
    with pytest.raises(StrictError, match=r"'c'.*not fed by spikes.*override") as error:
        analog.refuse_analog()
    assert "\n" not in str(error.value)


def test_strict_and_the_encoded_input(small) -> None:
    made = report_of(plan(small, Config(encode_input=True)), small)
    made.refuse_analog()
    assert made.spiking_share == 1.0
    assert not [r for r in made.rows if r.status == "analog"]


def test_rectifier_left_analog(small) -> None:
    made = report_of(plan(small, Config(overrides={"relu": None})), small)
    (row,) = (r for r in made.rows if r.target == "aten.relu.default")
    assert (row.status, row.why, row.site) == ("analog", "analog (override)", None)
    assert made.spiking_share == 36 / 52  # an identity neuron feeds b instead


def test_pooled_rectifier_says_so() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1))
    made = report(model, torch.randn(2, 3, 8, 8))
    (row,) = (r for r in made.rows if r.target == "aten.relu.default")
    assert (row.status, row.why, row.site) == ("spiking", "rectifying neuron, behind the pool", "1")


def test_nothing_to_count() -> None:
    made = report(nn.ReLU(), torch.randn(2, 3))
    assert (made.total_macs, made.spiking_share, made.num_sites) == (0, 0.0, 1)


class Keeps(nn.Module):
    """Writes to its buffers, one of which is called as torch calls an op."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.mean.mul_(0.5)
        return self.linear(x - self.mean) + x.mean() * 0


def test_buffers_that_are_written_to_are_named() -> None:
    model, x = Keeps().eval(), torch.randn(2, 4)
    snn = convert(model, [x], Config(num_steps=2))
    assert any(note.endswith("a network keeps as they were at conversion: count, mean") for note in snn.report.notes)
    assert model.count == 0  # nor are the model's own changed
    for _ in range(2):
        assert relative(snn.analog(x), Keeps.forward(copy.deepcopy(model), x)) < 1e-6
