"""A converted network against references written by hand: the ANN's own layers with a neuron at every ReLU."""

from __future__ import annotations

import copy
import dataclasses
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import spikecast.network.states
from spikecast import Config, convert
from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.network import chunks
from spikecast.theory.firing import level_value
from spikecast.theory.neuron import Neuron, encode
from tests.nets import relative

T = 6
CONFIGS = {
    "differential": Config(num_steps=T, num_levels=4, burst=1, thresholds="quantile"),
    "rate": Config(num_steps=T, num_levels=3, burst=1, thresholds="quantile", coding="rate", firing_boundary=0.72),
    "if": Config(
        num_steps=T, num_levels=1, burst=1, thresholds="iteration", granularity="layer", initial_potential=0.25
    ),
}


class Cnn(nn.Module):
    """A stem that pools, a residual block, an averaged head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.pool = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2)
        self.block, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 5)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = self.pool(F.relu6(self.norm(self.stem(x))))
        x = F.relu(self.block(x) + x)
        return self.head(x.mean((2, 3)))


def by_hand(model, inputs, snn):
    """inputs [T, B, 3, 8, 8]: the value of the image at each step."""
    neuron = dataclasses.replace(next(iter(snn.neurons.values())), lower=0.0)
    first, second = snn.thresholds
    pooled = torch.stack([model.pool(model.norm(model.stem(x))) for x in inputs])  # the ReLU moves behind the pool
    x = encode(pooled, snn.thresholds[first], dataclasses.replace(neuron, upper=6.0)).estimates
    mixed = torch.stack([model.block(s) + s for s in x])
    y = encode(mixed, snn.thresholds[second], dataclasses.replace(neuron, upper=float("inf"))).estimates
    return torch.stack([model.head(s.mean((2, 3))) for s in y])


@pytest.fixture(scope="module")
def cnn():
    """The model, some images, and its networks; float64, so that no spike hangs on the last bit."""
    torch.manual_seed(0)
    model, x = Cnn().eval().double(), torch.randn(7, 3, 8, 8).double()
    return model, x, {name: convert(model, [x], config) for name, config in CONFIGS.items()}


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_run_by_hand(name, cnn) -> None:
    model, x, networks = cnn
    snn = networks[name]
    expected = by_hand(model, x.expand(T, *x.shape), snn)
    found = snn.run(x)
    assert found.shape == (T, 7, 5)
    assert found.dtype == torch.float64
    assert torch.allclose(found, expected, atol=1e-9)
    assert torch.allclose(snn(x), expected[-1], atol=1e-9)
    assert torch.allclose(torch.stack([y for _, y in snn.steps(x)]), expected, atol=1e-9)
    assert [t for t, _ in snn.steps(x, num_steps=3)] == [1, 2, 3]
    for limit in (1, 12, 13, 42, 1000):
        assert torch.allclose(snn.run(x, max_batch=limit), expected, atol=1e-9)


def sizes_seen(monkeypatch):
    """(steps, samples) of every pass through a site."""
    seen, real = [], vars(spikecast.network.states)["encode"]

    def counted(steps, *args, **kwargs):
        seen.append(tuple(steps.shape[:2]))
        return real(steps, *args, **kwargs)

    monkeypatch.setattr(spikecast.network.states, "encode", counted)
    return seen


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (1, [(1, 1)] * 7 * T),
        (4, [(4, 1), (T - 4, 1)] * 7),
        (12, [(T, 2)] * 3 + [(T, 1)]),
        (17, [(T, 2)] * 3 + [(T, 1)]),
        (41, [(T, 6), (T, 1)]),
    ],
)
def test_max_batch_bounds_samples_times_steps(limit, sizes, cnn, monkeypatch) -> None:
    _, x, networks = cnn
    seen = sizes_seen(monkeypatch)
    networks["rate"].run(x, max_batch=limit)
    assert seen[::2] == seen[1::2] == sizes  # two sites


@pytest.mark.parametrize("name", CONFIGS)
def test_max_memory_bounds_what_lies_in_memory(name, cnn, monkeypatch) -> None:
    _, x, networks = cnn
    snn = networks[name]
    expected = snn.run(x)
    seen = sizes_seen(monkeypatch)
    largest = []
    for limit in (1, "20KB", "200kib", 10**6, "1 GiB"):
        seen.clear()
        assert torch.allclose(snn.run(x, max_memory=limit), expected, atol=1e-9)
        assert seen[0] == (1, 1)  # one sample and step shows what they take
        largest.append(max(steps * samples for steps, samples in seen))
    assert largest == sorted(largest)
    assert largest[0] == 1
    assert largest[-1] == T * (len(x) - 1)


@pytest.mark.parametrize("wrong", [0, -5, "much", "1TB", "", True])
def test_max_memory_in_words(wrong, cnn) -> None:
    _, x, networks = cnn
    with pytest.raises(ConfigError, match=r"max_memory=.* must be a number of bytes, or text such as"):
        networks["rate"].run(x, max_memory=wrong)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_any_number_of_steps(name, cnn) -> None:
    model, x, networks = cnn
    expected = by_hand(model, x.expand(11, *x.shape), networks[name])
    assert torch.allclose(networks[name].run(x, num_steps=11), expected, atol=1e-9)
    assert torch.allclose(networks[name].run(x, num_steps=1), expected[:1], atol=1e-9)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("axis", [0, 1, -4])
@torch.no_grad()
def test_frames(name, axis, cnn) -> None:
    """The image at step t is the mean of the first t frames."""
    model, x, networks = cnn
    frames = torch.randn(T, *x.shape, dtype=x.dtype)
    means = torch.stack([frames[: t + 1].mean(0) for t in range(T)])
    expected = by_hand(model, means, networks[name])
    found = networks[name].run(frames.movedim(0, axis), time_axis=axis)
    assert torch.allclose(found, expected, atol=1e-9)
    some = networks[name].run(frames.movedim(0, axis), time_axis=axis, num_steps=2)
    assert torch.allclose(some, expected[:2], atol=1e-9)


def test_constant_frames_are_an_image(cnn) -> None:
    _, x, networks = cnn
    frames = x.expand(T, *x.shape)
    assert torch.allclose(networks["rate"].run(frames, time_axis=0), networks["rate"].run(x), atol=1e-9)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_record(name, cnn) -> None:
    """Estimates follow from the levels by the coding's own rule, and the last layer from the estimates."""
    model, x, networks = cnn
    snn = networks[name]
    recorded = snn.record(x, num_steps=9)
    assert set(recorded) == set(snn.sites)
    for site, (estimates, levels) in recorded.items():
        theta, bounds = snn.thresholds[site].double(), snn.sites[site]
        assert levels.dtype == torch.int8
        assert 0 < levels.abs().max() <= snn.config.num_levels
        held = torch.zeros_like(estimates[0])
        for t in range(1, 10):
            predicted = held if snn.config.coding == "differential" else held * (t - 1) / t
            held = (predicted + level_value(levels[t - 1], torch.float64).sum(0) * theta / t).clamp(
                bounds.lower, bounds.upper
            )
            assert torch.allclose(held, estimates[t - 1], atol=1e-9)
    last = recorded[list(snn.sites)[-1]].estimates
    assert torch.allclose(model.head(last.mean((3, 4))), snn.run(x, num_steps=9), atol=1e-9)
    name = list(snn.sites)[-1]
    only = snn.record(x, sites=[name], num_steps=2)
    assert list(only) == [name]
    assert torch.equal(only[name].levels, recorded[name].levels[:2])


