"""Calls of other forms and sizes than the one a network was captured with, and graphs that cannot hold time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.errors import DataError, SpikecastError
from tests.nets import relative

QUICK = Config(num_steps=4, burst=1, thresholds="quantile")


class Net(nn.Module):
    """A small convolutional net that does not mind the size of its images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 5)

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.second(F.max_pool2d(F.relu(self.first(x)), 2))))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


# -- graphs whose batch cannot hold the steps


class Centred(Net):
    """Samples see each other."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x).mean((2, 3))
        return self.head(x - x.mean(0))


class Pinned(Net):
    """Works for four samples and no others."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)).reshape(4, 8))


@pytest.mark.parametrize(("kind", "note"), [(Centred, "see each other"), (Pinned, "pinned")])
def test_runs_stepwise_where_the_batch_is_no_place_for_time(kind: type[nn.Module], note: str, examine) -> None:
    model = kind().eval()
    batches = [torch.randn(4, 3, 16, 16) for _ in range(2)]
    snn = examine(model, batches, torch.randn(4, 3, 16, 16), foldable=False)
    said = [n for n in snn.report.notes if "one step at a time" in n]
    assert len(said) == 1
    assert note in said[0]
    assert snn.report.foldable is False


def test_stepwise_numbers_are_those_of_the_folded_run() -> None:
    """The same net, once free in its batch and once pinned to four samples."""
    free, pinned = Net().eval(), Pinned().eval()
    pinned.load_state_dict(free.state_dict())
    batches = [torch.randn(4, 3, 16, 16)]
    x = torch.randn(4, 3, 16, 16)
    folded, stepwise = convert(free, batches, QUICK), convert(pinned, batches, QUICK)
    assert folded.foldable
    assert not stepwise.foldable
    assert relative(stepwise.run(x), folded.run(x)) <= 1e-5
    assert stepwise.record(x).keys() == folded.record(x).keys()


def test_run_and_steps_agree_to_the_last_bits_in_float64() -> None:
    """Where rounding cannot tip a spike there is nothing left in which they could differ."""
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=5)
    for model in (Net(), vit):
        snn = convert(model.double().eval(), [torch.randn(8, 3, 32, 32).double()], QUICK)
        x = torch.randn(5, 3, 32, 32).double()
        answers = snn.run(x, num_steps=8)
        assert relative(snn.run(x, num_steps=8, max_batch=16), answers) <= 1e-12
        for t, answer in snn.steps(x, num_steps=8):
            assert relative(answer, answers[t - 1]) <= 1e-12


# -- other sizes


@pytest.mark.parametrize("size", [(32, 32), (48, 40), (19, 33)], ids=str)
def test_height_and_width_are_free(size: tuple[int, int]) -> None:
    model = Net().eval()
    snn = convert(model, [torch.randn(4, 3, 24, 24)], QUICK)
    x = torch.randn(3, 3, *size)
    with torch.no_grad():
        assert relative(snn.analog(x), model(x)) <= 1e-5
    answers = snn.run(x, num_steps=32)
    with torch.no_grad():
        assert relative(answers[-1], model(x)) < relative(answers[1], model(x)) / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "convnext_tiny"])
def test_models_take_other_sizes(name: str) -> None:
    model = torchvision.models.get_model(name, weights=None).eval()
    snn = convert(model, [torch.randn(4, 3, 64, 64)], QUICK)
    for size in ((64, 64), (96, 64), (80, 112)):
        x = torch.randn(2, 3, *size)
        with torch.no_grad():
            assert relative(snn.analog(x), model(x)) <= 1e-5
        assert snn.run(x).shape == (4, 2, 1000)


def test_batch_size_is_free_from_a_single_sample() -> None:
    model = Net().eval()
    snn = convert(model, [torch.randn(1, 3, 16, 16)], QUICK)
    assert snn.foldable
    for count in (1, 2, 7):
        x = torch.randn(count, 3, 16, 16)
        with torch.no_grad():
            assert relative(snn.analog(x), model(x)) <= 1e-5
        assert snn.run(x).shape == (4, count, 5)


def test_fixed_image_size_is_a_clear_error() -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=1, num_classes=5).eval()
    snn = convert(model, [torch.randn(2, 3, 32, 32)], QUICK)
    with pytest.raises(SpikecastError) as caught:
        snn(torch.randn(2, 3, 40, 40))
    message = str(caught.value)
    assert "\n" not in message
    assert "40" in message or "size" in message


