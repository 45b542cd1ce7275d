"""Scores of answers against small cases worked out by hand, and evaluation of whole networks."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.graph.structure import Steps
from spikecast.measure import evaluate
from spikecast.measure.tasks import task_named
from spikecast.network.answers import at_step

T = 3


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 7)).eval()


@pytest.fixture
def batches() -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(n, 2, 6, 6), torch.randint(0, 7, (n,))) for n in (4, 4, 3)]


def test_classification_by_hand() -> None:
    task = task_named("classification")
    scores = torch.tensor([[0.0, 9, 1, 2, 3, 4, 5], [9.0, 8, 7, 6, 5, 4, 3], [1.0, 2, 3, 4, 5, 6, 7]])
    assert task.notes(scores, torch.tensor([1, 4, 0])) == [[1, 1], [0, 1], [0, 0]]
    assert task.notes({"logits": scores, "hidden": scores[:, :2]}, [0, 0, 6]) == [[0, 0], [1, 1], [1, 1]]
    assert task.result([[1, 1], [0, 1], [0, 0], [0, 1]]) == {"top1": 1 / 4, "top5": 3 / 4}
    assert task.same(scores, scores[[0, 0, 2]]) == [(1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 7, 1]), "labels from 0 to 7 do not fit 7 classes"),
        (torch.tensor([-1, 0, 1]), "do not fit 7 classes"),
        (torch.tensor([0.5, 0, 1]), "do not fit 7 classes"),
        (torch.tensor([0, 1]), r"labels of shape \(2,\)"),
        (torch.eye(3, 7), r"give one class number for each sample \(labels.argmax\(1\), if they are one-hot\)"),
    ],
)
def test_labels_that_do_not_fit(labels: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        task_named("classification").notes(torch.zeros(3, 7), labels)


def test_segmentation_by_hand() -> None:
    task = task_named("segmentation")
    classes = torch.tensor([[[0, 0, 1], [1, 2, 2]]])
    scores = nn.functional.one_hot(classes, 3).permute(0, 3, 1, 2).float()
    target = torch.tensor([[[0, 1, 1], [1, 255, 0]]])
    (note,) = task.notes({"out": scores}, target)
    assert note == [[1, 2, 0], [2, 3, 0], [2, 2, 1]]  # right, true, given; of the six pixels one has no class
    result = task.result([note, note])
    assert result["pixels"] == pytest.approx(3 / 5)
    assert result["miou"] == pytest.approx((1 / 3 + 2 / 3 + 0) / 3)  # the third class was given, but is nowhere
    assert task.notes(nn.functional.interpolate(scores, scale_factor=2.0), [target[0]]) == [note]
    with pytest.raises(DataError, match="do not fit 3 classes"):
        task.notes(scores, target + 2)


def boxes(*rows: tuple[float, ...], labels: list[int], scores: list[float] | None = None) -> dict[str, Tensor]:
    found = {"boxes": torch.tensor(rows).reshape(-1, 4), "labels": torch.tensor(labels)}
    return found if scores is None else {**found, "scores": torch.tensor(scores)}


def test_detection_by_hand() -> None:
    task = task_named("detection")
    true = [boxes((0, 0, 50, 50), (60, 60, 90, 90), labels=[1, 2])]
    right = [boxes((0, 0, 50, 50), (60, 60, 90, 90), labels=[1, 2], scores=[0.9, 0.8])]
    half = [boxes((0, 0, 50, 50), labels=[1], scores=[0.9])]
    assert task.result(task.notes(right, true))["map"] == pytest.approx(1.0)
    assert task.result(task.notes(half, true))["map"] == pytest.approx(0.5)
    shifted = [boxes((0, 0, 50, 35), (60, 60, 90, 90), labels=[1, 2], scores=[0.9, 0.8])]  # overlaps by 0.7
    found = task.result(task.notes(shifted, true))
    assert found["map50"] == pytest.approx(1.0)
    assert found["map"] == pytest.approx((0.5 + 1) / 2)  # right at 0.5, 0.55, ..., 0.7 of ten bounds
    nothing = [boxes(labels=[], scores=[])]
    assert task.result(task.notes(nothing, true)) == {"map": 0.0, "map50": 0.0}
    assert task.same(half, right) == [(1.0, 2.0)]
    with pytest.raises(DataError, match="2 answers for 1 images"):
        task.notes(right * 2, true)
    with pytest.raises(DataError, match="one per image"):
        task.notes(torch.zeros(3), true)


def test_evaluate_is_what_the_answers_say(model, batches) -> None:
    snn = spikecast.convert(model, batches, Config(num_steps=T, thresholds="quantile"))
    found = evaluate(snn, batches, model=model)
    ys = torch.cat([snn.run(x) for x, _ in batches], 1)
    labels = torch.cat([y for _, y in batches])
    with torch.no_grad():
        ann = torch.cat([model(x) for x, _ in batches])
    assert found.samples == 11
    assert found.steps["top1"] == [float((y.argmax(1) == labels).double().mean()) for y in ys]
    assert found.ann["top1"] == float((ann.argmax(1) == labels).double().mean())
    assert found.agreement == pytest.approx([float((y.argmax(1) == ann.argmax(1)).double().mean()) for y in ys])
    assert found.energy.to_json() == spikecast.measure.energy(snn, batches).to_json()
    lines = found.table().splitlines()
    assert len(lines) == 1 + T + 1 + 1
    assert lines[-2].startswith("ANN")
    assert json.loads(json.dumps(found.to_json()))["steps"]["top5"] == found.steps["top5"]
    plain = evaluate(snn, batches, costs=None, num_steps=2)
    assert plain.energy is None
    assert plain.steps["top1"] == found.steps["top1"][:2]
    assert "energy" not in plain.table()


def test_a_step_takes_as_long_as_its_longest_burst(model, batches) -> None:
    config = Config(num_steps=T, burst=2, thresholds="quantile", encode_input=True, overrides={"1": {"burst": 5}})
    snn = spikecast.convert(model, batches, config)
    assert sorted({neuron.burst for neuron in snn.neurons.values()}) == [2, 5]
    assert snn.slots() == [5, 10, 15]
    found = evaluate(snn, batches, model=model, num_steps=2)
    assert found.slots == found.energy.slots == found.energy.under("full").slots == snn.slots(2) == [5, 10]
    assert found.to_json()["slots"] == found.energy.to_json()["slots"] == [5, 10]
    for table in (found.table(), found.energy.table(), evaluate(snn, batches, costs=None, num_steps=2).table()):
        rows = [line.split() for line in table.splitlines()[:3]]
        assert [row[:2] for row in rows] == [["t", "slots"], ["1", "5"], ["2", "10"]]


def test_targets_are_found(model, batches) -> None:
    snn = spikecast.convert(model, batches, Config(num_steps=T, thresholds="quantile"))
    wanted = evaluate(snn, batches).steps
    named = [{"x": x, "labels": y} for x, y in batches]
    assert evaluate(snn, named, inputs=lambda b: b["x"]).steps == wanted
    odd = [(y, x) for x, y in batches]
    assert evaluate(snn, odd, inputs=lambda b: b[1], targets=lambda b: b[0]).steps == wanted
    with pytest.raises(DataError, match="has no target"):
        evaluate(snn, [batches[0][0]])
    with pytest.raises(DataError, match="nothing was measured"):
        evaluate(snn, [])
    with pytest.raises(ConfigError, match="'clustering' is not one of classification"):
        evaluate(snn, batches, "clustering")


def test_at_step() -> None:
    x = torch.arange(6).reshape(2, 3)
    assert at_step({"a": x, "b": "name"}, 1) == {"a": pytest.approx(torch.tensor([3, 4, 5])), "b": "name"}
    assert at_step({"boxes": Steps([1, 2])}, 1) == {"boxes": 2}


@pytest.mark.parametrize("method", ["quantile", "iteration"])
def test_batches_of_any_size_and_order(model: nn.Module, batches: list[tuple[Tensor, Tensor]], method: Any) -> None:
    """Calibrated and measured anew on the same samples, otherwise cut and in another order."""
    x, y = (torch.cat(parts).flip(0) for parts in zip(*batches, strict=True))
    other = list(zip(x.split([1, 2, 8]), y.split([1, 2, 8]), strict=True))
    found = []
    for given in (batches, other):
        snn = spikecast.convert(model, given, Config(num_steps=T, thresholds=method))
        result = evaluate(snn, given, model=model)
        assert result.energy is not None
        found.append([*result.steps["top1"], *result.energy.snn, *result.energy.accumulates, result.energy.macs])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_model_of_another_kind_is_said_in_one_line() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    data = [(torch.rand(5, 4), torch.tensor([0, 1, 0, 1, 0]))]
    snn = spikecast.convert(model, data, Config(num_steps=2, thresholds="quantile"))
    with pytest.raises(DataError, match=r"Linear fails on what the network takes; give the .*mat1 and mat2"):
        evaluate(snn, data, model=nn.Linear(3, 3).eval())
    for wrong in (model, 3):
        with pytest.raises(ModelError, match=r"no converted network; give what spikecast.convert returned"):
            evaluate(cast(Any, wrong), data)
        with pytest.raises(ModelError, match=r"no converted network; give what spikecast.convert returned"):
            spikecast.measure.energy(cast(Any, wrong), data)