@pytest.mark.parametrize("sites", [["nope"], ["1", "nope"]])
def test_record_of_an_unknown_site(sites, cnn) -> None:
    with pytest.raises(DataError, match=r"no site is called.*sites are"):
        cnn[2]["rate"].record(cnn[1], sites=sites)


@torch.no_grad()
def test_float32_gives_nearly_the_same(cnn) -> None:
    """A spike may hang on the last bit, but few do."""
    model, x, networks = cnn
    single = convert(copy.deepcopy(model).float(), [x.float()], CONFIGS["differential"])
    for name, theta in networks["differential"].thresholds.items():
        assert torch.allclose(single.thresholds[name], theta, rtol=1e-5)
    ours, theirs = single.record(x.float()), networks["differential"].record(x)
    for name in ours:
        assert (ours[name].levels != theirs[name].levels).float().mean() < 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(dtype) -> None:
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 5)).eval().to(dtype)
    x = torch.randn(7, 4).to(dtype)
    y = convert(model, [x], CONFIGS["differential"]).run(x, num_steps=16)
    assert y.dtype == dtype
    expected = model.float()(x.float()).detach()
    assert relative(y[-1], expected) < 0.03


Pair = namedtuple("Pair", "scores rest")


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x, *, names=("u", "v")):
        y = self.a(x)
        return Pair({"scores": self.b(y.relu()), "still": y}, [None, names, 3.5, (self.b(x),)])