def test_vit_with_free_image_size_is_captured_per_shape() -> None:
    settings: dict[str, Any] = {"img_size": 32, "patch_size": 8, "depth": 1, "num_classes": 5}
    model = timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True, **settings).eval()
    snn = convert(model, [torch.randn(2, 3, 32, 32)], QUICK)
    for size in ((32, 32), (48, 32), (40, 56), (48, 32)):
        x = torch.randn(2, 3, *size)
        with torch.no_grad():
            assert relative(snn.analog(x), model(x)) <= 1e-5
        assert snn.run(x).shape == (4, 2, 5)


# -- arguments and answers of any form


class Pair(NamedTuple):
    logits: Tensor
    extra: dict[str, Any]


@dataclass
class Output:
    pair: Pair
    maps: list[Any]
    kind: str = "nested"
    nothing: None = None


class Nested(Net):
    """Takes an optional mask and a number by name, and answers in every container there is."""

    def forward(self, x: Tensor, *, gate: Tensor | None = None, scale: float = 1.0) -> Any:
        maps = self.features(x)
        if gate is not None:
            maps = maps * gate[:, None, None, None]
        logits = self.head(maps.mean((2, 3))) * scale
        by_name = OrderedDict(top=logits.amax(1), best=logits.argmax(1))
        return Output(Pair(logits, {"named": by_name, "count": 3}), [maps, (maps * 2, x)])


def test_nested_answers_keep_their_form() -> None:
    model, x = Nested().eval(), torch.randn(4, 3, 16, 16)
    snn = convert(model, [x], QUICK)
    with torch.no_grad():
        expected = model(x)
    now, exact, all_steps = snn(x), snn.analog(x), snn.run(x)
    for found in (now, exact, all_steps, *(answer for _, answer in snn.steps(x))):
        assert type(found) is Output
        assert type(found.pair) is Pair
        assert type(found.pair.extra["named"]) is OrderedDict
        assert (found.kind, found.nothing, found.pair.extra["count"]) == ("nested", None, 3)
    assert relative(exact.pair.logits, expected.pair.logits) <= 1e-5
    assert torch.equal(exact.pair.extra["named"]["best"], expected.pair.extra["named"]["best"])
    assert torch.equal(now.maps[1][1], x)
    assert all_steps.pair.logits.shape == (4, 4, 5)
    assert all_steps.pair.extra["named"]["best"].shape == (4, 4)
    assert all_steps.maps[1][0].shape == (4, *expected.maps[1][0].shape)
    assert torch.equal(all_steps.pair.logits[-1], now.pair.logits)


def test_arguments_by_name() -> None:
    model = Nested().eval()
    gate = torch.tensor([0.5, 1.0, 0.0, 2.0])
    x = torch.randn(4, 3, 16, 16)
    snn = convert(model, [{"x": x, "gate": gate, "scale": 3.0}], QUICK)
    with torch.no_grad():
        expected = model(x, gate=gate, scale=3.0).pair.logits
    assert relative(snn.analog(x=x, gate=gate, scale=3.0).pair.logits, expected) <= 1e-5
    assert snn.run(x=x, gate=gate, scale=3.0).pair.logits.shape == (4, 4, 5)


def test_other_arguments_are_captured_anew() -> None:
    """A number is part of the graph; another one needs another graph, and never gives the old answer."""
    model, x = Nested().eval(), torch.randn(4, 3, 16, 16)
    snn = convert(model, [{"x": x, "scale": 3.0}], QUICK)
    with torch.no_grad():
        for scale in (3.0, 0.5):
            expected = model(x, scale=scale).pair.logits
            assert relative(snn.analog(x=x, scale=scale).pair.logits, expected) <= 1e-5
            assert relative(snn.run(x=x, scale=scale, num_steps=32).pair.logits[-1], expected) < 0.05


def test_wrong_arguments_are_one_line() -> None:
    model, x = Net().eval(), torch.randn(4, 3, 16, 16)
    snn = convert(model, [x], QUICK)
    for bad in (torch.randn(4, 1, 16, 16), torch.randn(4, 3), x.double(), torch.full_like(x, float("nan"))):
        with pytest.raises(DataError) as caught:
            snn(bad)
        assert len(str(caught.value).splitlines()) == 1
