"""Thresholds as the authors' code finds them, against its words carried out one batch at a time (docs/errata.md)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import spikecast
from spikecast import Config, convert, kernels
from spikecast.conversion.statistics import MeanQuantile
from spikecast.conversion.thresholds import method_of, num_quanta
from spikecast.errors import ConfigError
from spikecast.measure import energy
from spikecast.network.plan import SILENT
from spikecast.theory.neuron import Neuron, encode
from spikecast.theory.thresholds import paper_iteration
from tests.strategies import SEEDS


class Block(nn.Module):
    """Tokens through a ReLU and through a GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(nn.functional.gelu(self.b(self.a(x).relu())))


def by_dim1(values: Tensor) -> Tensor:
    return values.movedim(1, 0).flatten(1)


def mean_quantile(batches: list[Tensor], p: float) -> Tensor:
    """Of each index of dim 1, the mean over samples of the signed quantile of the batch that they are in."""
    each = [len(batch) * torch.quantile(by_dim1(batch).double(), p, dim=1) for batch in batches]
    return torch.stack(each).sum(0) / sum(len(batch) for batch in batches)


def published(**settings) -> Config:
    return Config(**{"num_steps": 3, "num_levels": 4, "burst": 1, "granularity": "dim1", **settings})


@given(
    seed=SEEDS, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), p=st.sampled_from([0.3, 0.9, 0.999, 1.0])
)
def test_quantiles_of_batches_are_averaged_by_their_samples(seed, sizes, p) -> None:
    torch.manual_seed(seed)
    batches = [torch.randn(size, 3, 2) * 10 - 3 for size in sizes]
    found = MeanQuantile(p)
    for batch in batches:
        found.samples = len(batch)
        found.observe(by_dim1(batch))
    assert torch.allclose(found.mean, mean_quantile(batches, p), rtol=1e-6, atol=1e-6)


def test_thresholds_of_a_network() -> None:
    torch.manual_seed(0)
    model = Block().eval()
    batches = [torch.randn(size, 7, 4) * size for size in (1, 5, 2)]  # sizes that a plain mean would weigh alike
    snn = convert(model, batches, published(thresholds="quantile_published", threshold_scale=8.0, quantile=0.95))
    hidden = [model.a(x).relu() for x in batches]
    inner = [nn.functional.gelu(model.b(h)) for h in hidden]
    for name, values in (("relu", hidden), ("c.input", inner)):
        expected = 8 * mean_quantile(values, 0.95)
        assert (expected > 0).all()
        assert snn.thresholds[name].shape == (1, 7, 1)
        assert torch.allclose(snn.thresholds[name].flatten().double(), expected, rtol=1e-5)


def test_a_rectifier_counts_what_it_sends() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(1, 1)).eval()
    snn = convert(model, [torch.tensor([[-10.0], [1.0]])], published(thresholds="quantile_published", quantile=0.5))
    assert snn.thresholds["0"].flatten().tolist() == [0.5]  # between 0 and 1, not between -10 and 1


def test_iteration_takes_two_quanta_a_step_for_one_level() -> None:
    torch.manual_seed(0)
    model = Block().eval()
    x = torch.randn(50, 7, 4)
    values = by_dim1(model.a(x)).double()
    mean, std = values.mean(1), values.std(1, correction=0)
    for n, quanta in ((1, 6), (4, 48)):
        config = published(thresholds="iteration_published", num_levels=n, threshold_scale=2.0)
        assert num_quanta(config) == quanta
        found = convert(model, [x], config).thresholds["relu"].flatten()
        assert torch.allclose(found, 2 * paper_iteration(mean, std, quanta), rtol=1e-4)
    assert not torch.allclose(found, 2 * paper_iteration(mean, std, 3), rtol=1e-2)


class Sunk(nn.Module):
    """The inputs of its last layer are negative in their first tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x.tanh() + torch.tensor([-2.0, -2.0, 0.0, 0.5, 2.0]).reshape(5, 1))


def test_a_negative_quantile_silences_its_neurons(tmp_path) -> None:
    torch.manual_seed(0)
    model = Sunk().eval()
    x = torch.randn(6, 5, 4)
    snn = convert(model, [x], published(thresholds="quantile_published", num_steps=16, num_levels=8))
    (threshold,) = snn.thresholds.values()
    assert (threshold.flatten() == SILENT).tolist() == [True, True, False, False, False]
    answers = snn.run(x)
    assert torch.equal(answers[:, :, :2], model.last.bias.expand(16, 6, 2, 3))  # nothing arrives but the bias
    assert (answers[:, :, 2:] - model(x)[:, 2:]).abs()[-1].max() < 0.2
    counted = energy(snn, [x])
    assert counted.accumulates[0] <= 6 * 3 * 4 * 3  # the other three tokens, four values to three outputs each
    assert torch.allclose(snn.twin().run(x), answers, atol=1e-5)
    snn.save(tmp_path / "silent.spikecast")
    assert torch.equal(spikecast.load(tmp_path / "silent.spikecast").run(x), answers)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("lower", [0.0, -math.inf])
@pytest.mark.parametrize("coding", ["differential", "rate"])
def test_no_activation_moves_a_silent_neuron(dtype, lower, coding) -> None:
    largest = min(torch.finfo(dtype).max, 1e30)
    values = torch.tensor([1.0, -1.0, largest, -largest, 0.0], dtype=dtype).expand(50, 5)
    threshold = torch.full((5,), SILENT)
    for run in (encode, kernels.encode):
        made = run(values, threshold, Neuron(coding=coding, num_levels=14, lower=lower))
        assert (made.estimates == 0).all()


def test_methods() -> None:
    sites = convert(Block().eval(), [torch.randn(2, 7, 4)]).sites
    config = Config(thresholds="iteration_published")
    found = {name: method_of(site, config) for name, site in sites.items()}
    assert found == {"relu": "iteration_published", "c.input": "quantile_published"}
    for method in ("iteration_published", "quantile_published"):
        with pytest.raises(ConfigError, match=f"initial_potential=0.1 with thresholds='{method}': a neuron that is to"):
            Config(thresholds=method, burst=1, initial_potential=0.1)
