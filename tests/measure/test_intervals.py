"""Intervals against scipy, the literature, what they promise (95 of 100 hold the truth), and the laws they obey."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from torch import Tensor

from spikecast.errors import ConfigError, DataError
from spikecast.measure import intervals
from spikecast.measure.intervals import Interval, PairedShare, bootstrap, mean, paired_bootstrap, paired_share, share
from spikecast.measure.tasks import task_named

Z = NormalDist().inv_cdf(0.975)
CONFIDENCES = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
COUNTS = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
TRIPLES = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2000)).filter(any)
NUMBERS = st.lists(st.floats(-100, 100), min_size=5, max_size=30)


def pair(b: int, c: int, same: int) -> tuple[Tensor, Tensor]:
    """Samples: b are right in the first only, c in the second only, and of the others every second in both."""
    both = torch.arange(same) % 2 == 0
    ones, zeros = torch.ones(b + c, dtype=torch.bool), torch.zeros(b + c, dtype=torch.bool)
    return torch.cat([ones[:b], zeros[:c], both]), torch.cat([zeros[:b], ones[:c], both])


def plain_mean(notes: Sequence[float]) -> float:
    """The mean by the way that any score goes."""
    return mean(notes)


def spread(notes: Sequence[float]) -> float:
    return float(np.std(notes, ddof=1))


def perplexity(notes: Sequence[tuple[float, int]]) -> float:
    return math.exp(math.fsum(n[0] for n in notes) / sum(n[1] for n in notes))


# -- an interval


def test_an_interval_is_a_pair_with_both_ends() -> None:
    interval = Interval(0.25, 0.5)
    assert [interval.holds(x) for x in (0.24, 0.25, 0.3, 0.5, 0.51, math.nan)] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert json.loads(json.dumps({"interval": interval})) == {"interval": [0.25, 0.5]}


@pytest.mark.parametrize(
    ("interval", "arguments", "text"),
    [
        (Interval(0.961, 0.984), (0.975,), "97.50% (96.10 to 98.40)"),
        (Interval(0.961, 0.984), (0.975, "%", 1), "97.5% (96.1 to 98.4)"),
        (Interval(-0.0052, 0.0008), (-0.003, "points"), "-0.30 points (-0.52 to +0.08)"),
        (Interval(-0.00001, 0.00001), (-0.000001, "points"), "+0.00 points (+0.00 to +0.00)"),
        (Interval(5.2, 5.4321), (5.31249, ""), "5.312 (5.2 to 5.432)"),
    ],
)
def test_text(interval: Interval, arguments: tuple[Any, ...], text: str) -> None:
    assert interval.text(*arguments) == text


# -- a share


@pytest.mark.parametrize(
    ("successes", "samples", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_share_is_the_literatures(successes: int, samples: int, low: float, high: float) -> None:
    """Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3."""
    assert share(successes, samples) == pytest.approx((low, high), abs=5e-5)


@given(COUNTS, CONFIDENCES)
def test_share_is_scipys_and_obeys_its_laws(counts: tuple[int, int], confidence: float) -> None:
    k, n = counts
    found = share(k, n, confidence)
    assert found == pytest.approx(tuple(stats.binomtest(k, n).proportion_ci(confidence, "wilson")), abs=1e-12)
    assert 0 <= found.low < found.high <= 1
    assert found.holds(k / n)
    other = share(n - k, n, confidence)
    assert (1 - other.high, 1 - other.low) == pytest.approx(found, abs=1e-12)
    more = share(4 * k, 4 * n, confidence)
    assert more.high - more.low < found.high - found.low
    surer = share(k, n, 1 - (1 - confidence) / 2)
    assert surer.high - surer.low > found.high - found.low


@pytest.mark.parametrize("n", [1, 7, 10_000, 10**9])
def test_share_is_exact_at_its_ends(n: int) -> None:
    none, every = share(0, n), share(n, n)
    assert (none.low, every.high) == (0.0, 1.0)
    assert none.high == pytest.approx(Z * Z / (n + Z * Z))
    assert every.low == pytest.approx(n / (n + Z * Z))
    assert share(float(n), float(n)) == every
    for confidence in np.linspace(0.01, 0.99, 99).tolist():
        assert (share(0, n, confidence).low, share(n, n, confidence).high) == (0.0, 1.0)


@pytest.mark.parametrize("n", [50, 200])
def test_share_holds_the_truth_as_often_as_it_says(n: int) -> None:
    """Summed over all outcomes, for true shares from 2 to 98 in 100; it goes up and down around 95 of 100."""
    truths = np.linspace(0.02, 0.98, 97)
    held = np.zeros_like(truths)
    for k in range(n + 1):
        low, high = share(k, n)
        held += stats.binom.pmf(k, n, truths) * ((low <= truths) & (truths <= high))
    assert held.mean() == pytest.approx(0.95, abs=0.006)
    assert held.min() > 0.91


# -- two shares of the same samples


@pytest.mark.parametrize(
    ("b", "c", "same", "interval", "p_value"),
    [(6, 16, 139, (-0.1240, -0.0054), 0.052479), (3, 0, 0, (-0.1230, 1.0), 0.25), (0, 3, 0, (-1.0, 0.1230), 0.25)],
)
def test_pairs_of_the_literature(b: int, c: int, same: int, interval: tuple[float, float], p_value: float) -> None:
    """Cavo et al. 2012 and tables with one filled cell, as the R package contingencytables gives them."""
    found = paired_share(*pair(b, c, same))
    assert found.interval == pytest.approx(interval, abs=5e-5)
    assert found.p_value == pytest.approx(p_value, abs=5e-7)


@given(TRIPLES, CONFIDENCES)
def test_pairs_obey_their_laws(counts: tuple[int, int, int], confidence: float) -> None:
    b, c, same = counts
    first, second = pair(b, c, same)
    found, z = paired_share(first, second, confidence), NormalDist().inv_cdf((1 + confidence) / 2)
    assert (found.samples, found.only_first, found.only_second) == (b + c + same, b, c)
    assert found.difference == pytest.approx(float(first.double().mean() - second.double().mean()), abs=1e-12)
    assert found.interval.holds(found.difference)
    assert -1 <= found.interval.low < found.interval.high <= 1
    assert found.p_value == pytest.approx(1.0 if b == c == 0 else stats.binomtest(b, b + c).pvalue, rel=1e-12)
    back = paired_share(second, first, confidence)
    assert (-back.interval.high, -back.interval.low, back.p_value) == (*found.interval, found.p_value)
    if abs(abs(b - c) - z * math.sqrt(b + c)) > 1e-6:  # at no difference, the test that it inverts is McNemar's
        assert found.interval.holds(0.0) == (abs(b - c) < z * math.sqrt(b + c))
    if b == c == 0:
        assert found.interval.high == pytest.approx(z * z / (same + z * z))


@pytest.mark.parametrize(("b", "c", "same"), [(5, 9, 86), (1, 30, 400), (12, 3, 0), (40, 40, 20), (2, 1, 50_000)])
def test_ends_are_where_the_score_test_begins_to_reject(b: int, c: int, same: int) -> None:
    """The likeliest share of samples in the second only is searched here, by its likelihood."""
    n = b + c + same
    for d in paired_share(*pair(b, c, same)).interval:

        def unlikely(q: float, d: float = d) -> float:
            shares, counts = (q + d, q, 1 - 2 * q - d), (b, c, same)
            return -sum(k * math.log(max(p, 1e-300)) for p, k in zip(shares, counts, strict=True) if k)

        q = optimize.minimize_scalar(
            unlikely, bounds=(max(0.0, -d), (1 - d) / 2), method="bounded", options={"xatol": 1e-13}
        ).x
        assert abs(b - c - n * d) / math.sqrt(n * (2 * q + d - d * d)) == pytest.approx(Z, rel=2e-3)


@pytest.mark.parametrize(("b", "c"), [(0.01, 3), (0.5, 4), (1, 1), (2, 6), (5, 5), (5, 20)])
def test_pairs_hold_the_truth_as_often_as_they_say(b: float, c: float) -> None:
    """Of 500 samples b and c are in one share only, on average: the few that matter between a network and its ANN."""
    n, most = 500, 45
    counts = np.array([(i, j) for i in range(most) for j in range(most)])
    chances = stats.multinomial.pmf(np.c_[counts, n - counts.sum(1)], n, [b / n, c / n, 1 - (b + c) / n])
    held = 0.0
    for (i, j), chance in zip(counts.tolist(), chances.tolist(), strict=True):
        if chance > 1e-7:
            ends = Interval(-intervals._upper_limit(j, i, n, Z), intervals._upper_limit(i, j, n, Z))
            held += chance * ends.holds((b - c) / n)
    assert 0.93 < held < 0.99


def test_many_samples_are_quick_and_exact() -> None:
    found = paired_share(*pair(10_000, 10_400, 29_600))
    assert found.p_value == pytest.approx(stats.binomtest(10_000, 20_400).pvalue, rel=1e-9)
    assert paired_share(*pair(0, 5000, 0)).p_value == 0.0  # 2^-4999, which is less than any float


def test_a_pair_in_json_and_in_words() -> None:
    found = paired_share(*pair(6, 16, 139))
    assert found.text(1) == "-6.2 points (-12.4 to -0.5), p = 0.052"
    read = json.loads(json.dumps(asdict(found)))
    assert PairedShare(**{**read, "interval": Interval(*read["interval"])}) == found


# -- any score


@given(NUMBERS, st.integers(0, 2**31), CONFIDENCES)
@settings(max_examples=30)
def test_the_fast_way_draws_what_the_slow_way_draws(notes: list[float], seed: int, confidence: float) -> None:
    fast, slow = (
        bootstrap(score, notes, confidence, draws=2100 if confidence > 0.99 else 300, seed=seed)
        for score in (mean, plain_mean)
    )
    assert fast == pytest.approx(slow, abs=1e-10)


@given(NUMBERS, st.floats(0.1, 10), st.floats(-10, 10))
def test_bootstrap_obeys_its_laws(notes: list[float], scale: float, shift: float) -> None:
    low, high = bootstrap(mean, notes)
    assert min(notes) - 1e-9 <= low <= mean(notes) + 1e-9
    assert mean(notes) - 1e-9 <= high <= max(notes) + 1e-9
    moved = bootstrap(mean, [scale * x + shift for x in notes])
    assert moved == pytest.approx((scale * low + shift, scale * high + shift), abs=1e-8)
    mirrored = bootstrap(mean, [-x for x in notes])
    assert mirrored == pytest.approx((-high, -low), abs=1e-10)
    surer = bootstrap(mean, notes, 0.99)
    assert surer.low <= low <= high <= surer.high


@pytest.mark.parametrize("score", [mean, spread])
def test_bootstrap_is_scipys_but_for_chance(score: Callable[[Sequence[float]], float]) -> None:
    notes = torch.randn(80, dtype=torch.float64).exp().tolist()
    statistic = np.mean if score is mean else lambda x, axis: np.std(x, axis=axis, ddof=1)
    oracle = stats.bootstrap((notes,), statistic, method="percentile", rng=np.random.default_rng(0))
    assert bootstrap(score, notes) == pytest.approx(tuple(oracle.confidence_interval), abs=0.2 * oracle.standard_error)


@pytest.mark.parametrize("score", [mean, spread])
def test_paired_bootstrap_is_scipys_but_for_chance(score: Callable[[Sequence[float]], float]) -> None:
    first = torch.randn(80, dtype=torch.float64)
    second = first + 0.2 * torch.randn(80) + 0.1

    def statistic(x: Any, y: Any, axis: int) -> Any:
        one = (lambda a: np.mean(a, axis)) if score is mean else (lambda a: np.std(a, axis, ddof=1))
        return one(x) - one(y)

    oracle = stats.bootstrap(
        (first.numpy(), second.numpy()), statistic, paired=True, method="percentile", rng=np.random.default_rng(0)
    )
    found = paired_bootstrap(score, first.tolist(), second.tolist())
    assert found == pytest.approx(tuple(oracle.confidence_interval), abs=0.2 * oracle.standard_error)
    alone = bootstrap(score, first.tolist())
    assert found.high - found.low < 0.5 * (alone.high - alone.low)  # what both have in common is no doubt


def test_paired_bootstrap_draws_the_same_from_both() -> None:
    notes = torch.randn(40, dtype=torch.float64).tolist()
    assert paired_bootstrap(spread, notes, notes, draws=50) == (0.0, 0.0)
    assert paired_bootstrap(mean, notes, notes, draws=50) == (0.0, 0.0)
    others = [x * x for x in notes]
    slow = paired_bootstrap(plain_mean, notes, others)
    assert paired_bootstrap(mean, torch.tensor(notes, dtype=torch.float64), others) == pytest.approx(slow, abs=1e-12)
    back = paired_bootstrap(plain_mean, others, notes)
    assert (-back.high, -back.low) == pytest.approx(slow, abs=1e-12)


def test_bootstrap_holds_the_truth_as_often_as_it_says() -> None:
    """Of 500 sets of 80 samples; 95 of 100 for so many samples, a little less where they are skewed."""
    even, skewed = 0, 0
    for seed in range(500):
        notes = torch.rand(80, dtype=torch.float64)
        even += bootstrap(mean, notes, draws=400, seed=seed).holds(0.5)
        skewed += bootstrap(mean, -notes.log(), draws=400, seed=seed).holds(1.0)
    assert even / 500 == pytest.approx(0.95, abs=0.025)
    assert skewed / 500 == pytest.approx(0.94, abs=0.025)


def test_bootstrap_of_right_and_wrong_is_nearly_the_share() -> None:
    right = torch.arange(2000) % 10 != 0
    assert bootstrap(mean, right) == pytest.approx(share(1800, 2000), abs=0.002)
    assert bootstrap(mean, right).text(mean(right)).startswith("90.00% (8")


def test_the_seed_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = torch.randn(70_000, dtype=torch.float64)
    monkeypatch.setattr(intervals, "BLOCK", 1)  # the smallest blocks, where torch might cut up a row
    state, threads, found = torch.get_rng_state(), torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found.append(bootstrap(mean, notes, draws=41))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]
    assert torch.equal(state, torch.get_rng_state())
    assert found[0] != bootstrap(mean, notes, draws=41, seed=1)
    monkeypatch.setattr(intervals, "BLOCK", 41 * 70_000)
    assert bootstrap(mean, notes, draws=41) == pytest.approx(found[0], abs=1e-14)  # the blocks draw the same


def test_notes_of_tasks() -> None:
    """One note for each sample, and the figure of the task as the score."""
    segmentation, classification = task_named("segmentation"), task_named("classification")
    labels = torch.randint(0, 3, (12, 8, 8))
    scores = torch.nn.functional.one_hot(labels, 3).permute(0, 3, 1, 2) + torch.randn(12, 3, 8, 8)
    notes = segmentation.notes(scores, labels)
    found = bootstrap(lambda drawn: segmentation.result(drawn)["miou"], notes, draws=100)
    assert found.holds(segmentation.result(notes)["miou"])
    assert 0.001 < found.high - found.low < 0.2
    notes = classification.notes(scores[:, :, 0, 0], labels[:, 0, 0])
    right = [float(note[0]) for note in notes]
    found = bootstrap(lambda drawn: classification.result(drawn)["top1"], notes, draws=100)
    assert found == pytest.approx(bootstrap(mean, right, draws=100), abs=1e-12)


def test_notes_of_detection() -> None:
    pytest.importorskip("pycocotools")
    detection = task_named("detection")
    truth = [{"boxes": torch.tensor([[0.0, 0, 20, 20 + i]]), "labels": torch.tensor([1])} for i in range(4)]
    answers = [{**t, "boxes": t["boxes"] + i, "scores": torch.tensor([0.9])} for i, t in enumerate(truth)]
    notes = detection.notes(answers, truth)
    perfect = detection.notes([{**t, "scores": torch.tensor([0.9])} for t in truth], truth)

    def score(drawn: Sequence[Any]) -> float:
        return detection.result(drawn)["map"]

    found = paired_bootstrap(score, notes, perfect, 0.8, draws=10)
    assert found.holds(score(notes) - 1.0)
    assert found.high < 0


def test_perplexity_of_texts_of_different_lengths() -> None:
    lengths = torch.randint(5, 50, (60,)).tolist()
    notes = [(n * (3 + 0.3 * float(torch.randn(()))), n) for n in lengths]
    found = bootstrap(perplexity, notes, draws=400)
    assert found.holds(perplexity(notes))
    better = [(loss - 0.1 * n, n) for loss, n in notes]
    gain = paired_bootstrap(perplexity, better, notes, draws=400)
    assert gain.high < 0
    assert gain.holds(perplexity(better) - perplexity(notes))


# -- refusals

YES = torch.ones(3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: share(0, 0), DataError, r"samples=0 is not a whole number from 1; give"),
        (lambda: share(1, 2.5), DataError, r"samples=2\.5 "),
        (lambda: share(1, math.inf), DataError, r"samples=inf "),
        (lambda: share(0, math.nan), DataError, r"samples=nan "),
        (lambda: share(6, 5), DataError, r"successes=6 is not a whole number from 0 to 5; give"),
        (lambda: share(-1, 5), DataError, r"successes=-1 "),
        (lambda: share(0.97, 1), DataError, r"successes=0\.97 .* not their share"),
        (lambda: share(math.nan, 5), DataError, r"successes=nan "),
        (lambda: share(1, 2, 95), ConfigError, r"confidence=95 is not between 0 and 1; give 0\.95"),
        (lambda: share(1, 2, math.nan), ConfigError, r"confidence=nan "),
        (lambda: paired_share(YES, YES, 1.0), ConfigError, r"confidence=1\.0 "),
        (lambda: paired_share(YES, YES[:2]), DataError, r"3 samples against 2; give"),
        (lambda: paired_share(YES[:0], YES[:0]), DataError, r"first is torch\.bool of shape \(0,\), not bool \[samp"),
        (lambda: paired_share(YES, YES.float()), DataError, r"second is torch\.float32 .*; give True or False"),
        (lambda: paired_share(YES[None], YES[None]), DataError, r"first is torch\.bool of shape \(1, 3\)"),
        (lambda: bootstrap(mean, [1.0, 2.0], 0), ConfigError, r"confidence=0 "),
        (lambda: bootstrap(mean, [1.0, 2.0], draws=39), ConfigError, r"draws=39 .* 0\.95; give at least 40"),
        (lambda: bootstrap(mean, [1.0]), DataError, r"1 notes cannot .* two samples at least"),
        (lambda: bootstrap(mean, torch.zeros(3, 2)), DataError, r"\(3, 2\) are not one number for each sample; give"),
        (lambda: bootstrap(mean, [1.0, math.inf]), DataError, r"is inf, not finite; let it"),
        (lambda: bootstrap(lambda notes: math.nan, [1, 2]), DataError, r"is nan, not finite; let it"),
        (lambda: paired_bootstrap(mean, [1.0, 2.0], [1.0]), DataError, r"2 notes against 1; give"),
    ],
)  # fmt: skip
def test_refusals(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_as_few_draws_as_leave_one_on_each_side() -> None:
    assert bootstrap(mean, [1.0, 2.0, 4.0], draws=40).high <= 4
    assert bootstrap(mean, [1.0, 2.0, 4.0], 0.9, draws=20).high <= 4
