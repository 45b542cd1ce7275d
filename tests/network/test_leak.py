"""A network with a leak runs in every way that a network runs, and each way gives the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from spikecast import Config, SpikingNetwork, convert, measure
from spikecast.network.states import NeuronStates
from tests.nets import relative

T = 6
X = torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))
CODINGS = pytest.mark.parametrize("coding", ["differential", "rate"])


def converted(leak: float = 0.2, **settings) -> tuple[SpikingNetwork, nn.Module]:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.ReLU6(), nn.Flatten(), nn.Linear(80, 4))
    model = nn.Sequential(*layers).eval()
    given = {"num_steps": T, "num_levels": 4, "burst": 1, "thresholds": "quantile", **settings}
    return convert(model, [X], Config(leak=leak, **given)), model


@CODINGS
@pytest.mark.parametrize("burst", [1, 3])
def test_steps_one_at_a_time_in_pieces_and_at_once(coding, burst) -> None:
    snn, _ = converted(coding=coding, burst=burst)
    whole = snn.run(X)
    assert not torch.allclose(whole, converted(0.0, coding=coding, burst=burst)[0].run(X), atol=1e-3)
    assert torch.allclose(torch.stack([y for _, y in snn.steps(X)]), whole, atol=1e-6)
    assert torch.allclose(snn.run(X, max_batch=4), whole, atol=1e-6)  # four steps, and then two


@CODINGS
def test_a_sample_leaves_with_what_leaked_of_it(coding) -> None:
    snn, _ = converted(coding=coding)
    whole = snn.run(X)
    left = iter(([3, 4], [0, 5], [1], [2], []))  # of those that are still there

    def stop(_: Tensor, now: Tensor) -> Tensor:
        sure = torch.zeros(len(now), dtype=torch.bool)
        sure[next(left)] = True
        return sure

    answers, used = snn.anytime(X, stop=stop)
    assert sorted(used.tolist())[:6] == [2, 2, 3, 3, 4, 5]
    assert torch.allclose(answers, whole[used - 1, torch.arange(12)], atol=1e-6)


def test_what_leaked_is_weighed() -> None:
    """A run that is cut by memory keeps two numbers of a neuron instead of one."""
    kept = {}
    for leak in (0.0, 0.2):
        snn, _ = converted(leak)
        states = NeuronStates(snn)
        snn.run_with(((X[:1],), {}), T, lambda *_, states=states: states, max_batch=2)
        kept[leak] = states.nbytes
    assert kept[0.2] == 2 * kept[0.0] > 0


@CODINGS
@pytest.mark.parametrize("foldable", [True, False])
def test_the_meter_counts_the_spikes(coding, foldable) -> None:
    snn, _ = converted(coding=coding, burst=2)
    recorded = snn.record(X).values()
    fired = sum(int((own.levels != 0).sum()) for own in recorded)
    neurons = sum(own.estimates[0].numel() for own in recorded)
    snn.foldable = foldable  # if not, one step at a time
    assert measure.energy(snn, [X]).spikes_per_neuron[-1] == pytest.approx(fired / neurons)


@pytest.mark.parametrize(
    "settings",
    [
        {"thresholds": "search"},
        {"thresholds": "iteration"},
        {"thresholds": "iteration_paper"},
        {"thresholds": "auto", "energy_budget": 0.6},
        {"thresholds": "auto", "fidelity": 0.05, "output": "values"},
    ],
    ids=str,
)
def test_every_way_to_thresholds(settings) -> None:
    snn, model = converted(**settings)
    assert {neuron.leak for neuron in snn.neurons.values()} == {0.2}
    with torch.no_grad():
        assert relative(snn(X), model(X)) < 0.3


def test_the_search_tries_the_leaky_neuron() -> None:
    searched, plain = (converted(leak, thresholds="search")[0].thresholds for leak in (0.5, 0.0))
    assert any(not torch.equal(searched[site], plain[site]) for site in plain)


def test_a_leak_of_one_site() -> None:
    snn, _ = converted(0.0, overrides={"3": {"leak": 0.3}})
    assert {site: neuron.leak for site, neuron in snn.neurons.items()} == {"1": 0.0, "3": 0.3}
    assert torch.allclose(torch.stack([y for _, y in snn.steps(X)]), snn.run(X), atol=1e-6)
