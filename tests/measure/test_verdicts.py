"""Two methods at the same energy: fronts, lines between settings, intervals, and what may be said."""

from __future__ import annotations

import json

import pytest
import torch

from spikecast.errors import ConfigError, DataError
from spikecast.measure.intervals import UNKNOWN, Interval, mean, paired_bootstrap, paired_share
from spikecast.measure.verdicts import At, Front, Setting, Verdicts, two_sided


def rights(share: float, samples: int = 400, seed: int = 0) -> list[int]:
    """Notes of a setting that is right on about this share; a better one is right wherever a worse one is."""
    torch.manual_seed(seed)
    return (torch.rand(samples) < share).int().tolist()


def test_every_energy_of_either_is_compared() -> None:
    first = [Setting(0.1, rights(0.3)), Setting(0.3, rights(0.9))]
    second = [Setting(0.15, rights(0.35)), Setting(0.4, rights(0.9))]
    found = two_sided(first, second, mean)
    assert [at.energy for at in found.energies] == [0.1, 0.15, 0.3, 0.4]
    assert [at.verdict for at in found.energies] == ["only first", "better", "better", "undecided"]
    low, high, other, top = (mean(s.notes[1::2]) for s in (*first, *second))
    scores = [(at.first, at.second) for at in found.energies]
    assert scores[0] == (low, None)
    assert scores[1] == pytest.approx((0.75 * low + 0.25 * high, other))  # a quarter of the way from 0.1 to 0.3
    assert scores[2] == pytest.approx((high, 0.4 * other + 0.6 * top))
    assert scores[3] == (high, top)  # above its dearest setting, that one stands
    wanted = (
        "undecided over all; of 4 energies better at 2, undecided at 1, only ours reaches 1; by the band better at 2"
    )
    assert found.text("ours", "dcgs") == wanted
    said = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert said["overall"] == "undecided"
    assert said["energies"][0] == {
        "energy": 0.1, "first": low, "second": None, "interval": None, "band": None,
        "verdict": "only first", "common_verdict": "only first",
    }  # fmt: skip
    assert said["energies"][1]["interval"] == list(found.energies[1].interval)
    assert said["energies"][1]["band"] == list(found.energies[1].band)


def test_it_is_two_sided() -> None:
    first = [Setting(0.1, rights(0.3)), Setting(0.25, rights(0.9, seed=1))]
    second = [Setting(0.05, rights(0.1)), Setting(0.2, rights(0.7, seed=2))]
    there, back = two_sided(first, second, mean), two_sided(second, first, mean)
    turned = {"better": "worse", "worse": "better", "only first": "only second", "only second": "only first"}
    for a, b in zip(there.energies, back.energies, strict=True):
        assert (a.first, a.second) == (b.second, b.first)
        assert b.verdict == turned.get(a.verdict, a.verdict)
        if a.interval is not None and b.interval is not None:
            assert a.interval == pytest.approx((-b.interval.high, -b.interval.low))


def test_a_dear_setting_that_scores_less_is_not_on_the_front() -> None:
    first = [Setting(0.1, rights(0.9)), Setting(0.2, rights(0.2)), Setting(0.3, rights(0.95))]
    at = two_sided(first, [Setting(0.2, rights(0.5))], mean).energies[1]
    ends = [mean(s.notes[1::2]) for s in (first[0], first[2])]
    assert at.first == pytest.approx(sum(ends) / 2)


def test_settings_are_chosen_on_other_samples_than_those_reported() -> None:
    lucky = [1, 0] * 20  # right on every sample that settings are chosen on, wrong on the rest
    sound = [0, 1] * 20
    first = [Setting(0.1, lucky), Setting(0.2, sound)]
    at = two_sided(first, [Setting(0.2, sound)], mean).energies[-1]
    assert (at.first, at.second, at.verdict) == (0.0, 1.0, "worse")


def test_intervals_are_of_paired_samples() -> None:
    a, b, c = rights(0.6), rights(0.9, seed=3), rights(0.7, seed=4)
    odd = [torch.tensor(notes[1::2]) for notes in (a, b, c)]
    found = two_sided([Setting(0.1, a), Setting(0.3, b)], [Setting(0.1, c), Setting(0.2, [0] * 400)], mean)
    met, between, _ = (at.interval for at in found.energies)
    assert met == paired_share(odd[0] == 1, odd[2] == 1).interval
    notes = (odd[0] + odd[1]) / 2  # interpolated for each sample
    assert between == pytest.approx(paired_bootstrap(mean, notes, odd[2]))


def test_other_scores_are_interpolated_in_each_draw() -> None:
    def root(notes) -> float:
        return -float(mean(notes) ** 0.5)

    torch.manual_seed(0)
    a, b, c = (torch.rand(60).tolist() for _ in range(3))
    found = two_sided([Setting(1.0, a)], [Setting(1.0, b)], root, draws=400)
    assert found.energies[0].interval == pytest.approx(paired_bootstrap(root, a[1::2], b[1::2], draws=400))
    less = [x / 4 for x in c]
    at = two_sided([Setting(1.0, c), Setting(2.0, less)], [Setting(1.5, b)], root, draws=400).energies[1]
    assert at.first == pytest.approx((root(c[1::2]) + root(less[1::2])) / 2)
    middle = paired_bootstrap(lambda notes: 0.75 * root(notes), c[1::2], [x / 0.5625 for x in b[1::2]], draws=400)
    assert at.interval == pytest.approx(middle)  # root(c / 4) is root(c) / 2, and 0.75 times root(b / 0.5625) root(b)


