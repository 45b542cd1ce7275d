"""Where neurons go: rectifiers become sites, weighted ops are fed by spikes, and nothing else gets one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.conversion.planning import plan
from spikecast.errors import ConfigError
from spikecast.graph.capture.clean import clean
from spikecast.graph.capture.export import capture
from spikecast.graph.capture.simplify import simplify
from spikecast.graph.program import NEURON
from spikecast.network.spiking import neuron_of


def conv(size=3, channels=4):
    return nn.Conv2d(channels, 4, size, padding=size // 2)


class Case(nn.Module):
    """Three convs and a linear, put together by a function."""

    def __init__(self, function, channels=4) -> None:
        super().__init__()
        self.function = function
        self.a, self.b, self.c, self.d = conv(channels=channels), conv(), conv(), conv(channels=8)
        self.line = nn.Linear(4, 4)

    def forward(self, x):
        return self.function(self, x)


class Side(nn.Module):
    """Many cases side by side, captured at one go."""

    def __init__(self, models) -> None:
        super().__init__()
        self.models = models

    def forward(self, x):
        return [model(x) for model in self.models.values()]


def pool_and_more(m, x):
    y = m.a(x).relu()
    return m.b(F.max_pool2d(y, 2)).sum((2, 3)) + y.mean((2, 3))


def pool_and_answer(m, x):
    y = m.a(x).relu()
    return m.b(F.max_pool2d(y, 2)), y


def product(m, x):
    q, k, v = (f(x).flatten(2).mT.unflatten(2, (2, 2)).transpose(1, 2) for f in (m.a, m.b, m.c))
    return torch.softmax(q @ k.mT, -1) @ v


CASES = {
    "chain": lambda m, x: m.c(F.gelu(m.b(m.a(x).relu()))),
    "shared": lambda m, x: (lambda y: m.b(y) + m.c(y))(F.gelu(m.a(x))),
    "shared_relu": lambda m, x: (lambda y: m.b(y) + m.c(y))(F.relu(m.a(x))),
    "norm": lambda m, x: m.b(F.group_norm(m.a(x).relu(), 2)),
    "residual": lambda m, x: (lambda y: m.c(m.b(y) + y))(F.relu(m.a(x))),
    "gate": lambda m, x: m.b(m.a(x).relu() * torch.sigmoid(m.c(x))),
    "mixed": lambda m, x: m.d(torch.cat([m.a(x).relu(), m.b(x)], 1)),
    "mixed_moved": lambda m, x: m.d(F.avg_pool2d(torch.cat([F.silu(m.b(x)), m.a(x).relu()], 1).flip(2), 2)),
    "no_part": lambda m, x: m.d(torch.cat([F.silu(m.a(x)), m.b(x)], 1)),
    "all_parts": lambda m, x: m.d(torch.cat([m.a(x).relu(), F.relu6(m.b(x))], 1)),
    "pool": lambda m, x: m.b(F.max_pool2d(m.a(x).relu(), 3, 2, 1)),
    "pool_concat": lambda m, x: m.d(F.max_pool2d(torch.cat([m.a(x).relu(), m.b(x).relu()], 1), 2)),
    "pool_uneven": lambda m, x: m.d(F.max_pool2d(torch.cat([m.a(x).relu(), F.relu6(m.b(x))], 1), 2)),
    "pool_used": pool_and_more,
    "pool_answer": pool_and_answer,
    "pool_gelu": lambda m, x: m.b(F.max_pool2d(F.gelu(m.a(x)), 2)),
    "pool_twice": lambda m, x: m.b(F.max_pool2d(F.max_pool2d(m.a(x).relu(), 2), 2)),
    "average": lambda m, x: m.line(F.avg_pool2d(m.a(x).relu(), 2).mean((2, 3))),
    "averages": lambda m, x: m.line(F.adaptive_avg_pool2d(m.a(x).relu(), 1).flatten(1)),
    "moved": lambda m, x: m.line(m.a(x).relu().permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)[:, ::2]),
    "scaled": lambda m, x: m.b(m.a(x).relu() * 2),
    "last": lambda m, x: m.line(F.gelu(m.line(x.movedim(1, -1)))),
    "product": product,
    "weight_left": lambda m, x: m.line.weight @ F.gelu(m.a(x).flatten(2)),
    "weight_right": lambda m, x: F.gelu(m.a(x).flatten(2).mT) @ m.line.weight,
    "flat_product": lambda m, x: (lambda y: y @ y.mT)(F.gelu(m.a(x).flatten(2))),
}


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    models = nn.ModuleDict({name: Case(function) for name, function in CASES.items()})
    x = torch.randn(3, 4, 8, 8)
    return simplify(clean(capture(Side(models).eval(), (x,))))


@pytest.fixture(scope="module")
def planned(program):
    return plan(program, Config())


def sites(planned, case) -> dict[str, Any]:
    prefix = f"models.{case}."
    return {name.removeprefix(prefix): site for name, site in planned.sites.items() if name.startswith(prefix)}


def fed(planned, case) -> dict[str, str]:
    """What feeds each weighted op of a case, by its module."""
    nodes = planned.program.nodes
    ops = [n for n in nodes if f"{n.scope}.".startswith(f"models.{case}.") and n.name in planned.fed]
    return {n.scope.removeprefix(f"models.{case}").lstrip(".") or n.op: planned.fed[n.name] for n in ops}


EXPECTED = {
    "chain": {"relu", "c.input"},
    "shared": {"b.input"},
    "shared_relu": {"relu"},
    "norm": {"relu", "b.input"},
    "residual": {"relu", "c.input"},
    "gate": {"relu", "b.input"},
    "mixed": {"relu", "d.input.1"},
    "mixed_moved": {"relu", "d.input.0"},
    "no_part": {"d.input"},
    "all_parts": {"relu", "relu6"},
    "pool": {"relu"},
    "pool_concat": {"max_pool2d"},
    "pool_uneven": {"relu", "relu6", "d.input"},
    "pool_used": {"relu", "b.input"},
    "pool_answer": {"relu", "b.input"},
    "pool_gelu": {"b.input"},
    "pool_twice": {"relu", "b.input"},
    "average": {"relu"},
    "averages": {"relu"},
    "moved": {"relu"},
    "scaled": {"relu", "b.input"},
    "last": {"line.input"},
    "product": {"matmul.left", "matmul.right", "matmul.left#2", "matmul.right#2"},
    "weight_left": {"matmul.input"},
    "weight_right": {"matmul.input"},
    "flat_product": {"matmul.left", "matmul.right"},
}


@pytest.mark.parametrize("case", CASES)
def test_sites(case, planned) -> None:
    assert set(sites(planned, case)) == EXPECTED[case]


@pytest.mark.parametrize("case", CASES)
def test_every_weighted_op_is_fed_by_spikes(case, planned) -> None:
    """By a walk over the graph that knows nothing of the plan: back through ops that only move values."""
    nodes = {n.name: n for n in planned.program.nodes}
    inputs = {i.name for i in planned.program.inputs}
    tensors = inputs | {n.name for n in nodes.values() if n.meta is not None}  # neither weights nor sizes
    moves = ("cat", "pool", "mean", "sum", "reshape", "permute", "transpose", "flip", "slice", "unsqueeze", "numpy_T")

    def senders(name):
        node = nodes.get(name)
        if node is None or node.target == NEURON or not any(m in node.op for m in moves):
            return {name}
        return set().union(*(senders(r) for r in node.inputs if r in tensors))

    weighted = [n for n in nodes.values() if n.name in planned.fed and f"{n.scope}.".startswith(f"models.{case}.")]
    assert weighted
    for node in weighted:
        found = set().union(*(senders(r) for r in node.inputs if r in tensors))
        spiking = all(name in nodes and nodes[name].target == NEURON for name in found)
        assert spiking == (planned.fed[node.name] == "spikes")
        assert spiking or found <= inputs  # the first layer may read the image


def test_intervals(planned) -> None:
    assert (sites(planned, "all_parts")["relu6"].lower, sites(planned, "all_parts")["relu6"].upper) == (0, 6)
    for case, names in EXPECTED.items():
        for name in names:
            site = sites(planned, case)[name]
            identity = ".input" in name or ".left" in name or ".right" in name
            assert site.is_rectifier is not identity
            assert identity or site.lower == 0.0
            assert not identity or (site.lower, site.upper) == (-math.inf, math.inf)


AXES = [
    ("chain", "relu", 1),
    ("chain", "c.input", 1),
    ("mixed", "d.input.1", 1),
    ("pool", "relu", 1),
    ("average", "relu", 1),
    ("moved", "relu", 1),
    ("last", "line.input", 3),
    ("product", "matmul.left", 1),
    ("product", "matmul.right#2", 1),
    ("weight_left", "matmul.input", 1),
    ("weight_right", "matmul.input", 2),
    ("flat_product", "matmul.left", None),
]


@pytest.mark.parametrize(("case", "name", "axis"), AXES, ids=[f"{c} {n}" for c, n, _ in AXES])
def test_feature_axis(case, name, axis, planned) -> None:
    assert sites(planned, case)[name].axis == axis


def test_neuron_behind_the_pool(planned) -> None:
    nodes = {n.name: n for n in planned.program.nodes}

    def read_by(case, name):
        neuron = next(n for n in nodes.values() if n.kwargs.get("site") == f"models.{case}.{name}")
        return nodes[neuron.args[0].name].op

    for case, name in (("pool", "relu"), ("pool_concat", "max_pool2d")):
        assert "max_pool" in read_by(case, name)
        assert f"models.{case}.{name}" in planned.moved.values()
        assert not any(n.scope == f"models.{case}" and "relu" in n.op for n in nodes.values())
    assert read_by("pool_used", "relu") == "aten.conv2d"
    assert "max_pool" in read_by("pool_used", "b.input")
    assert "max_pool" in read_by("pool_twice", "relu")
    moved = set(planned.moved.values())
    assert not any(f"models.{c}." in s for s in moved for c in ("pool_used", "pool_answer", "pool_uneven", "pool_gelu"))


@pytest.mark.parametrize("pool", [nn.AdaptiveMaxPool2d(3), nn.MaxPool2d(2, return_indices=True)], ids=["all", "index"])
def test_pools_with_indices(pool) -> None:
    """They have two results; the next conv must be fed by spikes all the same."""

    def function(m, x):
        y = pool(F.relu6(m.a(x)))
        return m.b(y[0] if isinstance(y, tuple) else y)

    planned = plan(simplify(clean(capture(Case(function).eval(), (torch.randn(2, 4, 8, 8),)))), Config())
    assert sorted(planned.fed.values()) == ["analog input", "spikes"]
    assert "relu6" in planned.sites
    assert set(planned.sites) <= {"relu6", "b.input"}


def test_only_the_first_layer_reads_the_image(planned) -> None:
    assert fed(planned, "chain") == {"a": "analog input", "b": "spikes", "c": "spikes"}
    assert fed(planned, "gate")["c"] == "analog input"
    assert fed(planned, "last")["line"] == "spikes"  # called twice: the second call


def test_encode_input(program, planned) -> None:
    """One more site, which all readers of the image share; who reads it turned round has one of its own."""
    encoded = plan(program, Config(encode_input=True))
    assert set(encoded.sites) - set(planned.sites) == {"models.chain.a.input", "models.last.line.input#2"}
    assert set(encoded.fed.values()) == {"spikes"}
    site = encoded.sites["models.chain.a.input"]
    assert (site.axis, site.is_rectifier, site.source) == (1, False, program.inputs[0].name)


def test_inputs_of_a_region_are_not_images(program) -> None:
    planned = plan(program, Config(), raw_inputs=False)
    assert set(planned.fed.values()) == {"spikes"}


def test_override_none_leaves_it_analog(program) -> None:
    planned = plan(program, Config(overrides={"models.chain.*": None, "models.chain.relu": {"num_levels": 2}}))
    assert set(sites(planned, "chain")) == {"relu"}
    assert fed(planned, "chain") == {"a": "analog input", "b": "spikes", "c": "analog (override)"}
    assert any(n.op == "aten.gelu" and n.scope == "models.chain" for n in planned.program.nodes)
    planned = plan(program, Config(overrides={"models.chain.relu": None, "models.pool.relu": None}))
    relus = [n.scope for n in planned.program.nodes if n.op == "aten.relu"]
    assert relus == ["models.chain", "models.pool"]  # still rectified, only not by neurons
    assert set(sites(planned, "chain")) == {"b.input", "c.input"}
    assert set(sites(planned, "pool")) == {"b.input"}


def test_settings_of_one_site(planned) -> None:
    config = Config(num_levels=5, overrides={"*.pool.*": {"num_levels": 2, "firing_boundary": 0.7}})
    near, far = (neuron_of(planned.sites[f"models.{name}"], config) for name in ("pool.relu", "chain.c.input"))
    assert (near.num_levels, near.firing_boundary, near.lower) == (2, 0.7, 0.0)
    assert (far.num_levels, far.firing_boundary, far.lower) == (5, 0.75, -math.inf)


@pytest.mark.parametrize(
    "site", ["chain.c.input", "mixed.d.input.1", "product.matmul.left#2", "pool_concat.max_pool2d"]
)
def test_every_site_can_be_left_out(site, program, planned) -> None:
    name = f"models.{site}"
    assert name in planned.sites
    left = plan(program, Config(overrides={name: None}))
    assert name not in left.sites
    assert "analog (override)" in left.fed.values() or "pool" in site


@pytest.mark.parametrize("pattern", ["models.chain.relo", "nothing*", "models.pool.a"])
def test_unknown_pattern(pattern, program) -> None:
    with pytest.raises(ConfigError, match="no site is called") as error:
        plan(program, Config(overrides={pattern: None}))
    assert pattern in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_of_no_neurons_is_left_analog() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 0), nn.ReLU(), nn.Linear(0, 2)), torch.randn(2, 4)
    snn = convert(model.eval(), [x], Config(num_steps=2))
    assert list(snn.sites) == ["1"]
    assert torch.equal(snn.run(x)[-1], model(x))


class Clamps(nn.Module):
    """All the ways to clamp, each behind a linear of its own."""

    WAYS = (
        ("relu", torch.relu, (0, math.inf)),
        ("relu6", F.relu6, (0, 6)),
        ("hardtanh", F.hardtanh, (-1, 1)),
        ("hardtanh_wide", lambda x: F.hardtanh(x, -2, 3), (-2, 3)),
        ("clamp", lambda x: x.clamp(-0.5, 2), (-0.5, 2)),
        ("clamp_min", lambda x: x.clamp(min=0), (0, math.inf)),
        ("clamp_max", lambda x: x.clamp(max=0.0), (-math.inf, 0)),
        ("threshold", lambda x: F.threshold(x, 0.0, 0.0), (0, math.inf)),
        ("lacks_zero", lambda x: x.clamp(0.5, 2), None),
        ("epsilon", lambda x: x.clamp_min(1e-6), None),
        ("below", lambda x: x.clamp_max(-0.1), None),
        ("jump", lambda x: F.threshold(x, 1.0, 0.0), None),
        ("low_threshold", lambda x: F.threshold(x, -1.0, 0.0), None),
        ("tensor", lambda x: x.clamp(min=x.mean()), None),
        ("leaky", lambda x: F.leaky_relu(x, 0.1), None),
    )

    def __init__(self) -> None:
        super().__init__()
        self.lines = nn.ModuleList([nn.Linear(4, 4) for _ in self.WAYS])
        self.outs = nn.ModuleList([nn.Linear(4, 4) for _ in self.WAYS])

    def forward(self, x):
        return [o(way(line(x))) for o, line, (_, way, _) in zip(self.outs, self.lines, self.WAYS, strict=True)]


def test_clamps_and_their_intervals() -> None:
    planned = plan(simplify(clean(capture(Clamps().eval(), (torch.randn(3, 4),)))), Config())
    nodes = {n.name: n for n in planned.program.nodes}
    for i, (name, _, interval) in enumerate(Clamps.WAYS):
        line = next(n for n in nodes.values() if n.scope == f"outs.{i}" and n.op == "aten.linear")
        site = planned.sites[nodes[line.args[0].name].kwargs["site"]]
        assert (site.lower, site.upper) == (interval or (-math.inf, math.inf)), name
        source = nodes[nodes[line.args[0].name].args[0].name]
        assert (source.scope == f"lines.{i}") == (interval is not None), name
