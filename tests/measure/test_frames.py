"""Inputs that change over time, one frame for each step: what is measured is what `run` answers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.config import Coding
from spikecast.errors import ConfigError, DataError
from spikecast.measure import evaluate

T = 4


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(24, 5)).eval()


def converted(model: nn.Module, x: Tensor, coding: Coding) -> spikecast.SpikingNetwork:
    return spikecast.convert(model, [x], Config(num_steps=T, burst=2, thresholds="quantile", coding=coding))


@pytest.mark.parametrize("axis", [0, 1])
def test_figures_are_those_of_run(model: nn.Module, axis: int) -> None:
    frames, labels = torch.randn(7, T, 2, 6, 6), torch.randint(0, 5, (7,))
    snn = converted(model, frames.mean(1), "differential")
    given = frames.movedim(1, axis)
    found = evaluate(snn, [(given, labels)], model=model, time_axis=axis)
    with torch.no_grad():
        own = model(frames.mean(1)).argmax(1)
    said = snn.run(given, time_axis=axis).argmax(-1)
    assert found.steps["top1"] == [float((s == labels).double().mean()) for s in said]
    assert found.ann["top1"] == float((own == labels).double().mean())
    assert found.agreement == [float((s == own).double().mean()) for s in said]
    assert (found.samples, found.energy.tally.samples) == (7, 7)
    unpriced = evaluate(snn, [(given, labels)], model=model, time_axis=axis, costs=None)
    assert unpriced.steps["top1"] == found.steps["top1"]


@pytest.mark.parametrize("coding", ["differential", "rate"])
def test_constant_frames_cost_what_an_image_does(model: nn.Module, coding: Coding) -> None:
    x, labels = torch.randint(-4, 5, (5, 2, 6, 6)) / 4, torch.zeros(5).long()  # quarters: their mean is exact
    snn = converted(model, x, coding)
    image = evaluate(snn, [(x, labels)], model=model)
    film = evaluate(snn, [(x.expand(T, *x.shape), labels)], model=model, time_axis=0)
    assert film.energy.tally.to_json() == image.energy.tally.to_json()
    assert film.steps == image.steps


def test_every_change_of_the_input_is_paid() -> None:
    """A linear layer of three outputs: the input sends an entry whenever the mean of the frames moves there."""
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)).eval()
    frames = torch.tensor([[[1.0, 1.0], [1.0, 3.0], [1.0, 2.0], [5.0, 2.0]]])  # means 1 1, 1 2, 1 2, 2 2
    snn = converted(model, frames.mean(1), "differential")
    found = evaluate(snn, [(frames, torch.tensor([0]))], model=model, time_axis=1)
    (first,) = [line for line in found.energy.tally.lines.values() if "analog" in line.columns]
    assert first.columns["analog"] == [6, 3, 0, 3]


def test_fewer_frames_than_steps(model: nn.Module) -> None:
    frames = torch.randn(3, 2, 2, 6, 6)
    snn = converted(model, frames.mean(1), "rate")
    with pytest.raises(DataError, match=r"num_steps=4 exceeds the 2 frames given"):
        evaluate(snn, [(frames, torch.zeros(3).long())], time_axis=1)


def test_a_step_is_wanted_for_each_frame(model: nn.Module) -> None:
    frames, labels = torch.randn(7, T + 2, 2, 6, 6), torch.randint(0, 5, (7,))
    snn = converted(model, frames.mean(1), "differential")
    with pytest.raises(
        ConfigError, match=r"^num_steps=4 for 6 frames, .* a step for each \(num_steps=6, or --steps 6\)$"
    ):
        evaluate(snn, [(frames, labels)], model=model, time_axis=1)
    assert len(evaluate(snn, [(frames, labels)], model=model, time_axis=1, num_steps=6).agreement) == 6
