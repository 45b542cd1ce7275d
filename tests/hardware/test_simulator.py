"""Event by event the simulator computes what the network computes, and counts what `measure.energy` counts."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.hardware import record_events, stream_events
from spikecast.hardware.events._scatter import RING
from spikecast.hardware.events.simulator import Simulator, totals
from spikecast.hardware.events.stream import COLUMNS, joined
from spikecast.hardware.events.tables import Table, table_of
from spikecast.measure import energy
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Tally
from tests.nets import COUNTED, Net, sparse

T = 12

BURSTS = pytest.mark.parametrize("burst", [1, 3])

# Depend on spikes and are not linear in them.
REFUSED = [name for name in COUNTED if name.startswith(("attention", "analog inside"))] + ["gram"]


class Trunk(nn.Module):
    """Linear bottlenecks, as in MobileNetV2: a sum goes on without neurons, and identity neurons read it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.wide, self.narrow = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 4, 1)
        self.again, self.head = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Linear(4, 3)
        self.register_buffer("scale", torch.rand(1, 4, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        y = y + self.narrow(self.wide(y).clamp(-0.5, 1.0))
        y = (y + self.again(y)) * self.scale - 0.1
        z = torch.stack([y + y, y.relu()], 1).sum(1) @ torch.linspace(-1, 1, 12).reshape(6, 2).to(y)
        return self.head(z.mean((2, 3))) + y.mean((2, 3))[:, 1:]


class Scaled(nn.Module):
    """Spikes that are scaled, and so no spikes any more; here by 1, so that they keep their wires' values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 3, 3)
        self.register_buffer("scale", torch.ones(1, 4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu() * self.scale)


EXTRA: dict[str, Net] = {
    "scaled": (Scaled, (2, 7, 6), {}),
    "scaled, analog": (Scaled, (2, 7, 6), {"overrides": {"last.input": None}}),
    "trunk": (Trunk, (2, 7, 6), {}),
    "trunk, rate": (Trunk, (2, 7, 6), {"coding": "rate"}),
    "trunk, half full": (Trunk, (2, 7, 6), {"coding": "rate", "initial_potential": 0.5, "num_levels": 1}),
    "trunk, by neuron": (Trunk, (2, 7, 6), {"granularity": "neuron", "firing_boundary": 0.7, "encode_input": True}),
    "trunk, behind": (Trunk, (2, 7, 6), {"initial_potential": -0.6}),
    "residual, by site": (*COUNTED["residual"][:2], {"overrides": {"relu#2": {"burst": 2}}}),
    "residual, by site, rate": (
        *COUNTED["residual"][:2],
        {"overrides": {"relu": {"burst": 2}, "relu#3": {"burst": 4}}, "coding": "rate"},
    ),
}
BOTH = {**{name: COUNTED[name] for name in COUNTED if name not in (*REFUSED, "einsum")}, **EXTRA}


@functools.cache
def converted(name: str, burst: int = 1) -> tuple[spikecast.SpikingNetwork, Tensor]:
    """In float64 no spike hangs on the last bit."""
    make, size, settings = (COUNTED | EXTRA)[name]
    torch.manual_seed(1)
    x = sparse(*size).double()
    settings = {"num_steps": T, "num_levels": 3, "burst": burst, "thresholds": "quantile", **settings}
    if burst > 1 and "initial_potential" in settings:
        settings["initial_potential"] *= 2.0 ** -settings["num_levels"]
    return spikecast.convert(make().eval().double(), [x], Config(**settings)), x


def counted(simulator: Simulator, tally: Tally, columns: tuple[str, ...] = ("events", "spikes", "analog")) -> None:
    """Every number of the meter, op by op and step by step."""
    for column in columns:
        theirs = {op: line.columns[column] for op, line in tally.lines.items() if column in line.columns}
        mine = {op: found[column] for op, found in simulator.counts.items() if column in found}
        length = tally.num_steps
        mine = {op: numbers + [0] * (length - len(numbers)) for op, numbers in mine.items()}
        assert mine == theirs, column
        assert column != "events" or not mine or any(map(sum, mine.values()))


@BURSTS
@pytest.mark.parametrize("name", BOTH)
def test_it_runs_and_counts_as_the_network(name: str, burst: int) -> None:
    """It computes the neurons itself: spikes, answers and counts are those of the value view."""
    snn, x = converted(name, burst)
    simulator, tally = Simulator(snn), Tally(T)
    expected = metered_run(snn, ((x,), {}), tally)
    assert torch.allclose(simulator.run(x), expected, atol=1e-10)
    counted(simulator, tally, ("events", "spikes", "analog", "fired"))
    charged = {"paper": ("events", "analog"), "honest": ("spikes",)}
    for costs, columns in charged.items():
        found = np.sum([totals(simulator.counts, c) or [0] * T for c in columns], 0, dtype=np.int64)
        assert found.tolist() == energy(snn, [x], costs).accumulates


@BURSTS
@pytest.mark.parametrize("name", BOTH)
def test_recorded_events_give_the_same_answers(name: str, burst: int) -> None:
    """Replayed with the input, for the counts of everything, or without it where only spikes reach the answer."""
    snn, x = converted(name, burst)
    events, expected, tally = record_events(snn, x), snn.run(x), Tally(T)
    simulator = Simulator(snn)
    assert torch.allclose(simulator.run(x, events=events), expected, atol=1e-10)
    metered_run(snn, ((x,), {}), tally)
    counted(simulator, tally, ("events", "spikes", "analog", "fired"))
    (feed,) = simulator.circuit.outputs
    if all(source.kind == "neurons" for source in feed.sources):
        assert torch.allclose(simulator.run(events=events), expected, atol=1e-10)
        counted(simulator, tally, ("events", "spikes"))


@BURSTS
@pytest.mark.parametrize("name", ["residual", "trunk, rate", "residual, by site"])
def test_a_step_is_done_before_the_next_exists(name: str, burst: int) -> None:
    snn, x = converted(name, burst)
    simulator, other = Simulator(snn), Simulator(snn)
    simulator.start(x)
    other.start(x)
    for t, (events, answer) in enumerate(zip(stream_events(snn, x), snn.run(x), strict=True), 1):
        fired, replayed = simulator.step(), other.step(events)
        assert simulator.t == t
        for column in COLUMNS:
            assert np.array_equal(fired.columns[column], events.columns[column])
            assert np.array_equal(replayed.columns[column], events.columns[column])
        assert torch.allclose(simulator.outputs()[0], answer, atol=1e-10)
        assert torch.allclose(other.outputs()[0], answer, atol=1e-10)


def test_a_neuron_fires_without_input_and_is_not_looked_at_before() -> None:
    """What is lacking is small and nothing arrives any more: the potential grows by it in each step."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)).double().eval()
    snn = spikecast.convert(model, [torch.ones(1, 1).double()], Config(num_steps=200, num_levels=2, burst=1))
    program, steps = snn.plan.program, 200
    first = program.nodes[0]
    snn.weights[first.args[1].name].fill_(1.0)
    snn.weights[first.args[2].name].fill_(0.0)
    snn.set_thresholds({name: torch.ones_like(t) for name, t in snn.thresholds.items()})
    lacking = 0.75 * 0.5 / (RING + 40.5)  # fires at t = 105, which is further ahead than the ring reaches
    x = torch.tensor([[lacking]]).double()
    simulator = Simulator(snn)
    answers = simulator.run(x, num_steps=steps)
    assert torch.allclose(answers, snn.run(x, num_steps=steps), atol=1e-12)
    (neurons,) = (counts for counts in simulator.counts.values() if "fired" in counts)
    fired = [t for t, number in enumerate(neurons["fired"], 1) if number]
    assert fired[0] == RING + 41
    assert totals({"": neurons}, "visited")[1 : RING - 2] == [0] * (RING - 3)
    assert sum(neurons["visited"]) < 20


class Pooled(nn.Module):
    """Weights of 1, so that an image of three numbers is what three neurons are to send; then their mean, tripled."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 1, 1, bias=False), nn.Conv1d(1, 2, 1, bias=False)
        nn.init.ones_(self.first.weight)
        nn.init.ones_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.avg_pool1d(self.first(x).relu(), 3))


def test_a_merged_event_costs_as_much_as_the_fullest_neuron_of_its_window() -> None:
    """1.375 = 1 + 1/2 - 1/8 takes three pulses, 1.25 two, 0.5 one: six spikes, in three pulses of the mean."""
    x = torch.tensor([[[1.375, 1.25, 0.5]]]).double()
    snn = spikecast.convert(Pooled().eval().double(), [x], Config(num_steps=1, num_levels=4, burst=4))
    snn.set_thresholds({name: torch.ones_like(t) for name, t in snn.thresholds.items()})
    simulator = Simulator(snn)
    assert torch.allclose(simulator.run(x), x.mean().expand(1, 1, 2, 1))
    last = next(c for c in simulator.counts.values() if "events" in c)
    assert (last["events"], last["spikes"]) == ([2 * 3], [2 * 6])
    assert totals(simulator.counts, "fired") == [6]


@BURSTS
def test_silence_costs_nothing(burst: int) -> None:
    """Work follows spikes: once the estimates are right, no neuron is looked at."""
    snn, x = converted("plain", burst)
    simulator = Simulator(snn)
    simulator.run(x, num_steps=40)
    visited, fired, events = (totals(simulator.counts, column) for column in ("visited", "fired", "events"))
    assert visited[0] == 2 * 4 * 7 * 6
    assert sum(visited[20:]) < 0.1 * 20 * visited[0]
    assert sum(events[20:]) < 0.1 * 20 * events[0]
    assert all(f <= burst * v for f, v in zip(fired, visited, strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_linear_is_refused_by_name(name: str) -> None:
    snn, _ = converted(name)
    with pytest.raises(ModelError, match=r"not linear in spikes: .*\((matmul|bmm|einsum|relu|softmax)\)") as caught:
        Simulator(snn)
    assert "\n" not in str(caught.value)


@BURSTS
@pytest.mark.parametrize("name", REFUSED)
def test_the_host_can_compute_what_is_not_linear(name: str, burst: int) -> None:
    """Spikes and answers are the network's; weighted ops that read graded signals count what changes in them."""
    snn, x = converted(name, burst)
    simulator, tally = Simulator(snn, hosted=True), Tally(T)
    expected = metered_run(snn, ((x,), {}), tally)
    assert torch.allclose(simulator.run(x), expected, atol=1e-9)
    counted(simulator, tally, ("fired",))
    for op, counts in simulator.counts.items():
        for column in {"events", "spikes", "analog"} & counts.keys():
            assert counts[column] + [0] * (T - len(counts[column])) == tally.lines[op].columns[column], (op, column)


class Odd(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.line = how, nn.Linear(4, 4)
        self.matrix: Tensor
        self.register_buffer("matrix", torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.line(x).relu()
        return torch.matmul(self.matrix, y) if self.how == "left" else y.cumsum(-1).repeat(1, 1, 600)[..., :2].cumsum(1)


def test_weighted_ops_of_another_form_are_refused_by_name() -> None:
    x = torch.randn(2, 4, 4)
    snn = spikecast.convert(Odd("left").eval(), [x], Config(num_steps=2))
    with pytest.raises(ModelError, match=r"aten.matmul in '.*'\) has a form"):
        Simulator(snn)
    with pytest.raises(ModelError, match=r"aten.einsum in '.*'\) has a form"):
        Simulator(converted("einsum")[0])


def test_small_mixtures_have_tables_and_large_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 4, 4).double()
    snn = spikecast.convert(Odd("cumsum").eval().double(), [x], Config(num_steps=2))
    assert torch.allclose(Simulator(snn).run(x), snn.run(x), atol=1e-10)
    monkeypatch.setattr("spikecast.hardware.events.tables._MOST_COLUMNS", 3)
    with pytest.raises(ModelError, match=r"cumsum in .* mixes 16 entries"):
        Simulator(snn)


def test_tables_are_the_ops() -> None:
    """A table on a random signal gives what the op gives, wherever the tables come from."""
    snn, _ = converted("moved")
    simulator = Simulator(snn)
    checked = 0
    for passages in simulator.passages.values():
        for passage in passages:
            if isinstance(passage.how, Table) and len(passages) == 1 and passage.node.target != "getitem":
                signal = torch.randn(simulator.circuit.blank(passage.source).shape).double()
                links = [next(p for p in simulator.circuit._ways(passage.node.name))[1][-1]]
                out = np.zeros(passage.how.size)
                table = table_of(simulator.circuit, links, passage.source)
                origin = np.repeat(np.arange(signal.numel()), np.diff(table.start))
                np.add.at(out, table.targets, table.weights * signal.flatten().numpy()[origin])
                assert np.allclose(out, simulator.circuit.along(links, signal).flatten())
                checked += 1
    assert checked > 5


def test_halves_are_refused() -> None:
    x = torch.randn(2, 4).half()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)).half().eval()
    snn = spikecast.convert(model, [x], Config(num_steps=2))
    with pytest.raises(ModelError, match="float32"):
        Simulator(snn)


def test_a_leak_is_refused() -> None:
    x = torch.randn(2, 4)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    snn = spikecast.convert(model, [x], Config(num_steps=2, overrides={"3": {"leak": 0.1}}))
    assert record_events(snn, x).samples == 2
    with pytest.raises(ConfigError, match=r"^site '3' has leak=0.1: the simulator .*; convert with leak=0.0$"):
        Simulator(snn)


def test_other_inputs_need_another_simulator() -> None:
    snn, x = converted("borders")
    simulator = Simulator(snn)
    with pytest.raises(DataError, match="make one for this call"):
        simulator.run(torch.randn(2, 2, 9, 9).double())
    larger = torch.randn(2, 2, 9, 9).double()
    assert torch.allclose(Simulator(snn, larger).run(larger), snn.run(larger), atol=1e-10)
    assert torch.allclose(simulator.run(x[:1]), snn.run(x[:1]), atol=1e-10)


def test_misuse() -> None:
    snn, x = converted("plain")
    simulator = Simulator(snn)
    with pytest.raises(DataError, match="not started"):
        simulator.step()
    with pytest.raises(DataError, match="started without inputs"):
        simulator.start()
    simulator.start(samples=2)
    with pytest.raises(DataError, match="can only be given spikes"):
        simulator.step()
    trunk, image = converted("trunk")
    with pytest.raises(DataError, match=r"the answer depends on .* besides spikes"):
        Simulator(trunk).run(events=record_events(trunk, image))
    for other in (converted("residual"), converted("plain", 3)):
        with pytest.raises(DataError, match="other layers"):
            simulator.step(record_events(*other))
    events = record_events(snn, x)
    twice = joined([events, events])
    with pytest.raises(DataError, match="fires more than 1 times in a step, its burst"):
        simulator.step(twice)
    simulator.start(x[:1])
    with pytest.raises(DataError, match="2 samples"):
        simulator.step(record_events(snn, x))
    text = r"^events='net.npz' are no Events but str; give load_events\(path\)$"
    with pytest.raises(DataError, match=text):
        simulator.run(events="net.npz")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=text):
        simulator.step("net.npz")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"^events=tensor\(.* are no Events but Tensor; give load_events\(path\)$"):
        simulator.run(events=torch.zeros(3, 3))  # type: ignore[arg-type]
    assert repr(simulator) == f"Simulator({len(snn.sites)} layers, t=0, samples=1)"


def test_columns_that_there_are_not_are_refused() -> None:
    snn, x = converted("plain")
    simulator = Simulator(snn)
    simulator.run(events=record_events(snn, x))
    assert totals(simulator.counts, "visited") == []  # nobody was looked at
    assert sum(totals(simulator.counts, "analog")) == 0  # there is no image
    assert sum(totals(simulator.counts, "fired")) == len(record_events(snn, x))
    with pytest.raises(
        ConfigError, match=r"^column='nonsense' must be one of 'events', 'spikes', 'analog', 'fired', '"
    ):
        totals(simulator.counts, "nonsense")
