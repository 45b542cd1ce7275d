"""regions="auto": the largest parts of a model that can be captured, found from the root down."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config, convert
from spikecast.conversion import find_regions, prepare
from spikecast.errors import DataError, ModelError, StrictError
from spikecast.network.regions import RegionNetwork
from spikecast.network.spiking import SpikingNetwork
from tests.nets import relative

QUICK = Config(num_steps=4, num_levels=4, burst=1, thresholds="quantile")
X = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Net(nn.Module):
    """Modules by name and a forward from a function."""

    def __init__(self, forward: Callable[[Any, Tensor], Any], **parts: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how = forward
        for name, part in parts.items():
            self.add_module(name, part)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.5)
        self.eval()

    def forward(self, x: Tensor) -> Any:
        return self.how(self, x)


def sorted_out(m: Any, x: Tensor) -> Tensor:
    """Python in the middle that depends on what is seen."""
    hidden = m.body(x)
    return m.head(hidden * (2.0 if float(hidden.sum()) > 0 else 1.0))


def nested(m: Any, x: Tensor) -> Tensor:
    for layer in m.layers:  # a list is never called itself
        x = layer(x)
    return x


def found(model: nn.Module, x: Any = X, config: Config = QUICK) -> RegionNetwork:
    network = convert(model, [x], config, regions="auto")
    assert isinstance(network, RegionNetwork)
    return network


def note(network: Any) -> str:
    return next(n for n in network.report.notes if "regions found" in n)


def test_the_whole_where_it_can_be_captured() -> None:
    model = mlp(6, 5, 3).eval()
    network = convert(model, [X], QUICK, regions="auto")
    assert isinstance(network, SpikingNetwork)
    assert torch.equal(network.run(X), convert(model, [X], QUICK).run(X))


def test_the_same_as_by_name() -> None:
    model = Net(sorted_out, body=mlp(6, 8, 4), head=mlp(4, 4, 3), spare=nn.Linear(2, 2))
    network = found(model)
    assert list(network.networks) == ["body", "head"]
    named = convert(model, [X], QUICK, regions=["body", "head"])
    assert network.thresholds.keys() == named.thresholds.keys()
    assert torch.equal(network.run(X), named.run(X))
    assert "regions found: body, head; 100.0% of the multiply-accumulates" in note(network)


def test_down_through_what_cannot_be_captured() -> None:
    """Of a part that cannot be captured its own parts are taken; lists are passed through."""
    inner = Net(sorted_out, body=mlp(6, 6), head=mlp(6, 6, 6))
    model = Net(nested, layers=nn.ModuleList([mlp(6, 6, 6), inner, nn.Linear(6, 2)]))
    assert list(found(model).networks) == ["layers.0", "layers.1.body", "layers.1.head", "layers.2"]


def test_share_of_the_products() -> None:
    """By hand: 6x8 + 8x4 inside, 4x4 outside, where the weight is read without calling its module."""

    def forward(m: Any, x: Tensor) -> Tensor:
        hidden = m.body(x)
        return (hidden @ m.loose.weight.T) * float(hidden.sum())

    model = Net(forward, body=mlp(6, 8, 4), loose=nn.Linear(4, 4, bias=False))
    network = found(model)
    assert list(network.networks) == ["body"]
    assert f"{80 / 96:.1%} of" in note(network)


def test_every_module_is_tried_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The head is called on three levels; what holds no weights is not tried; torch says nothing."""
    tried: list[str] = []

    def counted(part: nn.Module, *args: Any, prefix: str = "", **settings: Any) -> Any:
        tried.append(prefix)
        return prepare.prepare(part, *args, prefix=prefix, **settings)

    def forward(m: Any, x: Tensor) -> Tensor:
        hidden = m.relu(m.norm(m.body(x)))
        return torch.cat([m.head(hidden * i) for i in range(1, 4) if float(hidden.sum()) > -1e9])

    monkeypatch.setattr(find_regions, "prepare", counted)
    parts = {"body": mlp(6, 8, 4), "norm": nn.BatchNorm1d(4), "relu": nn.ReLU(), "head": mlp(4, 4, 3)}
    network = found(Net(forward, **parts))
    assert tried == ["", "body", "norm", "head"]
    assert list(network.networks) == ["body", "head"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("steps", [1, 4])
def test_sizes_that_depend_on_what_is_seen(steps: int) -> None:
    """Neurons keep a state over time, so such a part can be spiking in one step only."""

    def forward(m: Any, x: Tensor) -> Tensor:
        hidden = m.body(x)
        return m.head(hidden[hidden[:, 0] > 0])

    model = Net(forward, body=mlp(6, 8, 4), head=mlp(4, 4, 3))
    many = torch.randn(64, 6)
    network = found(model, many, dataclasses.replace(QUICK, num_steps=steps))
    assert list(network.networks) == (["body", "head"] if steps == 1 else ["body"])
    said = "one step only" if steps == 1 else "left out"
    assert any(n.startswith(f"head: {said}, since the size") for n in network.report.notes)
    network.run(many)


def test_nothing_to_look_at() -> None:
    """A part that is called on no rows at all answers none; one that never saw any is no region."""
    model = Net(lambda m, x: m.head(m.body(x)[x[:, 0] > 0]), body=mlp(6, 8, 4), head=mlp(4, 4, 3))
    some, none = X.abs(), -X.abs()
    network = found(model, some)
    assert list(network.networks) == ["body", "head"]
    assert network.run(none).shape == (4, 0, 3)
    assert list(found(model, none).networks) == ["body"]


def test_parts_whose_attributes_are_read() -> None:
    """A network in place of a part has none of its attributes: the parts inside are taken."""

    class Own(nn.Sequential):
        scale = 3.0

    def scaled(m: Any, x: Tensor) -> Tensor:
        return m.body(x) * m.body.scale * (1.0 if float(x.sum()) > -1e9 else 2.0)

    network = found(Net(scaled, body=Own(mlp(6, 8), mlp(8, 4))))
    assert list(network.networks) == ["body.0", "body.1"]
    with torch.no_grad():
        assert relative(network.run(X, num_steps=64)[-1], network.analog(X)) < 0.02


@pytest.mark.parametrize("look", [lambda m: m.width, lambda m: len(m.body), lambda m: m.body[0] is not None])
def test_parts_that_are_looked_at_in_other_ways(look: Callable[[Any], Any]) -> None:
    class Looking(Net):
        @property
        def width(self) -> int:
            return self.body.width  # type: ignore[union-attr, return-value]

    def looked(m: Any, x: Tensor) -> Tensor:
        return m.body(x) * (1.0 if float(x.sum()) > -1e9 and look(m) else 2.0)

    model = Looking(looked, body=nn.Sequential(mlp(6, 8), mlp(8, 4)))
    model.body.width = 6  # type: ignore[union-attr]
    assert list(found(model).networks) == ["body.0", "body.1"]


def test_a_forward_that_writes_to_its_input() -> None:
    def written(m: Any, x: Tensor) -> Tensor:
        return m.body(x.sub_(1.0)) * (1.0 if float(x.sum()) > -1e9 else 2.0)

    x = X.clone()
    model = Net(written, body=mlp(6, 8, 4))
    network = found(model, x)
    last = network.run(x, num_steps=64)[-1]
    assert torch.equal(x, X)
    assert relative(last, model(X.clone()).detach()) < 0.02


def test_a_later_call_that_cannot_be_captured() -> None:
    """The part takes another way at its second call, so its own parts are taken."""

    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor, careful: bool = False) -> Tensor:
            hidden = self.one(x)
            return self.two(hidden) if not careful or float(hidden.sum()) > -1e9 else hidden

    model = Net(lambda m, x: m.part(m.part(x), careful=True), part=Fickle())
    assert list(found(model).networks) == ["part.one", "part.two"]


