"""Statistics of activations, and the thresholds made of them."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import nn

from spikecast import Config, convert
from spikecast.config import Method
from spikecast.conversion import thresholds
from spikecast.conversion.calibrate import Calibration
from spikecast.conversion.channels import by_channel, channel_axes, threshold_shape
from spikecast.conversion.statistics import COARSE, MANY, OCTAVES, Histogram, Moments
from spikecast.conversion.thresholds import filled, method_of, num_quanta
from spikecast.errors import ConfigError, DataError
from spikecast.graph.program import Meta
from spikecast.network.plan import Site
from spikecast.theory.neuron import Neuron, encode
from spikecast.theory.thresholds import quantization_error


def site(shape=(2, 3, 4, 5), axis=1, batch=0, lower=0.0, upper=math.inf):
    return Site("site", "source", lower, upper, axis, Meta(shape, torch.float32, batch))


def histogram(*batches):
    made = Histogram()
    for batch in batches:
        made.observe(batch)
    return made


def exact_quantile(values, p):
    """The smallest value that a share p of a channel's values does not exceed."""
    ordered = values.abs().double().sort(1).values
    return ordered[:, max(math.ceil(p * values.shape[1] - 1e-9), 1) - 1]


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 0.999, 1.0])
def test_quantile_within_its_bound(p) -> None:
    values = torch.randn(5, 40_000) * torch.tensor([[1e-12], [0.3], [1.0], [7e5], [2.0**-60]])
    found = histogram(*values.split(9_999, 1)).quantile(p)
    torch_quantile = torch.stack([row.abs().double().quantile(p) for row in values])
    assert ((found / torch_quantile - 1).abs() <= 0.016).all()
    assert ((found / exact_quantile(values, p) - 1).abs() <= 1 / 64).all()
    if p == 1:
        assert torch.equal(found, values.abs().amax(1).double())


def test_quantile_of_many_channels_is_coarser() -> None:
    values = torch.rand(MANY + 1, 50) + 0.1
    made = histogram(values)
    assert made.bins == COARSE
    assert ((made.quantile(0.9) / exact_quantile(values, 0.9) - 1).abs() <= 0.25).all()
    assert made.counts.shape[1] == OCTAVES * COARSE + 1


def test_zeros_count_as_values() -> None:
    values = torch.cat([torch.zeros(1, 900), torch.ones(1, 100)], 1)
    made = histogram(values)
    assert made.quantile(0.89) == 0
    assert made.quantile(0.95) == pytest.approx(1, rel=1 / 64)
    assert made.count == 1000


def test_window_moves_up_and_forgets_what_is_small() -> None:
    small, large = torch.full((1, 600), 2.0**-13), torch.full((1, 400), 1.0)
    for batches in ((small, large), (large, small)):
        made = histogram(*batches)
        assert made.quantile(0.5) == 0  # 2**-13 of the largest counts as zero
        assert made.quantile(0.7) == pytest.approx(1, rel=1 / 64)
    made = histogram(small, large[:, :1] * 2.0**-3)
    assert made.quantile(0.5) == pytest.approx(2.0**-13, rel=1 / 64)  # still in the window


def test_window_moves_channel_by_channel() -> None:
    values = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    made = histogram(values, values * torch.tensor([[1.0], [1000.0]]))
    assert made.quantile(0.4).tolist() == pytest.approx([1, 1], rel=1 / 64)
    assert made.quantile(1.0).tolist() == [1, 1000]


def test_nothing_observed_changes_nothing() -> None:
    made = histogram(torch.rand(2, 5), torch.zeros(2, 0))
    assert made.count == 5
    moments = Moments()
    moments.observe(torch.zeros(2, 0))
    assert moments.mean is None


def test_moments_keep_a_small_spread_on_a_large_mean() -> None:
    values = 1000 + torch.randn(3, 30_000).double() * 0.01
    moments = Moments()
    for part in values.float().split(1_000, 1):
        moments.observe(part)
    exact = values.float().double()
    assert torch.allclose(moments.mean, exact.mean(1), rtol=1e-7)
    assert torch.allclose(moments.std, exact.std(1, correction=0), rtol=1e-2)


