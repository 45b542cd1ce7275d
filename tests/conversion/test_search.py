"""The in-loop search: every choice against a search written out, on the inputs that the layers before really make."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn

from spikecast import Config, convert
from spikecast.conversion import search as module
from spikecast.conversion.search import FLOOR, SCALES, TIE, Search
from spikecast.errors import ConfigError
from spikecast.graph.program import Meta
from spikecast.network.plan import Site
from spikecast.theory.neuron import Neuron, encode


def scores(inputs, theta, neuron, penalty=0.0):
    """[scales, channels] by the words of the rule; inputs [T, B, C, ...]."""
    rest = [i for i in range(inputs.dim()) if i != 2]
    late = slice(1, None) if len(inputs) > 1 else slice(None)
    exact = inputs.clamp(neuron.lower, neuron.upper)[late]
    power = exact.square().mean(rest)
    power = torch.maximum(power, power.mean() * FLOOR)
    found = []
    for scale in SCALES:
        out = encode(inputs, theta * scale, neuron, want_levels=True)
        error = (out.estimates[late] - exact).square().mean(rest) / power
        spikes = (out.levels[:, 0] != 0).float().mean(rest) * len(inputs)
        found.append(error + penalty * spikes)
    return torch.stack(found)


def picks(table):
    """Index of the largest threshold whose score is the least, up to a tie, for each channel."""
    columns = table.T.tolist()
    return torch.tensor([next(i for i, score in enumerate(c) if score <= min(c) + TIE) for c in columns])


def chosen(table):
    return torch.tensor(SCALES)[picks(table)]


def search(steps, start, neuron, **settings):
    """What one site sends, and the thresholds found for it."""
    site = Site("site", "source", neuron.lower, neuron.upper, 1, Meta(tuple(steps.shape[1:]), torch.float32, 0))
    config = Config(num_levels=neuron.num_levels, thresholds="search", **settings)
    made = Search({"site": site}, {"site": neuron}, config, {"site": start}, {"site"})
    return made.fire("site", steps, may_overwrite=False), made.thresholds["site"]


def moving(num_steps=5, channels=6):
    """What a site in the middle of a network sees: steps that settle towards a value."""
    target = torch.randn(1, 8, channels, 10) * torch.logspace(-1, 1, channels)[:, None]
    noise = torch.randn(num_steps, 8, channels, 10) / torch.arange(1, num_steps + 1)[:, None, None, None]
    return target + noise


def test_scales_are_the_documented_ones() -> None:
    assert (SCALES[0], SCALES[-1]) == (8.0, 0.25)
    assert 1.0 in SCALES
    assert list(SCALES) == sorted(SCALES, reverse=True)


@pytest.mark.parametrize("lower", [0.0, -math.inf])
@pytest.mark.parametrize("num_levels", [1, 4, 8])
@pytest.mark.parametrize("penalty", [0.0, 0.02])
def test_best_of_all_scales(lower, num_levels, penalty) -> None:
    neuron, steps = Neuron(num_levels=num_levels, lower=lower), moving()
    start = steps[-1].abs().amax((0, 2), keepdim=True)
    out, theta = search(steps, start, neuron, search_penalty=penalty)
    table = scores(steps, start, neuron, penalty)
    assert torch.equal(theta.flatten(), (start.flatten() * chosen(table)))
    assert (table.amin(0) <= table[SCALES.index(1.0)]).all()
    picked = table.gather(0, picks(table)[None])[0]
    assert (picked <= table[SCALES.index(1.0)] + TIE).all()  # never worse than the start
    assert torch.equal(out, encode(steps, theta, neuron).estimates)


def test_penalty_saves_spikes() -> None:
    neuron, steps = Neuron(num_levels=4), moving()
    start = steps[0].abs().amax((0, 2), keepdim=True)
    spikes = []
    for penalty in (0.0, 0.003, 0.03, 0.3, 3.0):
        _, theta = search(steps, start, neuron, search_penalty=penalty)
        spikes.append(int(encode(steps, theta, neuron, want_levels=True).levels.count_nonzero()))
    assert spikes == sorted(spikes, reverse=True)
    assert spikes[-1] < 0.7 * spikes[0]


def test_ties_go_to_the_larger_threshold() -> None:
    """Nothing to send: every threshold is as good, and the largest is kept."""
    steps = torch.full((4, 2, 3, 5), -1.0)
    _, theta = search(steps, torch.ones(1, 3, 1), Neuron(lower=0.0))
    assert theta.flatten().tolist() == [8.0] * 3


def test_silent_channels_do_not_count_for_more_than_they_are() -> None:
    """A channel of nearly no power is judged by the layer's mean, so noise in it decides nothing."""
    steps = moving(channels=2)
    steps[:, :, 0] = torch.randn(5, 8, 10) * 1e-6
    neuron = Neuron(num_levels=4, lower=0.0)
    start = torch.tensor([1e-5, 1.0]).reshape(1, 2, 1)
    _, theta = search(steps, start, neuron)
    assert theta[0, 0, 0] == pytest.approx(8e-5)
    assert theta.isfinite().all()