def test_objects_that_hide_tensors() -> None:
    """A tensor inside of an object would be frozen into the graph: such a part is left to its parts."""

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp(6, 6)

        def forward(self, x: Tensor, images: Any) -> Any:
            return SimpleNamespace(x=self.inner(x)), Images(self.inner(x + images.tensors))

    class Images:
        def __init__(self, tensors: Tensor) -> None:
            self.tensors = tensors

    def forward(m: Any, x: Tensor) -> Tensor:
        a, b = m.part(x, Images(x * float(x.sum())))
        return a.x + b.tensors

    def answers(m: Any, x: Tensor) -> Tensor:
        return m.part(x * float(x.sum())).tensors

    class Answer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp(6, 6)

        def forward(self, x: Tensor) -> Any:
            return Images(self.inner(x))

    for model in (Net(forward, part=Hidden()), Net(answers, part=Answer())):
        network = found(model)
        assert list(network.networks) == ["part.inner"]
        for x in (X, -X):
            with torch.no_grad():
                torch.testing.assert_close(network.analog(x), model(x))


def test_one_module_in_two_places() -> None:
    """The second place is the same region again."""
    shared = mlp(6, 6)
    model = Net(sorted_out, body=shared, head=shared)
    assert list(found(model).networks) == ["body"]


def test_saved_and_loaded(tmp_path) -> None:
    model = Net(sorted_out, body=mlp(6, 8, 4), head=mlp(4, 4, 3))
    network = found(model)
    network.save(tmp_path / "net.spikecast")
    loaded = spikecast.load(tmp_path / "net.spikecast", model=model)
    assert torch.equal(loaded.run(X), network.run(X))
    assert note(loaded) == note(network)
    assert note(network.reconfigure(QUICK, [X])) == note(network)


