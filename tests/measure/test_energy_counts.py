"""Operation counts equal brute force exactly: the Jacobian of each op on ones, entry by entry, step by step."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

import spikecast
from spikecast import Config
from spikecast.graph.program import NEURON, Node, Ref, refs, replace_refs, resolve
from spikecast.graph.roles import Role, matmul_operands
from spikecast.network.chunks import run_in_chunks
from spikecast.network.counting.meter import Meter, metered_run
from spikecast.network.counting.tally import Tally
from spikecast.network.states import NeuronStates
from tests.nets import COUNTED, sparse

T = 4


class Oracle(NeuronStates):
    """Looks on at a run, one step at a time, and counts with dense Jacobians."""

    def __init__(self, snn: spikecast.SpikingNetwork, x: Tensor) -> None:
        super().__init__(snn)
        self.snn, self.program = snn, snn.plan.program
        self.watched = [n.name for n in self.program.nodes]
        self.levels = {name: r.levels for name, r in snn.record(x, num_steps=T).items()}
        self.came_from: dict[str, Any] = {}  # how many spikes an entry came from, and how many of the fullest neuron
        self.fullest: dict[str, Any] = {}
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
            pulses = (self.levels[node.kwargs["site"]][self.t - 1] != 0).sum(0).double()
            self.came_from[node.name] = self.fullest[node.name] = pulses
            return
        role, active = self.program.flow.roles[node.name], self.program.flow.sources[node.name]
        if node.target == "getitem":
            if node.args[0].name in self.came_from:
                for own in (self.came_from, self.fullest):
                    own[node.name] = own[node.args[0].name][node.args[1]]
        elif isinstance(value, list | tuple):  # parts of a value: nothing is averaged
            if active[0] in self.came_from:
                for own in (self.came_from, self.fullest):
                    own[node.name] = resolve(node.target)(own[active[0]], *node.args[1:])
        elif role is Role.SHAPE and active and all(name in self.came_from for name in active):
            reach = [self.jacobian(node, look_up, i, ones=False) for i in range(len(active))]
            sums = [(j != 0).double() @ self.came_from[n].flatten() for j, n in zip(reach, active, strict=True)]
            most = [((j != 0) * self.fullest[n].flatten()).amax(1) for j, n in zip(reach, active, strict=True)]
            fullest = torch.stack(most).amax(0).reshape(value.shape)
            total = torch.stack(sums).sum(0).reshape(value.shape)
            self.fullest[node.name] = fullest
            self.came_from[node.name] = fullest if "linear" in node.op else total
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
            self.add(node, "events", float(self.fullest[name].flatten() @ fan_out))
            self.add(node, "spikes", float(self.came_from[name].flatten() @ fan_out))
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
            self.fullest[n] if n in self.came_from else self.signal(node, f"x{i}", v)
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


def converted(name: str, **changes: Any) -> tuple[spikecast.SpikingNetwork, Tensor]:
    make, size, settings = COUNTED[name]
    torch.manual_seed(1)
    x = sparse(*size)
    config = Config(**{"num_steps": T, "num_levels": 3, "thresholds": "quantile", **settings, **changes})
    return spikecast.convert(make().eval(), [x], config), x


@pytest.mark.parametrize("burst", [1, 3])
@pytest.mark.parametrize("name", COUNTED)
def test_counts_equal_brute_force(name: str, burst: int) -> None:
    snn, x = converted(name, burst=burst)
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
            pulses = (levels != 0).sum(1).flatten(1)
            assert line["fired"].tolist() == pulses.sum(1).tolist()
            assert line["neurons"].tolist() == [pulses.shape[1]] * T
            assert line["updates"].tolist() == pulses.clamp(min=1).sum(1).tolist()


@pytest.mark.parametrize("name", ["residual", "moved", "attention", "analog inside, rate", "gram", "average, borders"])
def test_counts_do_not_depend_on_how_it_is_run(name: str) -> None:
    snn, x = converted(name, burst=2)
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
    for name, line in whole.lines.items():
        assert again.lines[name].columns == {c: [2 * n for n in numbers] for c, numbers in line.columns.items()}


def test_loaded_network_counts_the_same(tmp_path) -> None:
    snn, x = converted("attention")
    snn.save(tmp_path / "net")
    first, second = Tally(T), Tally(T)
    metered_run(snn, ((x,), {}), first)
    metered_run(spikecast.load(tmp_path / "net"), ((x,), {}), second)
    assert first.to_json() == second.to_json()
