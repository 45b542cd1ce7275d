"""Teaching an op: it counts as what it was said to be, and a file may hold it where the loading process says so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config, measure
from spikecast.errors import ArtifactError, ConfigError, ModelError
from spikecast.graph.program import Node
from spikecast.graph.roles import BUILT_IN, ROLES, SAVABLE, Role, register_op

SETTINGS = Config(num_steps=4, num_levels=2, thresholds="quantile")


@torch.library.custom_op("spikecast_tests::clip", mutates_args=())
def clip(x: Tensor) -> Tensor:
    return x.clamp(-0.5, 1.5)


@torch.library.custom_op("spikecast_tests::turn", mutates_args=())
def turn(x: Tensor) -> Tensor:
    return x.flip(-1)


@torch.library.custom_op("spikecast_tests::weigh", mutates_args=())
def weigh(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


@torch.library.custom_op("spikecast_tests::closed", mutates_args=())
def closed(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


for op in (clip, turn):
    op.register_fake(torch.empty_like)
for product in (weigh, closed):
    product.register_fake(lambda x, weight: x.new_empty((*x.shape[:-1], weight.shape[-1])))
weigh.register_autograd(
    lambda ctx, grad: (grad @ ctx.weight.T, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "weight", inputs[1]),
)


@pytest.fixture
def teach() -> Iterator[Callable[..., None]]:
    """`register_op`, undone afterwards."""
    before = set(SAVABLE)
    yield register_op
    for name in {*ROLES} - BUILT_IN:
        del ROLES[name]
        SAVABLE.discard(name)
    assert ROLES.keys() == BUILT_IN
    assert before == SAVABLE


class Net(nn.Module):
    def __init__(self, act: Callable[..., Tensor], *weights: Tensor) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        self.weights = nn.ParameterList(nn.Parameter(w) for w in weights)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.act(self.first(x).relu(), *self.weights))


class Clipped(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.act(self.first(x)))


def converted(model: nn.Module, **how: Any) -> tuple[spikecast.SpikingNetwork, Tensor]:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    return spikecast.convert(model.eval(), [x], SETTINGS, **how), x


def same(taught: nn.Module, known: nn.Module) -> tuple[spikecast.SpikingNetwork, spikecast.SpikingNetwork]:
    """Both networks, once they are seen to answer alike and to cost the same."""
    (mine, x), (theirs, _) = converted(taught, strict=True), converted(known, strict=True)
    assert torch.equal(mine.run(x), theirs.run(x))
    costs, expected = measure.energy(mine, [x], "full"), measure.energy(theirs, [x], "full")
    assert costs.accumulates == expected.accumulates
    assert costs.snn == expected.snn
    assert costs.macs == expected.macs
    assert mine.report.spiking_share == theirs.report.spiking_share
    return mine, theirs


def test_unknown_op_becomes_known(teach) -> None:
    model = Net(torch.special.bessel_j0)
    assert len(converted(model)[0].report.unknown) == 1
    teach("aten.special_bessel_j0", "nonlinear")
    snn, _ = converted(model, strict=True)
    assert snn.report.unknown == []
    (row,) = (r for r in snn.report.rows if "bessel" in r.target)
    assert (row.status, row.why) == ("graded", "nonlinear unit (Thm 4.2)")


def test_taught_rectifier_is_the_clamp(teach) -> None:
    teach("spikecast_tests.clip", Role.RECTIFIER, interval=(-0.5, 1.5))
    mine, _ = same(Clipped(clip), Clipped(lambda x: x.clamp(-0.5, 1.5)))
    (site,) = (s for s in mine.sites.values() if s.is_rectifier)
    assert (site.lower, site.upper) == (-0.5, 1.5)


def test_taught_mover_passes_spikes_on(teach) -> None:
    teach("spikecast_tests.turn", "SHAPE")
    mine, theirs = same(Net(turn), Net(lambda x: x.flip(-1)))
    assert len(mine.sites) == len(theirs.sites) == 1


def test_taught_synapse_is_counted(teach) -> None:
    teach("spikecast_tests.weigh", "synapse")
    weight = torch.randn(6, 6)
    same(Net(weigh, weight), Net(torch.matmul, weight))


def test_synapse_without_a_gradient_is_refused(teach) -> None:
    teach("spikecast_tests.closed", "synapse")
    with pytest.raises(ModelError, match=r"spikecast_tests\.closed cannot be counted: it has no gradient; give"):
        converted(Net(closed, torch.randn(6, 6)))


def test_weights_in_a_taught_unit_are_not_counted(teach) -> None:
    teach("spikecast_tests.closed", "nonlinear")
    snn, _ = converted(Net(closed, torch.randn(6, 6)), strict=True)
    assert snn.report.spiking_share is None


@pytest.mark.parametrize(
    ("name", "role", "interval", "message"),
    [
        ("relu", "rectifier", (0, 1), "'relu' is no op"),
        ("aten.bessel.default", "nonlinear", None, "'aten.bessel.default' is no op"),
        (7, "nonlinear", None, "7 is no op"),
        ("aten.no_such_op", "nonlinear", None, r"this torch \(.*\) has no op aten.no_such_op"),
        ("nolib.foo", "nonlinear", None, "has no op nolib.foo"),
        ("aten.relu", "nonlinear", None, "aten.relu is known as rectifier"),
        ("aten.special_bessel_j0", "neuron", None, "role='neuron' is not one of control, shape"),
        ("aten.special_bessel_j0", 3, None, "role=3 is not one of"),
        ("aten.special_bessel_j0", "rectifier", None, "only a rectifier has one"),
        ("aten.special_bessel_j0", "sum", (0, 1), "only a rectifier has one"),
        ("aten.special_bessel_j0", "rectifier", (1, 2), r"interval=\(1, 2\) is not \(low, high\)"),
        ("aten.special_bessel_j0", "rectifier", (0, 0), "is not"),
        ("aten.special_bessel_j0", "rectifier", (0, math.nan), "is not"),
        ("aten.special_bessel_j0", "rectifier", ("0", 1), "is not"),
        ("aten.special_bessel_j0", "rectifier", (0, 1, 2), "is not"),
    ],
)
def test_mistakes(teach, name: Any, role: Any, interval: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"register_op: .*{message}") as error:
        teach(name, role, interval=interval)
    assert "\n" not in str(error.value)
    assert ROLES.keys() == BUILT_IN


def test_a_file_may_hold_what_the_loading_process_allows(teach, tmp_path: Path) -> None:
    teach("spikecast_tests.turn", "shape")
    snn, x = converted(Net(turn))
    with pytest.raises(ArtifactError, match=r"'spikecast_tests.turn.default' is not on the list"):
        snn.save(tmp_path / "net")
    teach("spikecast_tests.turn", "shape", savable=True)
    snn.save(tmp_path / "net")
    again = spikecast.load(tmp_path / "net")
    assert isinstance(again, spikecast.SpikingNetwork)
    assert torch.equal(again.run(x), snn.run(x))
    assert again.plan.program.flow.roles == snn.plan.program.flow.roles
    teach("spikecast_tests.turn", "shape")  # what is said last counts
    with pytest.raises(ArtifactError, match="not on the list"):
        spikecast.load(tmp_path / "net")


def test_a_node_names_its_op_without_the_overload() -> None:
    names = {
        "aten.add.Tensor": "aten.add",
        "mylib.foo.default": "mylib.foo",
        "getitem": "getitem",
        "size.add": "size.add",
    }
    assert {target: Node("x", target, ()).op for target in names} == names
    assert Node("x", "spikecast.neuron", ()).op == "spikecast.neuron"