def nothing(m: Any, x: Tensor) -> Tensor:
    return x * float(x.sum()) + m.bias.weight.sum()


def test_what_is_refused() -> None:
    with pytest.raises(ModelError, match=r"regions='auto' finds no part of Net .* has weights; keep Python") as error:
        convert(Net(nothing, bias=nn.Linear(2, 2)), [X], QUICK, regions="auto")
    assert "\n" not in str(error.value)
    weightless = Net(lambda m, x: m.norm(x) * float(x.sum()), norm=nn.LayerNorm(6))
    with pytest.raises(ModelError, match="finds no part"):
        convert(weightless, [X], QUICK, regions="auto")
    with pytest.raises(DataError, match="itself cannot take the call"):
        convert(mlp(6, 3).eval(), [X[:, :2]], QUICK, regions="auto")
    odd = Net(sorted_out, body=nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 4)), head=mlp(4, 3))
    with pytest.raises(StrictError):
        convert(odd, [X], dataclasses.replace(QUICK, overrides={"body.1.input": None}), regions="auto", strict=True)


def forked(m: Any, x: Tensor) -> Tensor:
    """One of two branches, by what is seen."""
    hidden = m.stem(x)
    return m.head(m.dark(hidden) if float(x.mean()) < 0.5 else m.bright(hidden))


def test_a_branch_that_no_batch_took_is_said_when_it_runs() -> None:
    """It runs as in the ANN, and no energy has it; the first run says so, later ones do not."""
    parts = {name: mlp(6, 6, 6) for name in ("stem", "dark", "bright")}
    model = Net(forked, **parts, head=nn.Linear(6, 2))
    dark, bright = torch.zeros(3, 6), torch.ones(3, 6)
    network = found(model, dark)
    network.run(dark)
    with pytest.warns(UserWarning, match=r"bright\.0, bright\.2: outside of the regions.*convert with batches"):
        answers = network.run(bright)
    assert torch.equal(network.run(bright), answers)
    assert [n for n in network.report.notes if n.startswith("bright.0, bright.2: outside of the regions")]
    assert not model.get_submodule("bright.0")._forward_pre_hooks  # the caller's model is as it was


def test_a_branch_of_a_later_batch_is_in_the_report() -> None:
    parts = {name: mlp(6, 6, 6) for name in ("stem", "dark", "bright")}
    model = Net(forked, **parts, head=nn.Linear(6, 2))
    dark, bright = torch.zeros(3, 6), torch.ones(3, 6)
    network = convert(model, [dark, bright], QUICK, regions="auto")
    assert any(n.startswith("bright.0, bright.2: outside of the regions") for n in network.report.notes)
    network.run(bright)  # known, so nothing is warned of
    again = network.reconfigure(dataclasses.replace(QUICK, num_levels=8), [dark])
    again.run(bright)
    assert not any(n.startswith("bright") for n in found(model, dark).report.notes)


def test_a_network_without_neurons_says_so() -> None:
    network = convert(nn.Linear(6, 2).eval(), [X], QUICK)
    assert any("no neuron was put in, so nothing spikes" in n for n in network.report.notes)
    spiking = convert(nn.Linear(6, 2).eval(), [X], dataclasses.replace(QUICK, encode_input=True))
    assert not any("no neuron" in n for n in spiking.report.notes)


def test_a_branch_is_warned_of_at_the_first_step_and_after_loading(tmp_path) -> None:
    """Also by one who takes the first step only, and by a network out of a file; a weight of the root is no layer."""
    parts = {name: mlp(6, 6, 6) for name in ("stem", "dark", "bright")}
    model = Net(forked, **parts, head=nn.Linear(6, 2))
    model.register_parameter("table", nn.Parameter(torch.zeros(2, 6)))
    dark, bright = torch.zeros(3, 6), torch.ones(3, 6)
    network = found(model, dark)
    assert not any("run as in the ANN" in n for n in network.report.notes)
    network.save(tmp_path / "forked.spikecast")
    with pytest.warns(UserWarning, match=r"^bright\.0, bright\.2: outside of the regions"):
        next(iter(network.steps(bright)))
    loaded = spikecast.load(tmp_path / "forked.spikecast", model=model)
    loaded.run(dark)
    with pytest.warns(UserWarning, match=r"^bright\.0, bright\.2: outside of the regions"):
        loaded.run(bright)


def test_watching_leaves_the_fast_way_of_an_encoder() -> None:
    """torch takes another way through its encoder layers where a part of them has a hook."""
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    model = Net(lambda m, x: m.head(m.encoder(x) * (2.0 if float(x.sum()) > 0 else 1.0)), head=mlp(8, 8, 3))
    model.add_module("encoder", encoder)
    network = convert(model, [torch.randn(2, 3, 8)], QUICK, regions=["head"])
    inside = network.model.get_submodule("encoder").modules()
    assert not [module for module in inside if module._forward_pre_hooks]
