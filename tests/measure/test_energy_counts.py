"""Operation counts equal brute force exactly: the Jacobian of each op on ones, entry by entry, step by step."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import spikecast
from spikecast import Config
from spikecast.graph.program import NEURON, Node, Ref, refs, replace_refs, resolve
from spikecast.graph.roles import Role, matmul_operands
from spikecast.measure.energy.meter import Meter
from spikecast.measure.energy.tally import Tally
from spikecast.measure.run import metered_run
from spikecast.network.folded import run_in_chunks
from spikecast.network.states import NeuronStates

T = 4


class Oracle(NeuronStates):
    """Looks on at a run, one step at a time, and counts with dense Jacobians."""

    def __init__(self, snn: spikecast.SpikingNetwork, x: Tensor) -> None:
        super().__init__(snn)
        self.snn, self.program = snn, snn.plan.program
        self.watched = [n.name for n in self.program.nodes]
        self.levels = {name: r.levels for name, r in snn.record(x, num_steps=T).items()}
        self.came_from: dict[str, Any] = {}
        self.before: dict[str, Tensor] = {}
        self.found: dict[tuple[str, str], list[int]] = {}
        execution = snn.execution(self.program)
        self.moving = execution.moving
        execution.start([x], self)
        for t in range(1, T + 1):
            self.t = t
            execution.advance(self)

    def add(self, node: Node, column: str, number: float) -> None:
        assert number == round(number)
        self.found.setdefault((node.name, column), [0] * T)[self.t - 1] += round(number)

    def see(self, node: Node, value: Any, look_up: Any) -> None:
        if node.target == NEURON:
            self.came_from[node.name] = (self.levels[node.kwargs["site"]][self.t - 1] != 0).double()
            return
        role, active = self.program.flow.roles[node.name], self.program.flow.sources[node.name]
        if node.target == "getitem":
            if node.args[0].name in self.came_from:
                self.came_from[node.name] = self.came_from[node.args[0].name][node.args[1]]
        elif isinstance(value, list | tuple):  # parts of a value: nothing is averaged
            if active[0] in self.came_from:
                self.came_from[node.name] = resolve(node.target)(self.came_from[active[0]], *node.args[1:])
        elif role is Role.SHAPE and active and all(name in self.came_from for name in active):
            reach = [self.jacobian(node, look_up, i, ones=False) for i in range(len(active))]
            sums = [(j != 0).double() @ self.came_from[n].flatten() for j, n in zip(reach, active, strict=True)]
            total = sum(sums)
            self.came_from[node.name] = (total.clamp(max=1) if "linear" in node.op else total).reshape(value.shape)
        elif role is Role.SYNAPSE:
            self.synapse(node, look_up, active[0])
        elif role is Role.MATMUL:
            self.product(node, look_up, [r.name for r in matmul_operands(node)])

    def jacobian(self, node: Node, look_up: Any, index: int, *, ones: bool) -> Tensor:
        """d out / d input, [out, in]; with ones for everything that is not the input."""
        active = self.program.flow.sources[node.name]
        place = [i for i, r in enumerate(refs(node.args)) if r.name in active][index]
        x = look_up(list(refs(node.args))[place]).double()

        def function(x: Tensor) -> Tensor:
            counter = iter(range(99))

            def value(ref: Ref) -> Any:
                own = look_up(ref)
                if next(counter) == place:
                    return x
                if not isinstance(own, Tensor) or not own.is_floating_point():
                    return own
                return torch.ones_like(own).double() if ones else own.double()

            return resolve(node.target)(*replace_refs(node.args, value), **node.kwargs)

        with torch.enable_grad():
            found = torch.autograd.functional.jacobian(function, x)
        return found.reshape(-1, x.numel())

    def signal(self, node: Node, name: str, value: Tensor) -> Tensor:
        """Where something is sent that is no spikes."""
        key = f"{node.name}/{name}"
        before, self.before[key] = self.before.get(key), value.clone()
        if self.snn.config.coding == "differential":
            return value != (0 if before is None else before)
        return self.t * value != (self.t - 1) * (0 if before is None else before)

    def synapse(self, node: Node, look_up: Any, name: str) -> None:
        fan_out = (self.jacobian(node, look_up, 0, ones=True) != 0).double().sum(0)
        if self.t == 1:
            self.add(node, "dense", float(fan_out.sum()))
        if name in self.came_from:
            n = self.came_from[name].flatten()
            self.add(node, "events", float((n != 0).double() @ fan_out))
            self.add(node, "spikes", float(n @ fan_out))
        elif node.name in self.moving:
            sent = self.signal(node, name, look_up(Ref(name))).double()
            self.add(node, "analog", float(sent.flatten() @ fan_out))
        else:
            number = float((look_up(Ref(name)) != 0).double().flatten() @ fan_out)
            for t in range(1, T + 1) if self.snn.config.coding == "rate" else [1]:
                self.t = t
                self.add(node, "analog", number)

    def product(self, node: Node, look_up: Any, names: list[str]) -> None:
        values = [look_up(Ref(n)) for n in names]
        sent = [
            (self.came_from[n] != 0) if n in self.came_from else self.signal(node, f"x{i}", v)
            for i, (n, v) in enumerate(zip(names, values, strict=True))
        ]
        held = [(v != 0).double() for v in values]
        before = [self.before.get(f"{node.name}{i}", torch.zeros_like(h)) for i, h in enumerate(held)]
        self.before.update({f"{node.name}{i}": h for i, h in enumerate(held)})

        def pairs(left: Tensor, right: Tensor) -> float:
            both = iter((left.double(), right.double()))
            args = replace_refs(node.args, lambda ref: next(both) if ref.name in names else look_up(ref))
            return float(resolve(node.target)(*args).sum())

        if self.t == 1:
            self.add(node, "dense", pairs(torch.ones_like(held[0]), torch.ones_like(held[1])))
        new = pairs(before[0], sent[1])
        self.add(node, "events", pairs(sent[0], sent[1]) + pairs(sent[0], before[1]) + new)
        self.add(node, "two", pairs(sent[0], held[1]) + new)


class Residual(nn.Module):
    """Two convolutions of other geometry read one neuron, and a third one of the same."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.main = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.short, self.twin = nn.Conv2d(4, 4, 1, stride=2), nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x).relu()
        z = torch.cat([(self.main(y) + self.short(y)).relu(), self.twin(y).relu()], 1)
        return self.head(functional.adaptive_avg_pool2d(z, 1).flatten(1))


