"""Parts of a model that cannot be captured whole: the Python around them runs, each call has a state of its own."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.network.answers import at_step
from spikecast.network.regions import RegionNetwork
from spikecast.theory.neuron import Neuron, encode
from tests.nets import relative

T = 6
QUICK = Config(num_steps=T, num_levels=4, burst=1, thresholds="quantile")


class Detector(nn.Module):
    """A backbone called once, a head called on each level, and boxes that depend on what is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2, padding=1))
        self.head = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
        self.spare = nn.Linear(2, 2)

    def forward(self, images, *, scale=1.0):
        features = self.backbone(torch.stack(images))
        levels = [features, F.avg_pool2d(features, 2), -features]
        maps = [self.head(level) * scale for level in levels]
        found = []
        for i in range(len(images)):  # as many as there are, which no graph can say beforehand
            scores = torch.cat([m[i].flatten(1) for m in maps], 1)
            found.append({"maps": scores, "boxes": scores[:, scores[0] > 0].T, "count": int((scores[0] > 0).sum())})
        return found


def images(count=3):
    return [torch.randn(3, 8, 8) for _ in range(count)]


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    model = Detector().eval()
    batch = images()
    return model, batch, convert(model, [batch], QUICK, inputs=lambda b: (b,), regions=["backbone", "head"])


def stacked(answers):
    return torch.stack([a["maps"] for a in answers])


@torch.no_grad()
def by_hand(model, batch, snn, steps):
    """The same Python with a neuron at each ReLU and before each head, and states kept by place of call."""
    rectifier, identity = Neuron(num_levels=4, lower=0.0), Neuron(num_levels=4)
    theta = snn.thresholds
    x = torch.stack(batch).expand(steps, len(batch), 3, 8, 8)
    hidden = torch.stack([model.backbone[0](s) for s in x])
    hidden = encode(hidden, theta["backbone.1"], rectifier).estimates
    features = torch.stack([model.backbone[2](s) for s in hidden])
    maps = []
    for level in (features, torch.stack([F.avg_pool2d(f, 2) for f in features]), -features):
        sent = encode(level, theta["head.0.input"], identity).estimates
        hidden = torch.stack([model.head[0](s) for s in sent])
        hidden = encode(hidden, theta["head.1"], rectifier).estimates
        maps.append(torch.stack([model.head[2](s) for s in hidden]).flatten(3))
    return torch.cat(maps, 3)


def test_sites(made) -> None:
    _, _, snn = made
    assert isinstance(snn, RegionNetwork)
    assert set(snn.thresholds) == {"backbone.1", "head.0.input", "head.1"}  # only the first region reads the image
    assert set(snn.networks) == {"backbone", "head"}
    assert snn.report.num_sites == 3
    assert set(snn.report.prices) == set(snn.sites)
    assert snn.slots(2) == [1, 2]
    assert {row.scope.split(".")[0] for row in snn.report.rows} == {"backbone", "head"}
    assert any("outside of the regions" in note for note in snn.report.notes)


def test_analog_is_the_model(made) -> None:
    model, batch, snn = made
    with torch.no_grad():
        assert torch.allclose(stacked(snn.analog(batch)), stacked(model(batch)), atol=1e-5)
        assert torch.allclose(stacked(snn.analog(batch, scale=3.0)), stacked(model(batch, scale=3.0)), atol=1e-5)


def test_steps_by_hand(made) -> None:
    model, batch, snn = made
    expected = by_hand(model, batch, snn, T)
    answers = snn.run(batch)
    assert [a["maps"].shape[0] for a in answers] == [T] * len(batch)  # time in front of every tensor
    for t, maps in enumerate(expected):
        answer = at_step(answers, t)
        assert torch.allclose(stacked(answer), maps, atol=1e-5)
        for one in answer:  # and the Python around it saw those maps
            assert one["count"] == int((one["maps"][0] > 0).sum()) == len(one["boxes"])
    assert torch.equal(stacked(snn(batch)), stacked(at_step(answers, -1)))
    assert [t for t, _ in snn.steps(batch, num_steps=2)] == [1, 2]