def test_nested_answers() -> None:
    model, x = Nested().eval(), torch.randn(3, 4)
    snn = convert(model, [x], CONFIGS["differential"])
    calls: list[dict[str, Any]] = [{}, {"names": ("w",)}]  # another constant is another call
    for kwargs in calls:
        expected, run, once = model(x, **kwargs), snn.run(x, **kwargs), snn(x, **kwargs)
        assert isinstance(run, Pair)
        assert run.scores["scores"].shape == (T, 3, 2)
        assert torch.allclose(run.scores["still"], expected.scores["still"].expand(T, 3, 4), atol=1e-6)
        assert run.rest[:3] == [None, kwargs.get("names", ("u", "v")), 3.5]
        assert torch.allclose(run.rest[3][0], expected.rest[3][0].expand(T, 3, 2), atol=1e-6)
        assert once.scores["still"].shape == (3, 4)
        assert once.rest[2] == 3.5
        assert torch.equal(once.scores["scores"], run.scores["scores"][-1])
        chunked = snn.run(x, max_batch=1, **kwargs)
        assert chunked.rest[:3] == run.rest[:3]
        assert torch.allclose(chunked.scores["scores"], run.scores["scores"], atol=1e-6)


def test_answers_do_not_share_memory_with_the_network(cnn) -> None:
    _, x, networks = cnn
    expected = networks["rate"].run(x)
    for answer in (networks["rate"].run(x), networks["rate"](x), networks["rate"].analog(x)):
        answer.mul_(0)
    assert torch.equal(networks["rate"].run(x), expected)
    steps = [y for _, y in networks["rate"].steps(x)]
    assert torch.allclose(torch.stack(steps), expected)  # no step overwrites the one before


def test_no_gradients_and_no_training(cnn) -> None:
    _, x, networks = cnn
    assert not networks["rate"](x.clone().requires_grad_()).requires_grad
    assert not any(y.requires_grad for _, y in networks["rate"].steps(x))
    assert not list(networks["rate"].parameters())


def test_state_dict_holds_weights_and_thresholds(cnn) -> None:
    _, x, networks = cnn
    snn = copy.deepcopy(networks["differential"])
    state = {k: v.clone() for k, v in snn.state_dict().items()}
    assert sum(k.startswith("base_thresholds.") for k in state) == len(snn.sites)
    expected = snn(x)
    for name in snn.sites:
        snn.threshold(name).mul_(3)
    assert not torch.allclose(snn(x), expected)
    snn.load_state_dict(state)
    assert torch.equal(snn(x), expected)


def test_loaded_weights_hold_for_every_input_form() -> None:
    """A graph made for another size would hold the model's own weights, so there is none after loading others."""
    model = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (3, 4, 4)), nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Conv2d(2, 1, 1))
    snn = spikecast.convert(model.eval(), [torch.randn(4, 48)], spikecast.Config(thresholds="quantile"))
    other = torch.randn(4, 3, 16)
    snn(other)  # takes another graph
    state = {k: v * (0.5 if k.startswith("weights.") else 1) for k, v in snn.state_dict().items()}
    snn.load_state_dict(state)
    with pytest.raises(DataError, match="convert the model again"):
        snn(other)
    x = torch.randn(4, 48)
    assert not torch.allclose(snn(x), model(x), rtol=0.3)


def test_to_another_type_is_refused(cnn) -> None:
    snn = copy.deepcopy(cnn[2]["differential"])
    before = {k: v.clone() for k, v in snn.state_dict().items()}
    for change in (lambda: snn.half(), lambda: snn.to(torch.float32), lambda: nn.Sequential(snn).bfloat16()):
        with pytest.raises(ModelError, match=r"computes in torch.float64.*convert model.to") as error:
            change()
        assert "\n" not in str(error.value)
    assert all(v.dtype == before[k].dtype and torch.equal(v, before[k]) for k, v in snn.state_dict().items())
    snn.double().cpu()
    assert {b.device.type for b in copy.deepcopy(snn).to("meta").buffers()} == {"meta"}