class Attention(nn.Module):
    def __init__(self, how: str = "matmul") -> None:
        super().__init__()
        self.how = how
        self.norm, self.qkv, self.out = nn.LayerNorm(6), nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        if self.how == "einsum":
            a = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
            y = torch.einsum("bhij,bhjd->bhid", a, v)
        elif self.how == "bmm":
            a = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).softmax(-1)
            y = torch.bmm(a, v.flatten(0, 1)).unflatten(0, (b, 2))
        else:
            y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(b, n, d))


class Einsum(nn.Module):
    """Spikes and weights in an einsum, whose fan-out nobody knows by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bnd,dhk->bhnk", functional.gelu(x), self.weight).mean((1, 2))


class Gram(nn.Module):
    """A value times itself, and shared weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(self.layer(x).relu()).relu()
        return y @ y.transpose(-1, -2) + torch.matmul(y.mean(1, keepdim=True), y.transpose(1, 2))


class Moved(nn.Module):
    """Spikes that are padded, shuffled, cut and enlarged on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(2, 4, 3), nn.Conv2d(6, 2, 3, dilation=2)
        self.d = nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x).relu()
        z = functional.pad(functional.pixel_shuffle(y, 2), (1, 0, 2, 1))
        left, right = y.chunk(2, 1)
        w = torch.cat([left.flip(-1), right[:, :2]], 1)
        u = functional.interpolate(self.c(functional.interpolate(w, scale_factor=2.0)).relu(), (6, 5))
        return self.b(z).mean((2, 3)).sum(1) + self.d(u).mean((1, 2, 3))


def images(*size: int) -> Tensor:
    x = torch.randn(2, *size, generator=torch.Generator().manual_seed(3))
    return x * (x.abs() > 0.2)  # some zeros, which are not sent


def after(*layers: nn.Module, dims: int = 2) -> nn.Module:
    """The layers behind a convolution and its neurons."""
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    return nn.Sequential(conv(2, 4, 3, padding=1), nn.ReLU(), *layers)


IMAGE = (2, 7, 6)
NETS: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
    "plain": (lambda: after(nn.Conv2d(4, 3, 3)), IMAGE, {}),
    "borders": (lambda: after(nn.Conv2d(4, 3, 3, padding=1)), IMAGE, {}),
    "stride": (lambda: after(nn.Conv2d(4, 3, 3, stride=2, padding=1)), IMAGE, {}),
    "dilation": (lambda: after(nn.Conv2d(4, 3, 3, dilation=2, padding=1)), IMAGE, {}),
    "groups": (lambda: after(nn.Conv2d(4, 6, 3, groups=2, padding=1)), IMAGE, {}),
    "depthwise": (lambda: after(nn.Conv2d(4, 4, 3, groups=4, padding="same")), IMAGE, {}),
    "oblong": (lambda: after(nn.Conv2d(4, 2, (1, 3), stride=(2, 1), padding=(0, 2))), IMAGE, {}),
    "one by one": (lambda: after(nn.Conv2d(4, 5, 1), nn.ReLU6(), nn.Conv2d(5, 1, 1, bias=False)), IMAGE, {}),
    "conv1d": (lambda: after(nn.Conv1d(4, 3, 3, stride=2), dims=1), (2, 9), {}),
    "conv3d": (lambda: after(nn.Conv3d(4, 2, 2, padding=1), dims=3), (2, 3, 4, 3), {}),
    "transposed": (
        lambda: after(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)), IMAGE, {},
    ),
    "transposed dilated": (lambda: after(nn.ConvTranspose1d(4, 2, 3, dilation=2, padding=2), dims=1), (2, 6), {}),
    "average": (lambda: after(nn.AvgPool2d(2), nn.Conv2d(4, 3, 2)), IMAGE, {}),
    "average, borders": (
        lambda: after(nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.Flatten(), nn.Linear(64, 3)),
        IMAGE,
        {},
    ),
    "average 1d": (lambda: after(nn.AvgPool1d(3, 2, 1), nn.Conv1d(4, 2, 2), dims=1), (2, 9), {}),
    "adaptive": (lambda: after(nn.AdaptiveAvgPool2d((3, 4)), nn.Flatten(), nn.Linear(48, 3)), IMAGE, {}),
    "bilinear": (lambda: after(nn.Upsample(size=(9, 9), mode="bilinear"), nn.Conv2d(4, 2, 3)), IMAGE, {}),
    "pooled": (lambda: after(nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 3, 3, padding=1)), IMAGE, {}),
    "residual": (Residual, IMAGE, {}),
    "residual, rate": (Residual, IMAGE, {"coding": "rate"}),
    "unsigned": (Residual, IMAGE, {"coding": "rate", "signed": False, "num_levels": 1, "initial_potential": 0.5}),
    "moved": (Moved, IMAGE, {}),
    "encoded input": (lambda: after(nn.Conv2d(4, 3, 3)), IMAGE, {"encode_input": True}),
    "analog": (lambda: after(nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)), IMAGE, {"overrides": {"1": None}}),
    "analog inside": (
        lambda: after(nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)), IMAGE, {"overrides": {"3": None}},
    ),
    "analog inside, rate": (
        lambda: after(nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)),
        IMAGE,
        {"overrides": {"3": None}, "coding": "rate"},
    ),
    "attention": (Attention, (5, 6), {}),
    "attention, rate": (Attention, (5, 6), {"coding": "rate"}),
    "einsum": (Einsum, (5, 6), {}),
    "attention, bmm": (lambda: Attention("bmm"), (5, 6), {}),
    "attention, einsum": (lambda: Attention("einsum"), (5, 6), {}),
    "attention, analog factor": (Attention, (5, 6), {"overrides": {"*.right": None}}),
    "gram": (Gram, (4, 5), {}),
}  # fmt: skip


def converted(name: str, **changes: Any) -> tuple[spikecast.SpikingNetwork, Tensor]:
    make, size, settings = NETS[name]
    torch.manual_seed(1)
    x = images(*size)
    config = Config(**{"num_steps": T, "num_levels": 3, "thresholds": "quantile", **settings, **changes})
    return spikecast.convert(make().eval(), [x], config), x


@pytest.mark.parametrize("name", NETS)
def test_counts_equal_brute_force(name: str) -> None:
    snn, x = converted(name)
    oracle = Oracle(snn, x)
    tally = Tally(T)
    answers = metered_run(snn, ((x,), {}), tally)
    assert torch.equal(answers, snn.run(x, num_steps=T))
    assert tally.samples == 2
    counted = {
        (op, column): numbers
        for op, line in tally.lines.items()
        for column, numbers in line.columns.items()
        if column in ("dense", "events", "spikes", "analog", "two")
    }
    assert counted == oracle.found
    assert any(sum(numbers) for (_, column), numbers in counted.items() if column == "events")
    for line in tally.lines.values():
        if line.target in snn.sites:
            levels = oracle.levels[line.target]
            assert line["fired"].tolist() == (levels != 0).flatten(1).sum(1).tolist()
            assert line["updates"].tolist() == [levels[0].numel()] * T


@pytest.mark.parametrize("name", ["residual", "moved", "attention", "analog inside, rate", "gram", "average, borders"])
def test_counts_do_not_depend_on_how_it_is_run(name: str) -> None:
    snn, x = converted(name)
    whole, parts, steps = Tally(T), Tally(T), Tally(T)
    metered_run(snn, ((x,), {}), whole)
    for one in x.split(1):
        metered_run(snn, ((one,), {}), parts)
    plan, tensors = snn.prepare_call((x,), {})
    with torch.no_grad():
        run_in_chunks(snn, plan.program, tensors, T, max_batch=2, neurons=lambda e: Meter(snn, e, steps))
    assert parts.to_json() == whole.to_json()
    assert steps.to_json()["lines"] == whole.to_json()["lines"]
    assert Tally.from_json(json.loads(json.dumps(whole.to_json()))).to_json() == whole.to_json()
    again = Tally(T)
    again.merge(whole)
    again.merge(whole)
    assert all((again.lines[n][c] == 2 * line[c]).all() for n, line in whole.lines.items() for c in line.columns)


def test_loaded_network_counts_the_same(tmp_path) -> None:
    snn, x = converted("attention")
    snn.save(tmp_path / "net")
    first, second = Tally(T), Tally(T)
    metered_run(snn, ((x,), {}), first)
    metered_run(spikecast.load(tmp_path / "net"), ((x,), {}), second)
    assert first.to_json() == second.to_json()
