"""A sample leaves when it is sure: against the answers of run(), and the batch must really shrink."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import spikecast.network.states
from spikecast import Config, convert
from spikecast.errors import ConfigError, DataError

T = 12
CONFIG = Config(num_steps=T, num_levels=2, burst=1, thresholds="quantile")


class Net(nn.Module):
    def __init__(self, form=lambda y, h: y) -> None:
        super().__init__()
        self.conv, self.out, self.form = nn.Conv2d(3, 6, 3), nn.Linear(6, 4), form

    def forward(self, x):
        h = self.conv(x).relu()
        return self.form(self.out(h.mean((2, 3))) * 4, h)


def everything(y, h):
    """Scores, a batch that is not first, one merged with an outer axis, one merged with an inner axis, a constant."""
    return {
        "y": y,
        "second": y.mT,
        "inside": h.permute(1, 0, 2, 3).reshape(-1, 6),
        "outside": h.reshape(-1, 6),
        "name": "net",
        "one": torch.ones(2),
    }


@pytest.fixture(scope="module")
def plain():
    torch.manual_seed(1)
    model, x = Net().eval(), torch.randn(16, 3, 8, 8)
    return convert(model, [x], CONFIG), x


@pytest.fixture(scope="module")
def rich():
    torch.manual_seed(1)
    model, x = Net(everything).eval(), torch.randn(16, 3, 8, 8)
    return convert(model, [x], CONFIG), x


def expected_steps(ys, confidence):
    """By the words of the rule, sample by sample."""
    steps = []
    for sample in ys.unbind(1):
        t = 2
        while t < len(sample):
            probabilities = sample[t - 1].softmax(0)
            if probabilities.max() >= confidence and sample[t - 1].argmax() == sample[t - 2].argmax():
                break
            t += 1
        steps.append(min(t, len(sample)))
    return torch.tensor(steps)


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("num_steps", [None, 5])
def test_against_all_answers(confidence, num_steps, plain) -> None:
    snn, x = plain
    ys = snn.run(x, num_steps=num_steps)
    y, used = snn.anytime(x, confidence=confidence, num_steps=num_steps)
    expected = expected_steps(ys, confidence)
    assert used.tolist() == expected.tolist()
    assert torch.allclose(y, ys[expected - 1, torch.arange(16)], atol=1e-6)


def test_the_fixture_tells_something(plain) -> None:
    assert len(set(plain[0].anytime(plain[1], confidence=0.5)[1].tolist())) > 2


@pytest.mark.parametrize("num_steps", [1, 2])
def test_few_steps(num_steps, plain) -> None:
    snn, x = plain
    y, used = snn.anytime(x, confidence=0.01, num_steps=num_steps)
    assert used.tolist() == [num_steps] * 16
    assert torch.allclose(y, snn.run(x, num_steps=num_steps)[-1], atol=1e-6)


def test_the_batch_shrinks(plain, monkeypatch) -> None:
    snn, x = plain
    sizes = []

    def counted(steps, *args, **kwargs):
        sizes.append(steps.shape[1])
        return encode(steps, *args, **kwargs)

    encode = vars(spikecast.network.states)["encode"]
    monkeypatch.setattr(spikecast.network.states, "encode", counted)
    _, used = snn.anytime(x, confidence=0.5)
    assert sizes[0] == 16
    assert sizes == sorted(sizes, reverse=True)
    assert sizes == [int((used >= t).sum()) for t in range(1, int(used.max()) + 1)]


def late(t, total=16):
    """A stop rule that lets two more samples go at each step from t on, the middle ones first."""
    count = iter(range(t, 100))

    def stop(previous, now):
        step, size = next(count), len(now["y"])
        assert previous["y"].shape == now["y"].shape
        assert now["second"].shape == (4, size)
        assert now["inside"].shape == now["outside"].shape == (36 * size, 6)
        assert now["name"] == "net"
        gone = torch.zeros(size, dtype=torch.bool)
        if step % 2:
            gone[size // 2 - 1 : size // 2 + 1] = True
        return gone

    return stop


def test_every_form_of_answer(rich) -> None:
    """The samples left keep their own numbers in every leaf, wherever the batch lies."""
    snn, x = rich
    ys = snn.run(x)
    y, used = snn.anytime(x, stop=late(2))
    assert used.tolist() == [12, 12, 12, 11, 9, 7, 5, 3, 3, 5, 7, 9, 11, 12, 12, 12]
    rows = torch.arange(16)
    assert torch.allclose(y["y"], ys["y"][used - 1, rows], atol=1e-6)
    assert torch.allclose(y["second"], y["y"].mT)
    inside = ys["inside"].unflatten(1, (6, 16, -1))[used - 1, :, rows].transpose(0, 1).flatten(0, 2)
    assert torch.allclose(y["inside"], inside, atol=1e-6)
    outside = ys["outside"].unflatten(1, (16, -1))[used - 1, rows].flatten(0, 1)
    assert torch.allclose(y["outside"], outside, atol=1e-6)
    assert y["name"] == "net"
    assert y["one"].tolist() == [1, 1]


def test_other_answers_need_a_rule(rich) -> None:
    with pytest.raises(DataError, match=r"\[B, C\].*stop="):
        rich[0].anytime(rich[1])


@pytest.mark.parametrize(
    "form",
    [lambda y, h: y.mT, lambda y, h: h.reshape(-1, 6)],
    ids=["second", "rows"],
)
def test_what_is_not_scores(form) -> None:
    x = torch.randn(4, 3, 8, 8)
    with pytest.raises(DataError, match=r"\[B, C\].*stop="):
        convert(Net(form).eval(), [x], CONFIG).anytime(x)


@pytest.mark.parametrize(
    "answer",
    [lambda p, n: torch.ones(3, dtype=torch.bool), lambda p, n: torch.ones(16), lambda p, n: True, lambda p, n: None],
    ids=["shape", "dtype", "bool", "none"],
)
def test_bad_rule(answer, plain) -> None:
    with pytest.raises(DataError, match=r"bool tensor of shape \(16,\)"):
        plain[0].anytime(plain[1], stop=answer)


@pytest.mark.parametrize("confidence", [0, -1, 1.1, float("nan")])
def test_bad_confidence(confidence, plain) -> None:
    with pytest.raises(ConfigError, match="confidence="):
        plain[0].anytime(plain[1], confidence=confidence)


def test_samples_that_see_each_other_are_refused() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            y = self.a(x)
            return self.b((y - y.mean(0)).relu())

    x = torch.randn(5, 4)
    with pytest.raises(DataError, match=r"depend on each other.*steps\(\)"):
        convert(Mean().eval(), [x], CONFIG).anytime(x)