def test_one_step_only() -> None:
    steps = moving(num_steps=1)
    start = steps[0].abs().amax((0, 2), keepdim=True)
    neuron = Neuron(num_levels=3)
    _, theta = search(steps, start, neuron)
    assert torch.equal(theta.flatten(), start.flatten() * chosen(scores(steps, start, neuron)))


def test_first_step_has_no_say() -> None:
    """A constant 1 and an IF neuron: θ = 2 is silent at t = 1 and exact at t = 2, which is all that counts."""
    steps, start = torch.ones(3, 1, 1, 1), torch.ones(1, 1, 1)
    neuron = Neuron(num_levels=1)
    _, theta = search(steps, start, neuron)
    sent = {s: encode(steps, start * s, neuron).estimates.flatten() for s in SCALES}
    equals = [s for s in SCALES if float((sent[s][1:] - 1).square().mean()) <= TIE]
    assert float(theta) == max(equals)
    assert float(theta) > 1  # which the first step would not have allowed


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 12), nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x):
        return self.c(nn.functional.gelu(self.b(self.a(x).relu())))


CONFIG = Config(num_steps=4, num_levels=4, burst=1, thresholds="search", seed=0)


@pytest.fixture(scope="module")
def mlp():
    torch.manual_seed(0)
    model, x = Mlp().eval(), torch.randn(40, 6)
    start = convert(model, [x], dataclasses.replace(CONFIG, thresholds="quantile")).thresholds
    return model, x, start, convert(model, [x], CONFIG)


@torch.no_grad()
def test_each_site_sees_what_the_sites_before_it_send(mlp) -> None:
    """On the first 32 samples only, with the first site's choice fixed before the second is made."""
    model, x, start, snn = mlp
    few = x[:32]
    first, second = Neuron(num_levels=4, lower=0.0), Neuron(num_levels=4)
    inputs = model.a(few).expand(4, 32, 12)
    theta = start["relu"] * chosen(scores(inputs, start["relu"], first))
    assert torch.equal(snn.thresholds["relu"], theta)
    sent = encode(inputs, theta, first).estimates
    inputs = nn.functional.gelu(model.b(sent))
    theta = start["c.input"] * chosen(scores(inputs, start["c.input"], second))
    assert torch.equal(snn.thresholds["c.input"], theta)


def test_small_batches_are_put_together(mlp) -> None:
    model, x, _, snn = mlp
    for sizes in ([8] * 5, [1, 39], [40]):
        other = convert(model, list(x.split(sizes)), CONFIG)
        for name, theta in snn.thresholds.items():
            assert torch.allclose(other.thresholds[name], theta, rtol=1e-6)


def test_other_methods_at_some_sites(mlp) -> None:
    model, x, start, snn = mlp
    mixed = convert(model, [x], dataclasses.replace(CONFIG, overrides={"relu": {"thresholds": "quantile"}}))
    assert torch.equal(mixed.thresholds["relu"], start["relu"])
    ratio = (mixed.thresholds["c.input"] / start["c.input"]).flatten()
    assert all(any(r == pytest.approx(s, rel=1e-6) for s in SCALES) for r in ratio.tolist())
    assert not torch.equal(snn.thresholds["relu"], start["relu"])


class Centred(nn.Module):
    """Samples see each other, so the steps cannot lie in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b((self.a(x) - self.a(x).mean(0)).relu())


@torch.no_grad()
def test_search_step_by_step() -> None:
    model, x = Centred().eval(), torch.randn(16, 6)
    snn = convert(model, [x], CONFIG)
    assert not snn.foldable
    start = convert(model, [x], dataclasses.replace(CONFIG, thresholds="quantile")).thresholds["relu"]
    inputs = (model.a(x) - model.a(x).mean(0)).expand(4, 16, 8)
    expected = start * chosen(scores(inputs, start, Neuron(num_levels=4, lower=0.0)))
    assert torch.equal(snn.thresholds["relu"], expected)


def test_scale_and_search_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"threshold_scale=2.0 with thresholds='search'"):
        Config(thresholds="search", threshold_scale=2.0)


@pytest.mark.parametrize("axes", [(1,), (), (1, 2)])
def test_scales_are_compared_on_places_of_all_samples(axes, monkeypatch) -> None:
    """Every sample and channel stays; of the places some are drawn, from the middle as well as from the borders."""
    monkeypatch.setattr(module, "PER_CHANNEL", 40)
    monkeypatch.setattr(module, "AT_LEAST", 400)
    steps = torch.arange(2 * 6 * 4 * 12 * 10).reshape(2, 6, 4, 12, 10).float()
    kept = module.thinned(steps, axes, 0, seed=3)
    enough = max(40 * math.prod(steps.shape[1 + d] for d in axes), 400)
    assert kept.shape[:3] == steps.shape[:3] if axes == (1,) else kept.shape[:2] == steps.shape[:2]
    assert enough <= kept[0].numel() < min(steps[0].numel(), 2 * enough)
    assert torch.equal(kept, module.thinned(steps, axes, 0, seed=3))
    assert not torch.equal(kept, module.thinned(steps, axes, 0, seed=4))
    columns = {int(v) % 10 for v in kept.flatten()}
    assert len(columns) > 2
    assert module.thinned(steps[..., :3, :3], axes, 0, seed=3).shape == (2, 6, 4, 3, 3)
