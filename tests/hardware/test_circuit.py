"""The circuit read off a network says the same as the network: values, signals, paths, and who is left to the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import spikecast
from spikecast import Config
from spikecast.errors import DataError, ModelError
from spikecast.hardware.circuit import circuit as module
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Feed
from spikecast.network.states import NeuronStates
from tests.nets import Net, stir_norms


class Residual(nn.Module):
    """A ResNet with a slice-and-pad shortcut, as on CIFAR, and an average at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.a, self.b = nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.stem(x)).relu()
        short = functional.pad(y[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))
        z = (self.b(self.a(y).relu()) * 0.5 + short).relu()
        return self.head(functional.avg_pool2d(z, z.size(3)).view(z.size(0), -1))


class Concat(nn.Module):
    """One neuron used twice, a concat, a chunk, a transposed convolution, and a sum of a value with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.up = nn.Conv2d(2, 4, 3, padding=1), nn.ConvTranspose2d(6, 2, 2, stride=2)
        self.left, self.right = nn.Conv2d(4, 2, 1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x).relu()
        z = torch.cat([self.left(y).relu(), self.right(y).relu()], 1)
        first, second = z.flip(-1).chunk(2, 1)
        return self.up(z).mean((2, 3)) + (first + first - second).sum((2, 3))[:, :2]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out, self.head = nn.LayerNorm(6), nn.Linear(6, 18), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, 2, 3)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return self.head(functional.gelu(x).mean(1))


NETS: dict[str, Net] = {
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 3, stride=2, padding=1),
            nn.ReLU6(), nn.Flatten(), nn.Linear(12, 5),
        ), (2, 8, 8), {},
    ),
    "max pool": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2)), (2, 8, 8), {},
    ),
    "encoded": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 3)), (2, 4), {"encode_input": True}),
    "residual": (Residual, (2, 8, 8), {}),
    "concat": (Concat, (2, 4, 6), {}),
    "transformer": (Block, (5, 6), {}),
}  # fmt: skip


def converted(name: str) -> tuple[spikecast.SpikingNetwork, Tensor]:
    make, size, settings = NETS[name]
    torch.manual_seed(2)
    model = stir_norms(make().eval().double())
    x = torch.randn(3, *size).double()
    return spikecast.convert(model, [x], Config(num_steps=3, thresholds="quantile", **settings)), x


class Values(NeuronStates):
    """All values of a run, at its second step."""

    def __init__(self, snn: spikecast.SpikingNetwork, x: Tensor) -> None:
        super().__init__(snn)
        program = snn.plan.program
        self.watched = [n.name for n in program.nodes]
        self.found: dict[str, Any] = {program.inputs[0].name: x}
        execution = snn.execution(program)
        execution.start([x], self)
        for t in (1, 2):
            self.t = t
            execution.advance(self)

    def see(self, node: Any, value: Any, look_up: Any) -> None:
        self.found[node.name] = value.clone() if isinstance(value, Tensor) else value


def all_feeds(circuit: Circuit) -> list[Feed]:
    return [
        *(layer.feed for layer in circuit.layers),
        *circuit.outputs,
        *(feed for op in circuit.host_ops for feed in op.feeds),
    ]


@pytest.mark.parametrize("name", NETS)
def test_feeds_hold_what_the_network_holds(name: str) -> None:
    """From the values of the sources alone every target follows, for any batch."""
    snn, x = converted(name)
    circuit, values = Circuit(snn), Values(snn, x).found
    assert [layer.name for layer in circuit.layers] == list(snn.sites)
    checked = 0
    for feed in all_feeds(circuit):
        estimates = {s.value: values[s.value] for s in feed.sources}
        found = circuit.value(feed, estimates, 3)
        expected = values.get(feed.target)
        if isinstance(expected, Tensor) and feed.nodes:
            assert torch.allclose(found, expected, atol=1e-10)
            checked += 1
        signals = circuit.signal(feed, estimates, 3)
        constant = circuit.constant(feed)
        if constant.shape != found.shape:
            constant = constant.expand_as(found)
        assert torch.allclose(found, constant + signals, atol=1e-10)
    assert checked


@pytest.mark.parametrize("name", NETS)
def test_paths_add_up_and_are_matrices(name: str) -> None:
    snn, _ = converted(name)
    circuit = Circuit(snn)
    for feed in all_feeds(circuit):
        signals = {s.value: torch.randn_like(circuit.blank(s.value)) for s in feed.sources}
        paths = circuit.paths(feed)
        parts = [circuit.along(p.links, signals[p.source.value]) for p in paths]
        total = sum(parts, torch.zeros(()).double())
        assert torch.allclose(circuit.signal(feed, signals), total, atol=1e-10)
        for path, part in zip(paths, parts, strict=True):
            assert len(path.synapses) <= 1
            weights = circuit.matrix(path)
            assert torch.allclose(weights @ signals[path.source.value].flatten(), part.flatten(), atol=1e-10)


def test_layers_of_a_residual_network() -> None:
    snn, _ = converted("residual")
    circuit = Circuit(snn)
    assert circuit.host_ops == ()
    last = circuit.layers[-1]
    assert (last.shape, last.axis, tuple(last.threshold.shape)) == ((8, 4, 4), 0, (8, 1, 1))
    assert last.neuron.lower == 0
    short, main = sorted(circuit.paths(last.feed), key=lambda p: len(p.synapses))
    assert [short.source.site, main.source.site] == [circuit.layers[0].name, circuit.layers[1].name]
    assert [n.op for n in main.nodes][-1] == "aten.add"
    assert not short.synapses
    assert all(s.moves for s in last.feed.sources)
    (image,) = circuit.layers[0].feed.sources
    assert (image.kind, image.site, image.moves, image.shape) == ("input", None, False, (2, 8, 8))
    bias = circuit.tensors[circuit.outputs[0].nodes[-1].args[2].name]
    assert torch.equal(circuit.constant(circuit.outputs[0])[0], bias)


def test_a_value_used_twice_has_a_path_for_each_use() -> None:
    snn, _ = converted("concat")
    circuit = Circuit(snn)
    (feed,) = circuit.outputs
    by_source: dict[str | None, int] = {}
    for path in circuit.paths(feed):
        by_source[path.source.site] = by_source.get(path.source.site, 0) + 1
    assert by_source == {s.site: 4 for s in feed.sources}  # through the convolution, and three times beside it


def test_what_is_not_linear_is_the_hosts() -> None:
    snn, _ = converted("transformer")
    circuit = Circuit(snn)
    ops = [op.op for op in circuit.host_ops]
    assert ops.count("matmul") == 2
    assert {"layer_norm", "gelu"} <= set(ops)
    assert any("softmax" in op for op in ops)
    norm = next(op for op in circuit.host_ops if op.op == "layer_norm")
    assert (norm.scope, norm.moves) == ("norm", False)
    assert all(op.moves for op in circuit.host_ops if op is not norm)
    first = circuit.layers[0].feed
    assert [(s.kind, s.value) for s in first.sources] == [("host", norm.name)]


def test_max_pool_before_the_neurons_is_the_hosts() -> None:
    snn, _ = converted("max pool")
    (pool,) = Circuit(snn).host_ops
    assert (pool.op, pool.moves) == ("max_pool2d", False)


def test_other_sizes() -> None:
    snn, _ = converted("concat")
    x = torch.randn(2, 2, 6, 8).double()
    assert Circuit(snn, (x,)).layers[0].shape == (4, 6, 8)


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    snn, _ = converted("concat")
    circuit = Circuit(snn)
    path = circuit.paths(circuit.outputs[0])[0]
    monkeypatch.setattr(module, "MAX_PATHS", 3)
    monkeypatch.setattr(module, "MAX_MATRIX", 3)
    with pytest.raises(ModelError, match="more than 3 paths"):
        circuit.paths(circuit.outputs[0])
    with pytest.raises(DataError, match="the bound is 3"):
        circuit.matrix(path)
    assert "3 layers" in repr(circuit)