def test_every_run_starts_afresh(made) -> None:
    model, batch, snn = made
    first = stacked(snn(batch))
    for other in (images(5), images(1)):  # other sizes in between
        expected = by_hand(model, other, snn, 2)[-1]
        assert torch.allclose(stacked(at_step(snn.run(other, num_steps=2), -1)), expected, atol=1e-5)
    next(iter(snn.steps(batch)))  # a run that is not finished
    snn.analog(batch)
    assert torch.equal(stacked(snn(batch)), first)


def test_answers_converge(made) -> None:
    model, batch, snn = made
    with torch.no_grad():
        target = stacked(model(batch))
    answers = snn.run(batch, num_steps=48)
    errors = [relative(stacked(at_step(answers, t - 1)), target) for t in (2, 48)]
    assert errors[1] < errors[0] / 4
    assert errors[1] < 0.02
    assert [a["count"] for a in at_step(answers, -1)] == pytest.approx([a["count"] for a in model(batch)], abs=3)


def test_the_model_is_untouched(made) -> None:
    model, batch, snn = made
    twin = Detector().eval()
    twin.load_state_dict(model.state_dict())
    assert type(model.backbone) is nn.Sequential
    assert type(model.head) is nn.Sequential
    with torch.no_grad():
        assert torch.equal(stacked(model(batch)), stacked(twin(batch)))
    expected = stacked(snn(batch))
    copied = copy.deepcopy(model)
    assert isinstance(copied.head, nn.Sequential)
    assert torch.equal(stacked(snn(batch)), expected)


def test_thresholds_see_every_call(made) -> None:
    """The head's statistics are those of all three levels, not of the first alone."""
    model, batch, snn = made
    with torch.no_grad():
        features = model.backbone(torch.stack(batch))
    levels = [features, F.avg_pool2d(features, 2), -features]
    values = torch.cat([level.transpose(0, 1).flatten(1).abs() for level in levels], 1)
    expected = values.double().quantile(0.999, 1, interpolation="higher")
    assert torch.allclose(snn.thresholds["head.0.input"].flatten().double(), expected, rtol=0.016)


def test_search_follows_the_calls_not_the_names(made) -> None:
    """The head is searched on what the backbone really sends, in whatever order the two are named."""
    model, batch, plain = made
    config = dataclasses.replace(QUICK, thresholds="search", num_levels=2, num_steps=3)
    orders = (["backbone", "head"], ["head", "backbone"])
    found = [convert(model, [batch], config, inputs=lambda b: (b,), regions=names).thresholds for names in orders]
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(theta, found[1][name]) for name, theta in found[0].items())
    assert not torch.equal(found[0]["head.1"], plain.thresholds["head.1"])


class Cropped(nn.Module):
    """Looks closer at as many rows as its first look finds; that number changes while the estimate settles."""

    def __init__(self, how) -> None:
        super().__init__()
        self.first, self.second, self.how = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2), how

    def forward(self, x):
        scores = self.first(x)
        return self.how(self, scores)


def rows(m, scores):
    return m.second(scores[: int(scores.sum().round()) % 5 + 1])


def often(m, scores):
    return sum(m.second(scores) for _ in range(int(scores.sum().round()) % 5 + 1))


@pytest.mark.parametrize(
    ("how", "words"),
    [(rows, "take a region of fixed shapes"), (often, "called more often in step")],
    ids=["rows", "often"],
)
def test_regions_whose_calls_change(how, words) -> None:
    torch.manual_seed(3)
    model, x = Cropped(how).eval(), torch.randn(6, 4) * 3
    snn = convert(model, [x], dataclasses.replace(QUICK, num_levels=1), regions=["first", "second"])
    with pytest.raises(DataError, match=words) as error:
        snn.run(x, num_steps=64)
    assert "second" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(snn.run(x, num_steps=1)) == 1


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["backbone", "neck"], r"Detector has no submodule 'neck'; it has backbone, head"),
        (["backbone", "backbone"], r"'backbone' and 'backbone' overlap"),
        (["backbone", "backbone.0"], r"'backbone' and 'backbone.0' overlap"),
        (["head.0", "head"], r"'head' and 'head.0' overlap"),
        (["spare"], r"'spare' is never called by Detector.forward; name another"),
        ([""], r"must be a list of submodule names"),
    ],
)
def test_names_that_do_not_work(names, words) -> None:
    model = Detector().eval()
    with pytest.raises(ModelError, match=words) as error:
        convert(model, [images()], QUICK, inputs=lambda b: (b,), regions=names)
    assert "\n" not in str(error.value)
    assert type(model.backbone) is nn.Sequential