SHAPES = {
    ("layer", 1): (1, 1, 1, 1),
    ("channel", 1): (1, 3, 1, 1),
    ("channel", 3): (1, 1, 1, 5),
    ("channel", None): (1, 1, 1, 1),
    ("neuron", 1): (1, 3, 4, 5),
    ("dim1", 3): (1, 3, 1, 1),
}


@pytest.mark.parametrize(("granularity", "axis"), SHAPES)
def test_what_shares_a_threshold(granularity, axis) -> None:
    values = torch.randn(2, 3, 4, 5)
    axes = channel_axes(site(axis=axis), granularity)
    assert threshold_shape(values, axes) == SHAPES[granularity, axis]
    flat = by_channel(values, axes)
    kept = [i for i in range(4) if i not in axes]
    expected = values.abs().amax(kept, keepdim=True)
    assert flat.shape == (expected.numel(), values.numel() // expected.numel())
    assert torch.equal(flat.abs().amax(1).reshape(expected.shape), expected)


def test_batch_axis_never_has_thresholds_of_its_own() -> None:
    second = site(batch=1)
    assert channel_axes(second, "dim1") == ()
    assert channel_axes(second, "channel") == ()
    assert channel_axes(second, "neuron") == (0, 2, 3)
    assert channel_axes(site(shape=(7,), axis=None), "dim1") == ()
    assert channel_axes(site(batch=None, axis=3), "neuron") == (1, 2, 3)


def calibrated(values, config, lower=0.0, axis=1):
    """Thresholds of one site that saw one batch [B, C, N]."""
    found = site(tuple(values.shape), axis, lower=lower)
    calibration = Calibration({"site": found}, config)
    calibration.fire("site", values.unsqueeze(0), may_overwrite=False)
    return calibration.thresholds()["site"]


ODD = {
    "dead": torch.zeros(50),
    "constant": torch.full((50,), 0.37),
    "negative": torch.full((50,), -0.37),
    "far below": torch.randn(50) - 50,
    "tiny variance": 1 + torch.randn(50) * 1e-7,
    "tiny": torch.randn(50) * 1e-30,
    "subnormal": torch.randn(50) * 1e-42,
    "subnormal constant": torch.full((50,), 1e-42),
    "nearly subnormal": torch.rand(50) * 1e-37,
    "huge": torch.randn(50) * 1e30,
    "one value": torch.eye(50)[0] * 3,
}


@pytest.mark.parametrize("method", [m for m in get_args(Method) if m != "auto"])
@pytest.mark.parametrize("lower", [0.0, -math.inf])
@pytest.mark.parametrize("others", ["with others", "alone"])
def test_odd_channels_get_thresholds_that_work(method, lower, others) -> None:
    for name, odd in ODD.items():
        values = odd.reshape(5, 1, 10)
        if others == "with others":
            values = torch.cat([values, torch.randn(5, 3, 10) * torch.tensor([1.0, 2.0, 3.0])[:, None]], 1)
        theta = calibrated(values, Config(num_steps=4, num_levels=4, thresholds=method), lower)
        assert theta.shape == (1, values.shape[1], 1), name
        assert theta.dtype == torch.float32
        assert (theta.isfinite() & (theta > 0)).all(), name
        encode(values.expand(4, *values.shape), theta, Neuron(lower=lower))  # refuses what has no inverse
        if name == "dead" and method in ("iteration", "quantile", "search"):
            rest = theta.flatten()[1:]
            assert theta.flatten()[0] == (rest.median() if len(rest) else 1.0)


def test_a_method_without_a_formula_is_refused(monkeypatch) -> None:
    """A method that is added to the list of names and forgotten here must not become a quantile."""
    monkeypatch.setattr(thresholds, "method_of", lambda site, config: "moon phase")
    with pytest.raises(ConfigError, match="'moon phase' has no formula for Histogram"):
        thresholds.threshold_from(site(), Config(), histogram(torch.rand(3, 5)))


def test_filled() -> None:
    theta = torch.tensor([1.0, math.nan, 3.0, math.inf, 2.0, -1.0, 0.0, 9.0]).double()
    active = torch.tensor([True] * 7 + [False])
    assert filled(theta, active).tolist() == [1, 2, 3, 2, 2, 2, 2, 2]
    assert filled(torch.zeros(3).double(), torch.zeros(3, dtype=torch.bool)).tolist() == [1, 1, 1]


def test_methods() -> None:
    rectifier, identity = site(), site(lower=-math.inf)
    few, many = Config(num_levels=3, burst=1), Config(num_levels=4)
    assert method_of(rectifier, few) == "iteration"
    assert method_of(rectifier, Config(num_levels=3, burst=2)) == "search"
    assert method_of(identity, few) == method_of(rectifier, many) == method_of(identity, many) == "search"
    assert method_of(rectifier, Config(threshold_scale=2.0)) == "quantile"
    for method in ("iteration", "iteration_paper"):  # made for a ReLU
        assert method_of(rectifier, Config(thresholds=method)) == method
        assert method_of(identity, Config(thresholds=method)) == "quantile"
    assert num_quanta(Config(num_steps=6, num_levels=1)) == 6
    assert num_quanta(Config(num_steps=6, num_levels=3)) == 48


def test_iteration_is_the_minimum_for_the_channel() -> None:
    values = torch.randn(200, 3, 50) * torch.tensor([1.0, 0.2, 5.0])[:, None] + torch.tensor([0.0, 0.5, -2.0])[:, None]
    config = Config(num_steps=4, num_levels=2, thresholds="iteration")
    theta = calibrated(values, config).double().flatten()
    mean, std = values.double().mean((0, 2)), values.double().std((0, 2), correction=0)
    grid = torch.logspace(-2, 2, 4001, base=10).double()[:, None] * theta
    errors = quantization_error(grid, mean, std, 16)
    assert (quantization_error(theta, mean, std, 16) <= errors.amin(0) * 1.001).all()


@pytest.mark.parametrize("lower", [0.0, -math.inf])
def test_quantile_of_what_the_neuron_sends(lower) -> None:
    """A rectifier's quantile counts the clamped values, an identity site's the magnitudes."""
    values = torch.randn(400, 2, 50) - 0.5
    config = Config(thresholds="quantile", quantile=0.9, threshold_scale=3.0)
    sent = values.clamp_min(lower).abs().transpose(0, 1).flatten(1)
    expected = 3 * exact_quantile(sent, 0.9)
    assert ((calibrated(values, config, lower).flatten() / expected - 1).abs() <= 1 / 64).all()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.c(nn.functional.gelu(self.b(self.a(x).relu())).mean((2, 3)))


@pytest.mark.parametrize("method", ["iteration", "quantile"])
def test_batches_of_any_size_and_order(method) -> None:
    model, x = Net().eval(), torch.randn(24, 3, 8, 8) * torch.logspace(-1, 1, 24)[:, None, None, None]
    config = Config(num_steps=4, thresholds=method)
    whole = convert(model, [x], config).thresholds
    again = convert(model, [x], config).thresholds
    other = convert(model, list(x.flip(0).split([1, 7, 16])), config).thresholds
    assert set(whole) == {"relu", "c.input"}
    for name, theta in whole.items():
        assert torch.equal(theta, again[name])
        assert torch.allclose(theta, other[name], rtol=1e-5, atol=0)


def test_neurons_of_their_own_need_one_size() -> None:
    batches = [torch.randn(2, 3, 8, 8), torch.randn(2, 3, 9, 8)]
    with pytest.raises(DataError, match=r"granularity='neuron' needs calibration batches of one size"):
        convert(Net().eval(), batches, Config(thresholds="quantile", granularity="neuron"))
    convert(Net().eval(), batches, Config(num_steps=2, thresholds="quantile"))


def test_nan_inside_the_model() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LogSigmoid(), nn.ReLU()).eval()
    model[1].forward = lambda x: (x - x) / (x - x)
    with pytest.raises(DataError, match=r"site '2' meets NaN"):
        convert(model, [torch.randn(2, 4)], Config(thresholds="quantile"))


def test_a_site_that_is_never_reached() -> None:
    with pytest.raises(DataError, match="never reached"):
        Calibration({"site": site()}, Config()).thresholds()
