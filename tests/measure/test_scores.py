"""Figures of notes with their intervals: what the interval functions say of the same samples."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import DataError
from spikecast.measure import evaluate
from spikecast.measure.intervals import UNKNOWN, bootstrap, paired_bootstrap, paired_share, share
from spikecast.measure.scores import ALL, Scores
from spikecast.measure.tasks import task_named
from spikecast.measure.verdicts import Setting, two_sided


def classified(samples: int = 40) -> Scores:
    torch.manual_seed(samples)
    right = torch.rand(3, samples, 1) < torch.tensor([0.5, 0.9])
    first, ann = right.cumsum(-1).bool().int()[:2], right.cumsum(-1).bool().int()[2]
    same = [[(float(x), 1.0) for x in torch.rand(samples) < 0.8] for _ in range(2)]
    return Scores(task_named("classification"), first.tolist(), ann.tolist(), same)


def test_shares() -> None:
    scores = classified()
    found, less = scores.intervals(), scores.less_ann()
    for i, name in enumerate(("top1", "top5")):
        for t in range(2):
            ours, theirs = (torch.tensor([bool(n[i]) for n in notes]) for notes in (scores.notes[t], scores.ann))
            assert scores.steps()[name][t] == float(ours.double().mean())
            assert found[name][t] == share(int(ours.sum()), 40)
            assert less[name][t] == paired_share(ours, theirs).interval
        assert found["ann"][i] == share(int(theirs.sum()), 40)
    assert found["agreement"][1] == share(sum(x for x, _ in scores.same[1]), 40)
    assert scores.less(scores)["top1"].holds(0.0)
    last, before = (torch.tensor([bool(n[0]) for n in notes]) for notes in (scores.notes[1], scores.ann))
    other = Scores(scores.task, [scores.ann], None, None)
    assert scores.less(other)["top1"] == paired_share(last, before).interval


def test_other_scores_are_drawn_anew() -> None:
    task = task_named("segmentation")
    labels = torch.randint(0, 3, (9, 6, 6))
    answers = [nn.functional.one_hot(labels, 3).permute(0, 3, 1, 2) + s * torch.randn(9, 3, 6, 6) for s in (1.5, 0.6)]
    first, ann = (task.notes(answer, labels) for answer in answers)
    scores = Scores(task, [first], ann, [task.same(*answers)])
    wanted = paired_bootstrap(lambda notes: task.result(notes)["miou"], first, ann, draws=task.draws)
    assert scores.less_ann()["miou"] == [wanted]
    assert wanted.high < 0
    (interval,) = scores.intervals()["miou"]
    assert interval.holds(scores.steps()["miou"][0])
    assert scores.intervals()["agreement"][0].holds(scores.agreement()[0])


def test_all_figures_are_read_off_the_same_draws() -> None:
    """One pass over the draws for each step and one for the ANN, with the numbers of a pass for each figure."""
    task, calls = task_named("language"), []
    notes = [[[float(x), 1.0 * (x > 2), 2.0] for x in torch.rand(8).mul(4)] for _ in range(3)]

    class Counted(type(task)):  # type: ignore[misc]
        def result(self, notes):
            calls.append(len(notes))
            return super().result(notes)

    scores = Scores(Counted(), notes[:2], notes[2], None)
    found, less = scores.intervals(), scores.less_ann()
    assert len(calls) == 3 * task.draws
    for i, name in enumerate(task.metrics):

        def figure(drawn, name=name):
            return task.result(drawn)[name]

        for t in range(2):
            assert found[name][t] == bootstrap(figure, notes[t], draws=task.draws)
            assert less[name][t] == paired_bootstrap(figure, notes[t], notes[2], draws=task.draws)
        assert found["ann"][i] == bootstrap(figure, notes[2], draws=task.draws)
    with pytest.raises(DataError, match="8 samples against 7; measure both networks on the same samples"):
        scores.less(Scores(task, [notes[0][:7]], None, None))


def test_halves_take_turns() -> None:
    scores = classified(7)
    first, second = scores.halves()
    assert first.notes == [notes[::2] for notes in scores.notes]
    assert second.notes == [notes[1::2] for notes in scores.notes]
    assert (len(first.ann), len(second.same[0])) == (4, 3)
    one = classified(1)
    assert one.halves() == (one, one)


@pytest.mark.parametrize("task", ["classification", "segmentation"])
def test_one_sample_says_next_to_nothing(task) -> None:
    head = [nn.Flatten(), nn.Linear(32, 3)] if task == "classification" else [nn.Conv2d(2, 3, 1)]
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), *head).eval()
    x = torch.randn(1, 2, 4, 4)
    snn = spikecast.convert(model, [x], Config(thresholds="quantile"))
    target = torch.zeros(1, dtype=torch.int64) if task == "classification" else torch.zeros(1, 4, 4, dtype=torch.int64)
    found = evaluate(snn, [(x, target)], task, model=model)
    assert "1 sample, 95" in found.table()
    said = json.loads(json.dumps(found.to_json(), allow_nan=False))
    name = next(iter(found.steps))
    low, high = said["intervals"][name][0]
    assert high - low > 0.7
    assert math.isfinite(said["less_ann"][name][0][1])
    if task == "segmentation":
        assert found.intervals[name] == [ALL]


def test_one_sample_leaves_a_number_unknown() -> None:
    task = task_named("language")
    scores = Scores(task, [[[3.0, 1.0, 2.0]]], [[2.0, 1.0, 2.0]], None)
    interval, less = scores.intervals()["perplexity"][0], scores.less_ann()["perplexity"][0]
    assert interval == less == UNKNOWN
    assert interval.text(3.355, "") == "3.355 (unknown)"
    assert less.text(0.03, "") == "0.03 (unknown)"
    assert json.loads(json.dumps(interval, allow_nan=False)) == list(UNKNOWN)


@pytest.mark.parametrize("said", [0, 2])
def test_samples_that_all_agree_leave_a_share_open(said: int) -> None:
    """Draws of them are all alike, and say nothing of the samples that were not seen."""
    pairs = [[(float(said), 2.0)] * 50 + [(0.0, 0.0)] * 7]  # seven samples have nothing to agree on
    scores = Scores(task_named("language"), [[[1.0, float(said), 2.0]] * 50], None, pairs)
    found = scores.intervals()
    assert found["agreement"] == found["next"] == [share(said * 25, 50)]
    assert found["perplexity"][0].high - found["perplexity"][0].low < 1e-9  # no share: nothing is known of its range
    mixed = [[(2.0, 2.0)] * 49 + [(1.0, 2.0)]]
    wanted = bootstrap(lambda drawn: sum(x for x, _ in drawn) / (2 * len(drawn)), mixed[0], draws=400)
    assert Scores(scores.task, scores.notes, None, mixed).intervals()["agreement"] == [wanted]


def test_perplexities_are_compared_by_their_logarithm() -> None:
    """Half of the texts at a perplexity of 1000 and half at 10 have one of 100, not of 505."""

    def texts(perplexity: float) -> list[list[float]]:
        return [[8 * math.log(perplexity), 0.0, 8.0]] * 4

    steps = Scores(task_named("language"), [texts(1000), texts(10), texts(200)], None, None)
    score, (dear, cheap, other), _ = steps.readings()
    assert (
        (score(dear) + score(cheap)) / 2 == pytest.approx(-math.log(100)) == pytest.approx(score(dear[:2] + cheap[:2]))
    )
    found = two_sided([Setting(0.1, dear), Setting(0.3, cheap)], [Setting(0.2, other)], score, draws=40)
    assert [at.verdict for at in found.energies] == ["only first", "better", "better"]