def test_one_module_under_two_names() -> None:
    model = Detector().eval()
    model.twin = model.head
    with pytest.raises(ModelError, match=r"'head' and 'twin' share a module"):
        convert(model, [images()], QUICK, inputs=lambda b: (b,), regions=["head", "twin"])


def test_names_that_only_look_alike() -> None:
    """`head1` is no part of `head`."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.head1 = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            y = self.head(x).relu()
            return self.head1(y) if float(y.sum()) > -1 else y

    model, x = Two().eval(), torch.randn(3, 4)
    snn = convert(model, [{"x": x, "id": 3}], QUICK, regions=["head", "head1"])
    assert set(snn.thresholds) == {"head1.input"}
    assert any("id" in note and "dropped" in note for note in snn.report.notes)
    with torch.no_grad():
        expected = model(x)
    assert relative(snn.run(x, num_steps=64)[-1], expected) < 0.01


def test_state_dict_and_types(made) -> None:
    _, batch, snn = made
    expected = stacked(snn(batch))
    other = copy.deepcopy(snn)
    for name, value in other.state_dict().items():
        if "base_thresholds" in name:
            value.mul_(4)
    assert not torch.allclose(stacked(other(batch)), expected)
    other.load_state_dict(snn.state_dict())
    assert torch.equal(stacked(other(batch)), expected)
    with pytest.raises(ModelError, match=r"convert model\.to"):
        other.half()


def test_the_same_names_as_a_whole_network(made) -> None:
    """steps, record, anytime and twin: what a whole network has, or a refusal that says where to look."""
    _, batch, snn = made
    recorded = snn.record(batch, sites=["backbone.1"], num_steps=3)
    assert recorded["backbone.1"].estimates.shape[0] == recorded["backbone.1"].levels.shape[0] == 3
    with pytest.raises(ModelError, match=r"a twin needs .* snn\.networks\['backbone'\]"):
        snn.twin()
    with pytest.raises(ConfigError, match=r"max_memory.*one step at a time"):
        snn.run(batch, max_memory="1GiB")
    with pytest.raises(ConfigError, match="time_axis"):
        snn.run(batch, time_axis=0)
    with pytest.raises(DataError, match="class scores"):
        snn.anytime(batch)


def test_recorded_estimates_are_those_of_the_run(made) -> None:
    model, batch, snn = made
    theta = snn.thresholds["backbone.1"]
    inputs = model.backbone[0](torch.stack(batch)).expand(4, -1, -1, -1, -1)
    expected = encode(inputs, theta, Neuron(num_levels=4, lower=0.0), want_levels=True)
    found = snn.record(batch, num_steps=4)["backbone.1"]
    assert torch.allclose(found.estimates, expected.estimates, atol=1e-6)
    assert torch.equal(found.levels, expected.levels)


class Scored(nn.Module):
    """A classifier whose forward cannot be captured whole."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.body(x) * (10.0 if float(x.sum()) > -1e9 else 1.0)


def test_anytime_by_region() -> None:
    """Every sample keeps the answer of the step it was sure at; the run ends with the last of them."""
    torch.manual_seed(0)
    model, x = Scored().eval(), torch.randn(8, 6)
    snn = convert(model, [x], dataclasses.replace(QUICK, num_steps=16), regions=["body"])
    answer, used = snn.anytime(x, confidence=0.9)
    each = snn.run(x)
    for i, t in enumerate(used.tolist()):
        assert torch.equal(answer[i], each[t - 1, i])
        sure = each.softmax(-1).amax(-1)[:, i] >= 0.9
        same = each.argmax(-1)[1:, i] == each.argmax(-1)[:-1, i]
        first = next((k + 2 for k in range(15) if sure[k + 1] and same[k]), 16)
        assert t == first
    assert len(set(used.tolist())) > 1