def at(low: float, high: float) -> At:
    return At(0.1, 0.5, 0.5, Interval(low, high))


ALONE, OTHER_ALONE = At(0.05, 0.5, None, None), At(0.05, None, 0.5, None)


@pytest.mark.parametrize(
    ("energies", "overall"),
    [
        ([at(0.1, 0.2), at(0.01, 0.3)], "better"),
        ([ALONE, at(0.1, 0.2)], "better"),
        ([at(-0.2, -0.1), OTHER_ALONE], "worse"),
        ([at(0.1, 0.2), at(0.0, 0.2)], "undecided"),  # 0 lies in an interval that ends there
        ([at(0.1, 0.2), at(-0.2, -0.1)], "undecided"),
        ([OTHER_ALONE, at(0.1, 0.2)], "undecided"),  # the other reaches what the first does not
        ([ALONE, OTHER_ALONE], "undecided"),
    ],
)
def test_over_all(energies, overall) -> None:
    assert Verdicts(energies).overall == overall


def test_one_sample_decides_nothing() -> None:
    found = two_sided([Setting(0.1, [1.5])], [Setting(0.1, [0.5])], mean)
    assert found.energies == [At(0.1, 1.5, 0.5, UNKNOWN, UNKNOWN)]
    assert found.overall == "undecided"


def test_a_front_is_drawn_once() -> None:
    """However many methods it is compared with."""
    calls = []

    def score(notes) -> float:
        calls.append(len(notes))
        return mean(notes)

    torch.manual_seed(0)
    settings = [[Setting(0.1 * i, (torch.rand(20) + 0.1 * i).tolist())] for i in range(1, 4)]
    fronts = [Front(found, score, draws=100) for found in settings]
    drawn = len(calls)
    assert drawn == 3 * (100 + 2)  # and the scores of both halves
    found = fronts[0].beside(fronts[1]), fronts[0].beside(fronts[2])
    assert len(calls) == drawn
    assert found == tuple(two_sided(settings[0], other, score, draws=100) for other in settings[1:])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 1])  # on the samples that settings are chosen on, or on the rest
def test_a_score_that_is_not_finite_is_named(bad: float, place: int) -> None:
    notes = [0.5] * 8
    notes[place] = bad
    with pytest.raises(DataError, match=rf"^the score of the setting at energy 0\.3 is {bad} .*, not finite; "):
        two_sided([Setting(0.2, [0.4] * 8), Setting(0.3, notes)], [Setting(0.2, [0.5] * 8)], sum)


def test_mistakes() -> None:
    with pytest.raises(DataError, match=r"0 settings with \[\] notes; give some on the same samples"):
        two_sided([Setting(0.1, [0, 1])], [], mean)
    with pytest.raises(DataError, match="2 samples against 3; give both on the same samples"):
        two_sided([Setting(0.1, [0, 1])], [Setting(0.1, [0, 1, 1])], mean)
    with pytest.raises(DataError, match=r"2 settings with \[2, 3\] notes"):
        Front([Setting(0.1, [0, 1]), Setting(0.1, [0, 1, 1])], mean)
    with pytest.raises(ConfigError, match="draws=10 leave none outside"):
        two_sided([Setting(0.1, [0.5] * 9)], [Setting(0.1, [0.2] * 9)], mean, draws=10)


def test_bands_hold_at_all_energies_at_once() -> None:
    """Two methods that are equally good, 300 times: at some energy the interval errs often, the band in 5 %."""
    source = torch.Generator().manual_seed(0)
    true = torch.linspace(0.3, 0.9, 8)

    def method() -> Front:
        notes = torch.rand(8, 300, generator=source) < true[:, None]
        return Front([Setting(0.1 * (i + 1), row.int().tolist()) for i, row in enumerate(notes)], mean, draws=200)

    alone = together = 0
    for _ in range(300):
        found = method().beside(method())
        alone += bool(found.at("better") or found.at("worse"))
        together += bool(found.at("better", common=True) or found.at("worse", common=True))
    assert alone > 60
    assert 5 <= together <= 25


def test_a_band_is_never_narrower_than_its_interval() -> None:
    found = two_sided(
        [Setting(0.1, rights(0.3)), Setting(0.3, rights(0.9, seed=1))],
        [Setting(0.1, rights(0.5, seed=2)), Setting(0.2, rights(0.7, seed=3))],
        mean,
    )
    for at in found.energies:
        assert at.band.low <= at.interval.low
        assert at.band.high >= at.interval.high
    assert any(at.band != at.interval for at in found.energies)


def test_equal_methods_have_a_band_of_no_width() -> None:
    notes = [1.5, 2.5, 3.5, 4.5]
    found = two_sided([Setting(0.1, notes)], [Setting(0.1, notes)], mean)
    assert found.energies[0].band == Interval(0, 0)
    assert found.energies[0].common_verdict == "undecided"