@pytest.mark.parametrize("steps", [0, -1, 2.0, True, "4", None, 5000])
def test_bad_number_of_steps(steps, cnn) -> None:
    _, x, networks = cnn
    calls = [networks["rate"].run, lambda *a, **k: list(networks["rate"].steps(*a, **k)), networks["rate"].record]
    for call in calls:
        if steps is None:
            call(x, num_steps=None)
            continue
        with pytest.raises(ConfigError, match=r"num_steps=.*from 1 to 4096"):
            call(x, num_steps=steps)


@pytest.mark.parametrize(
    ("shape", "axis", "steps", "words"),
    [((2, 7, 3, 8, 8), 0, 3, "exceeds the 2 frames"), ((0, 7, 3, 8, 8), 0, None, "at least one frame"),
     ((7, 3, 8, 8), 4, None, "time_axis=4"), ((7, 3, 8, 8), -5, None, "time_axis=-5")],
)  # fmt: skip
def test_bad_frames(shape, axis, steps, words, cnn) -> None:
    with pytest.raises(DataError, match=words):
        cnn[2]["rate"].run(torch.zeros(shape).double(), time_axis=axis, num_steps=steps)


def test_nan_in_a_later_frame(cnn) -> None:
    frames = torch.zeros(3, 7, 3, 8, 8).double()
    frames[2, 0] = torch.nan
    with pytest.raises(DataError, match="NaN"):
        cnn[2]["rate"].run(frames, time_axis=0)


def test_a_network_without_neurons() -> None:
    model, x = nn.Linear(4, 3).eval(), torch.randn(5, 4)
    snn = convert(model, [x], Config(num_steps=3))
    assert snn.sites == {}
    assert torch.allclose(snn.run(x), model(x).detach().expand(3, 5, 3), atol=1e-6)
    assert torch.allclose(snn.anytime(x)[0], model(x).detach(), atol=1e-6)


class Names(nn.Module):
    """Constants that are called like methods of a module, as the ops are that make them."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x):
        table = torch.arange(4).to(x.dtype) * torch.ones(4).type(x.dtype).float()
        return self.line(x + torch.arange(4).to(x.dtype)).relu() * table


def test_names_that_a_module_has_already() -> None:
    model, x = Names().eval(), torch.randn(3, 4)
    snn = convert(model, [x], CONFIGS["differential"])
    assert torch.allclose(snn.analog(x), model(x).detach(), atol=1e-5)
    snn.set_thresholds({"to": torch.ones(1), "a.b": torch.zeros(2), "training": torch.ones(3), "to.x": torch.zeros(4)})
    assert [len(snn.threshold(name)) for name in ("to", "a.b", "training", "to.x")] == [1, 2, 3, 4]
    assert snn.base_thresholds.training is False


def test_only_neurons() -> None:
    snn = convert(nn.ReLU().eval(), [torch.rand(64, 5)], Config(num_steps=16, burst=1, thresholds="quantile"))
    x = torch.rand(3, 5) - 0.3
    neuron = Neuron(lower=0.0)
    expected = encode(x.expand(16, 3, 5), snn.thresholds["relu"], neuron).estimates
    assert torch.equal(snn.run(x), expected)
    assert (snn(x) - x.relu()).abs().max() < 0.01


def test_empty_batch(cnn) -> None:
    assert cnn[2]["rate"].run(torch.zeros(0, 3, 8, 8).double()).shape == (T, 0, 5)
    assert cnn[2]["rate"](torch.zeros(0, 3, 8, 8).double()).shape == (0, 5)


def test_pieces_are_small_enough_for_memory_to_be_reused(cnn, monkeypatch) -> None:
    """On the CPU no value of a piece is larger than a block that is kept; all steps of one sample stay together."""
    _, x, networks = cnn
    whole = networks["rate"].run(x)
    seen = sizes_seen(monkeypatch)
    networks["rate"].run(x)
    assert seen == [(T, 7)] * 2
    seen.clear()
    monkeypatch.setattr(chunks, "LARGEST", 1)
    assert torch.allclose(networks["rate"].run(x), whole, atol=1e-9)
    assert seen == [(T, 1)] * 14
