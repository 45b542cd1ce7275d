"""Tasks beside images: texts, reconstruction, and one of one's own; each against figures worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import DataError
from spikecast.experiments.compare import compare
from spikecast.experiments.sweep import sweep_of
from spikecast.measure import Metric, OwnTask, evaluate
from spikecast.measure.tasks import task_named
from spikecast.page import build


def test_language_by_hand() -> None:
    task = task_named("language")
    odds = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], [[0.2, 0.4, 0.4], [0.6, 0.2, 0.2]]])
    notes = task.notes({"logits": odds.log()}, torch.tensor([[0, 1], [2, -100]]))
    assert notes[0] == pytest.approx([-math.log(0.5) - math.log(0.1), 1, 2])
    assert notes[1] == pytest.approx([-math.log(0.4), 0, 1])  # of two that are equally likely the first is said
    found = task.result(notes)
    assert found["perplexity"] == pytest.approx((0.5 * 0.1 * 0.4) ** (-1 / 3))
    assert found["next"] == pytest.approx(1 / 3)
    other = odds.clone()
    other[0, 0] = torch.tensor([0.1, 0.8, 0.1])
    assert task.same(other.log(), odds.log()) == [(1.0, 2.0), (2.0, 2.0)]
    loaded = SimpleNamespace(loss=None, logits=odds.log())  # what an answer's class is after loading
    assert task.notes(loaded, torch.tensor([[0, 1], [2, -100]])) == notes


def test_scores_called_logits() -> None:
    """Of pixels and of classes, whatever else the answer holds."""
    scores, classes = torch.rand(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    task = task_named("segmentation")
    assert task.notes(SimpleNamespace(logits=scores), classes) == task.notes(scores, classes)
    ranks, other = torch.rand(5, 3), torch.rand(5, 3)
    labels = torch.randint(0, 3, (5,))
    task = task_named("classification")
    assert task.notes(SimpleNamespace(pooled=other, logits=ranks), labels) == task.notes(ranks, labels)
    with pytest.raises(DataError, match="holds 2 tensors of scores"):
        task.notes(SimpleNamespace(pooled=other, ranks=ranks), labels)


@pytest.mark.parametrize(
    ("answer", "target", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), r"needs scores \[B, S, V\]"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64), r"targets of shape \(2, 4\) do not fit"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 3), "do not fit scores"),
        (torch.zeros(2, 3, 4), torch.full((2, 3), 4), "a token 4 does not fit 4 scores"),
    ],
)
def test_texts_that_do_not_fit(answer, target, message) -> None:
    with pytest.raises(DataError, match=message):
        task_named("language").notes(answer, target)


def test_reconstruction_by_hand() -> None:
    task = task_named("reconstruction")
    target = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    answer = torch.tensor([[3.0, 2.0], [1.0, 1.0]])
    assert task.notes(answer, target) == [[4.0, 25.0], [1.0, 1.0]]
    assert task.result(task.notes(answer, target))["error"] == pytest.approx(math.sqrt(5 / 26))
    assert task.same(answer, target) == [(21.0, 25.0), (0.0, 1.0)]
    with pytest.raises(DataError, match=r"\(2, 2\) and \(2,\); give two tensors of one shape"):
        task.notes(answer, target[:, 0])


def autoencoder() -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)).eval()
    batches = [(x, x + 0.1) for x in torch.randn(3, 4, 6)]
    return model, batches


def test_a_number_of_which_less_is_better_goes_through_all() -> None:
    model, batches = autoencoder()
    calibration = [x for x, _ in batches]
    snn = spikecast.convert(model, calibration, Config(num_steps=3, burst=1, thresholds="quantile"))
    found = evaluate(snn, batches, "reconstruction", model=model)
    with torch.no_grad():
        x, y = torch.cat(calibration), torch.cat([y for _, y in batches])
        wanted = [float((out - y).norm() / y.norm()) for out in snn.run(x)]
    assert found.steps["error"] == pytest.approx(wanted)
    assert found.agreement == sorted(found.agreement)
    assert f"{wanted[0]:.4g} (" in found.table()
    assert "%" not in found.table().splitlines()[1].split()[2]
    ways = {"coarse": Config(num_steps=1, num_levels=2, burst=1), "fine": Config(num_steps=1, burst=4)}
    comparison = compare(model, lambda: calibration, lambda: batches, ways, task="reconstruction")
    assert "ANN: error" in comparison.table()
    sweep = sweep_of(comparison)
    assert sweep.within().point.name == "fine"  # the smaller error, though it costs more
    assert "fine" in [p.name for p in sweep.front]
    page = build(model, {"snn": snn}, batches, task="reconstruction")
    assert (page.metric, page.how) == ("error", Metric("", more=False))
    assert page.networks[0].intervals["error"] == found.intervals["error"]
    assert f"Its error is {wanted[0]:.4g}, the ANN’s " in page.html()  # the first step is as good, of so few samples


def test_a_task_of_ones_own() -> None:
    model, batches = autoencoder()
    snn = spikecast.convert(model, [x for x, _ in batches], Config(num_steps=2, thresholds="quantile"))
    own = OwnTask(
        note=lambda answer, target: [float(x) for x in (answer - target).abs().amax(1)],
        score=max,
        name="worst",
        metric=Metric("", more=False),
    )
    found = evaluate(snn, batches, own, model=model)
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    assert found.steps["worst"] == pytest.approx([float((out - y).abs().max()) for out in snn.run(x)])
    assert found.intervals["worst"][-1].high == found.steps["worst"][-1]  # no draw is worse than the worst
    twice = [{"a": out, "b": [2 * out]} for out in (snn(x), model(x).detach())]
    once = own.same(snn(x), model(x).detach())
    assert own.same(*twice) == [pytest.approx((5 * like, 5 * power)) for like, power in once]  # 1² + 2²
    with pytest.raises(DataError, match="are str and str; give two tensors"):
        own.same("a", "b")
