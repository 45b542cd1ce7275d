"""Levels, bursts and thresholds chosen for a goal: the tables' choice is the best there is, and goals are met."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import spikecast
from spikecast import Config, measure
from spikecast.conversion.allocate import OPTIONS, Table
from spikecast.errors import ConfigError
from tests.strategies import SEEDS


@settings(max_examples=40)
@given(seed=SEEDS)
def test_the_best_of_a_table_is_the_best_of_all(seed) -> None:
    torch.manual_seed(seed)
    table = Table(OPTIONS[:3], torch.rand(3, 4, 2).double(), torch.rand(3, 4, 2).double())
    price = float(torch.rand(()) * 3)
    option, harm, pulses, scales = table.best(price)

    def cost(o, scales):
        return sum(float(table.harm[o, k, c] + price * table.pulses[o, k, c]) for c, k in enumerate(scales))

    every = [cost(o, scales) for o in range(3) for scales in itertools.product(range(4), repeat=2)]
    assert harm + price * pulses == pytest.approx(min(every))
    assert cost(option, scales.tolist()) == pytest.approx(min(every))
    assert min(cost(option, scales) for scales in itertools.product(range(4), repeat=2)) == pytest.approx(min(every))


def net():
    torch.manual_seed(0)
    layers: list[nn.Module] = [
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
    ]
    last = nn.Linear(32, 10)
    with torch.no_grad():
        last.weight *= 6  # answers that are sure of themselves
    layers += [nn.Flatten(), nn.Linear(16 * 36, 32), nn.ReLU(), last]
    model = nn.Sequential(*layers).eval()
    x = torch.rand(64, 1, 12, 12)
    return model, [(x[:32], torch.zeros(32, dtype=torch.int64)), (x[32:], torch.zeros(32, dtype=torch.int64))], x


def nats(model, snn, x):
    with torch.no_grad():
        wanted, found = model(x).double().log_softmax(-1), snn(x).double().log_softmax(-1)
    return float((wanted.exp() * (wanted - found)).sum(-1).mean())


@pytest.mark.parametrize("steps", [1, 2])
def test_budgets_are_met_and_more_energy_is_closer(steps) -> None:
    model, batches, x = net()
    figures = []
    for budget in (0.12, 0.2, 0.3):
        config = Config(num_steps=steps, energy_budget=budget)
        snn = spikecast.convert(model, batches, config)
        used = measure.energy(snn, [x[:32]]).ratio[-1]
        assert 0.9 * budget <= used <= 1.02 * budget
        assert snn.config == config  # as given; the neurons are the sites' own
        figures.append(nats(model, snn, x))
    assert figures == sorted(figures, reverse=True)
    assert figures[-1] < figures[0] / 4


def test_a_budget_beats_one_setting_for_all_sites() -> None:
    model, batches, x = net()
    plain = spikecast.convert(model, batches, Config(num_steps=1, num_levels=8, burst=2))
    used = measure.energy(plain, [x[:32]]).ratio[-1]
    chosen = spikecast.convert(model, batches, Config(num_steps=1, energy_budget=used))
    assert nats(model, chosen, x) < nats(model, plain, x)
    assert {(n.num_levels, n.burst) for n in chosen.neurons.values()} <= set(OPTIONS)


def test_bursts_and_levels_that_are_asked_for_are_not_exceeded() -> None:
    model, batches, _ = net()
    paper = spikecast.convert(model, batches, Config(num_steps=4, num_levels=5, burst=1, energy_budget=0.3))
    assert {(n.num_levels, n.burst) for n in paper.neurons.values()} <= {(4, 1), (5, 1)}
    assert paper.slots() == [1, 2, 3, 4]
    first, *others = paper.neurons
    some = spikecast.convert(model, batches, Config(num_steps=1, energy_budget=0.3, overrides={first: {"burst": 1}}))
    assert some.neurons[first].burst == 1
    assert max(some.neurons[name].burst for name in others) > 1


@pytest.mark.parametrize("goal", [{"energy_budget": 0.2}, {"fidelity": 0.001}])
def test_a_goal_costs_few_runs_of_the_ann(goal) -> None:
    """The products of a conversion with a goal, over those of the ANN for the samples it uses: at most 40."""
    model, batches, x = net()
    with FlopCounterMode(display=False) as once, torch.no_grad():
        model(x)
    with FlopCounterMode(display=False) as all_runs:
        spikecast.convert(model, batches, Config(num_steps=1, **goal))
    runs = all_runs.get_total_flops() / once.get_total_flops()
    assert 4 < runs < 40  # the ANN, its gradients, tables and one pass in the loop are there at least


def test_fidelity_is_met() -> None:
    model, batches, x = net()
    energies = []
    for goal in (0.002, 0.0004):
        snn = spikecast.convert(model, batches, Config(num_steps=1, fidelity=goal))
        assert goal / 2 <= nats(model, snn, x[:32]) <= 1.02 * goal
        energies.append(measure.energy(snn, [x[:32]]).ratio[-1])
    assert energies[0] < energies[1]


def test_impossible_goals_are_refused() -> None:
    model, batches, _ = net()
    with pytest.raises(ConfigError, match=r"energy_budget=0\.001 cannot be met: the least that is reached is 0\.0"):
        spikecast.convert(model, batches, Config(num_steps=1, energy_budget=0.001))
    with pytest.raises(ConfigError, match="fidelity=1e-12 cannot be met"):
        spikecast.convert(model, batches, Config(num_steps=1, fidelity=1e-12))


def test_what_was_chosen_is_saved(tmp_path) -> None:
    model, batches, x = net()
    snn = spikecast.convert(model, batches, Config(num_steps=1, energy_budget=0.15))
    snn.save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    assert loaded.neurons == snn.neurons
    assert loaded.config == snn.config
    assert torch.equal(loaded.run(x), snn.run(x))


def test_labels_say_that_answers_are_scores() -> None:
    """With labels the goal is a divergence, without them an error of the numbers; `output` says it outright."""
    model, batches, x = net()
    goal = Config(num_steps=1, fidelity=0.002)
    labelled = spikecast.convert(model, batches, goal)
    said = spikecast.convert(model, [x[:32], x[32:]], dataclasses.replace(goal, output="logits"))
    assert all(torch.equal(a, b) for a, b in zip(labelled.thresholds.values(), said.thresholds.values(), strict=True))
    plain = spikecast.convert(model, [x[:32], x[32:]], goal)
    with torch.no_grad():
        error = float((plain(x[:32]) - model(x[:32])).square().sum() / model(x[:32]).square().sum())
    assert 0.001 <= error <= 0.00204


def test_regions_have_budgets_too() -> None:
    model, batches, x = net()

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = model

        def forward(self, x):
            return self.body(x)

    snn = spikecast.convert(Around().eval(), batches, Config(num_steps=1, energy_budget=0.2), regions=["body"])
    assert 0.18 <= measure.energy(snn, [x[:32]]).ratio[-1] <= 0.204
    assert any("errors of all layers count alike" in note for note in snn.report.notes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"energy_budget": 0.2, "fidelity": 0.1}, "two goals"),
        ({"energy_budget": 0.0}, "energy_budget=0.0 must be a number above 0"),
        ({"fidelity": -1}, "fidelity=-1"),
        ({"energy_budget": 0.2, "thresholds": "quantile"}, "a goal chooses the thresholds"),
        ({"output": "scores"}, "output='scores'"),
    ],
)
def test_settings_that_do_not_fit(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**settings)


@pytest.mark.parametrize(("samples", "first"), [(80, 32), (64, 32), (63, 0), (20, 0)])
def test_goals_are_measured_on_samples_that_were_not_chosen_on(samples, first, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr("spikecast.conversion.pipeline.allocate", lambda *given: seen.append(given))
    x = torch.rand(samples, 1, 12, 12)
    spikecast.convert(net()[0], x.split(20), Config(num_steps=1, energy_budget=0.5))
    ((_, ((chosen,), _), measured, _, _),) = seen
    assert torch.equal(chosen, x[:32])
    assert torch.equal(torch.cat([args[0] for args, _ in measured]), x[first:])
