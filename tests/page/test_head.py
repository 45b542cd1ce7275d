"""What the head of the page says: the headline by its rule, figures at its step, settings, and one rounding."""

from __future__ import annotations

import dataclasses
import re

import pytest

from spikecast import Config
from spikecast.costs import COSTS
from spikecast.measure.intervals import UNKNOWN, Interval
from spikecast.measure.tasks import Metric
from spikecast.page.head import figures, lede, measured, words, wrapping
from spikecast.page.headline import WHOLE, Headline, from_step, headline
from spikecast.page.html import page
from spikecast.page.numbers import (
    difference,
    difference_with_ends,
    ends,
    figure,
    joules,
    percent,
    prefixed,
    share,
    significant,
)
from spikecast.page.steps import step_table

IN, BELOW, ABOVE = Interval(-0.1, 0.1), Interval(-0.3, -0.1), Interval(0.1, 0.3)


def plain(text: str) -> str:
    """What a reader sees, with ordinary spaces."""
    return re.sub(r"<[^>]*>", "", text).replace("\u00a0", " ")


def shown(text: str, costs: str) -> str:
    """The elements that are for one of the costs."""
    parts = re.findall(rf'<(\w+)[^>]* data-costs="{costs}"[^>]*>(.*?)</\1>', text, re.DOTALL)
    return " ".join(plain(inside) for _, inside in parts)


@pytest.mark.parametrize(
    ("intervals", "step"),
    [
        ([IN, IN, IN], 1),
        ([BELOW, IN, IN], 2),
        ([IN, BELOW, IN], 3),  # a step that holds by luck is none, if a later one does not
        ([IN, IN, BELOW], None),
        ([BELOW, BELOW, BELOW], None),
        ([BELOW, ABOVE, IN], 3),  # better than the ANN is not as the ANN
        ([BELOW, Interval(-0.2, 0.0)], 2),  # 0 at the end lies within
        ([Interval(0.0, 0.0)], 1),
        ([UNKNOWN, UNKNOWN], None),  # which holds every number, and tells nothing
        ([IN, WHOLE], None),
    ],
)
def test_the_step_from_which_on_answers_are_as_good(network, intervals, step) -> None:
    assert from_step(network("one", 0.8, 0.5, less_ann=intervals)) == step


def test_the_headline_takes_the_cheapest_network_that_is_as_good(network, report) -> None:
    assert headline(report(), "paper") == Headline(1, 2, holds=True)
    early = network("early", 0.7, 3.0, less_ann=[IN, IN])  # no better at the end, but as good after one step
    late = network("late", 0.875, 0.9)
    assert headline(report(networks=[late, early]), "paper") == Headline(1, 1, holds=True)  # 1 µJ against 1.8
    cheap = {**late.energy, "full": {"ann": 2e-6, "snn": [1e-7, 2e-7], "ratio": [0.05, 0.1]}}
    networks = [dataclasses.replace(late, energy=cheap), early]
    assert headline(report(networks=networks), "paper").place == 1
    assert headline(report(networks=networks), "full") == Headline(0, 2, holds=True)  # each costs have their own


def test_of_networks_that_need_equal_energy_the_first_is_taken(network, report) -> None:
    def spending(joules: float):
        paid = {"ann": 2e-6, "snn": [joules, 2 * joules], "ratio": [joules / 2e-6, joules / 1e-6]}
        return dataclasses.replace(network("one", 0.8, 0.5, less_ann=[IN, IN]), energy=dict.fromkeys(COSTS, paid))

    assert headline(report(networks=[spending(1e-7), spending(1e-7)]), "paper").place == 0
    assert headline(report(networks=[spending(1.01e-7), spending(1e-7)]), "paper").place == 1


def test_the_headline_says_what_a_reader_wants(report, numbers) -> None:
    said = plain(lede(report()).partition("</p>")[0])
    assert said == (
        "After step 2, the last, the answers of two are as good as the ANN’s within the 95 % interval, for 25.0 % of "
        "its energy. Its accuracy is 80.0 %, the ANN’s 87.5 %: a difference of −7.5 points (−12.5 to +6.3)."
    )
    said = plain(lede(numbers()).partition("</p>")[0])
    assert "the answers of less are as good as the ANN’s within the 95 % interval, for 50.0 % of its energy." in said
    assert "Its perplexity is 5, the ANN’s 4: a difference of +1 (−0.25 to +2.5)." in said


def test_from_a_step_on_and_after_one_step(network, report) -> None:
    assert "From step 1 on the answers of" in plain(lede(report(networks=[network("a", 0.8, 0.5, less_ann=[IN] * 2)])))
    short = network("one", 0.8, 0.5, steps={"top1": [0.5]}, agreement=[0.5], less_ann=[IN], slots=[1])
    assert plain(lede(report(networks=[short]))).startswith("After one step the answers of one are as good")
    assert "SNN after step 1 (1 slot)" in plain(figures(report(networks=[short])))


def test_no_such_step_is_said_plainly_with_the_nearest(network, report) -> None:
    far = network("far", 0.7, 0.1, less_ann=[BELOW, BELOW])
    near = network("near", 0.8, 0.5, less_ann=[IN, BELOW])  # as good after step 1, and not after step 2
    changed = report(networks=[far, near])
    assert headline(changed, "paper") == Headline(1, 2, holds=False)
    said = plain(lede(changed).partition("</p>")[0])
    assert said.startswith(
        "There is no step from which on the answers are as good as the ANN’s within the 95 % interval."
    )
    assert "Nearest comes near after step 2, for 50.0 % of its energy. Its accuracy is 80.0 %" in said
    row = plain(step_table(changed)).partition("near")[2]
    assert "none–" in row  # and the table says no step and no energy


def test_one_sample_is_too_few_to_say(numbers) -> None:
    networks = [dataclasses.replace(n, less_ann=[UNKNOWN] * 2) for n in numbers().networks]
    changed = numbers(ann_interval=UNKNOWN, networks=networks, samples=1)
    text = page(changed).partition("<script")[0]
    assert "There are <b>too few samples</b> to say from which step on" in text
    assert "a difference of +1 (unknown)" in text
    assert "4<small>unknown</small></td>" in text
    assert "e+308" not in text
    assert plain(text).count("Measured on1 sample") == 1


def test_energy_that_is_not_counted(network, report) -> None:
    unknown = {costs: {"ann": 2e-6, "snn": [1e-6, 2.5e-6], "ratio": None} for costs in COSTS}
    changed = report(networks=[network("one", 0.8, 0.5, energy=unknown)])
    assert "for 2.5 µJ a sample (the ANN’s energy is not counted)" in plain(lede(changed))
    assert "2.5µJ" in plain(figures(changed))
    assert "SNN 2.5 µJ, ANN not counted" in plain(figures(changed))
    assert plain(step_table(changed)).count("not counted") == 3 * len(COSTS)


def test_costs_change_headline_tiles_and_table(report) -> None:
    text = page(report()).partition("<script")[0]
    for costs, ratio in (("paper", "25.0 %"), ("honest", "50.0 %"), ("full", "75.0 %")):
        said = shown(lede(report()), costs)
        assert f"for {ratio} of its energy" in said
        assert f"Energy, {costs} costs" in shown(figures(report()), costs)
        assert f"{ratio.removesuffix(' %')}% of ANN" in shown(figures(report()), costs)
        assert f"{ratio} of ANN" in shown(step_table(report()), costs)
    hidden = re.findall(r'data-costs="(\w+)"( hidden)?', text)
    assert {(costs, bool(off)) for costs, off in hidden} == {("paper", False), ("honest", True), ("full", True)}


def test_intervals_stand_beside_their_figures(report) -> None:
    tiles = plain(figures(report()).partition("</dl>")[0])
    for said in (
        "Accuracy, ANN95 %: 85.5–89.387.5%", "Accuracy, SNN after step 2 (2 slots)95 %: 67.5–95.080.0%",
        "Same answer as the ANN95 %: 45.0–93.090.0%",
    ):  # fmt: skip
        assert said in tiles
    row = re.findall(r"<tr>.*?</tr>", step_table(report()))[-1]
    for cell in ("50.0<small>40.0–60.0", "80.0<small>67.5–95.0", "90.0<small>45.0–93.0", "−7.5<small>−12.5 to +6.3"):
        assert f">{cell}</small></td>" in row


def test_the_table_has_a_head_for_each_cell(network, report) -> None:
    networks = [network("one", 0.8, 0.5), network("many", 0.9, 0.5, burst=7)]
    text = step_table(report(networks=networks))
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text)
    rows = [re.findall(r"<td([^>]*)>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", text)[2:]]
    assert [len(row) for row in rows] == [len(heads)] * 3
    assert sum(int(width) for width in re.findall(r'colspan="(\d+)"', text)) == len(heads)
    at = heads.index("Slots")
    assert [row[at][1] for row in rows] == ["", "2", "14"]  # of the ANN and of both networks
    for row in rows:  # where there is no room for heads, cells say what they are
        assert all("data-label=" in said for said, inside in row if inside)


def test_many_steps_are_shown_in_powers_of_two(network, report) -> None:
    inside = {"top1": [IN] * 20, "agreement": [IN] * 20}
    long = network("long", 0.8, 0.5, steps={"top1": [0.5] * 20}, agreement=[0.5] * 20, intervals=inside)
    found = step_table(report(networks=[long]))
    assert re.findall(r"after step </span>(\d+)", found) == ["1", "2", "4", "8", "16", "20"]


def test_samples_and_settings_stand_together(network, report) -> None:
    networks = [network("one", 0.8, 0.5, calibrated=256), network("two", 0.8, 0.5, burst=7, calibrated=256)]
    found = measured(report(networks=networks))
    assert (found["Measured on"], found["Thresholds from"]) == ("1,234 samples", "256 samples")
    assert found["Setting"] == (
        "2 steps, 2 levels, auto thresholds, differential coding; one: one spike a step; two: bursts of 7"
    )
    assert "Thresholds from" not in measured(report())  # a network may not know
    config = Config(num_steps=2, energy_budget=0.25, leak=0.125, overrides={"a": None}, seed=3).to_json()
    (only,) = (network("one", 0.8, 0.5, config=config, calibrated=1),)
    said = measured(report(networks=[only]))
    assert said["Setting"] == "2 steps, differential coding, energy_budget 0.25, leak 0.125, 1 override"
    assert said["Thresholds from"] == "1 sample"
    codings = [network(c, 0.8, 0.5, config=Config(num_steps=2, coding=c).to_json()) for c in ("differential", "rate")]
    assert measured(report(networks=codings))["Setting"] == "2 steps, 8 levels, bursts of 3, auto thresholds"


def test_words_are_explained_with_the_prices_that_are_charged() -> None:
    said = plain(words())
    for word in ("Spiking network (SNN)", "Differential coding", "Graded", "Costs"):
        assert word in said
    paper = COSTS["paper"]
    assert f"{paper.accumulate} pJ for an addition by a spike, {paper.multiply} pJ for a product of the ANN" in said


def test_long_names_may_be_broken_at_their_signs_only() -> None:
    assert wrapping("timm:vit_base.v1") == "timm:<wbr>vit_<wbr>base.<wbr>v1"
    assert wrapping("a<b&c") == "a&lt;<wbr>b&amp;<wbr>c"
    assert wrapping("two words") == "two words"


def test_one_rounding() -> None:
    assert [share(x) for x in (0.9932, 0.0625, 0.00049, 1.0)] == ["99.3", "6.3", "0.0", "100.0"]  # 6.25: half goes up
    assert percent(0.3079) == "30.8\u00a0%"
    assert [difference(x, Metric()) for x in (0.002, -0.0625, 0.0, -0.0004, 0.0004)] == [
        "+0.2",
        "−6.3",
        "0.0",
        "0.0",
        "0.0",
    ]
    assert [difference(x, Metric("")) for x in (1.0, -0.25, 0.0)] == ["+1", "−0.25", "0"]
    assert difference_with_ends(-0.002, Interval(-0.008, 0.004), Metric()) == "−0.2 points (−0.8 to +0.4)"
    written = {0.125: "0.125", 12.345: "12.3", 123456.0: "1.23e+5", 0.00012345: "1.23e-4", -2.5: "−2.5"}
    assert [significant(x) for x in written] == list(written.values())
    energies = {8.99e-7: "899 nJ", 9.996e-7: "1 µJ", 2.92e-6: "2.92 µJ", 0.0: "0 J"}
    assert [plain(joules(x)) for x in energies] == list(energies.values())
    assert prefixed(3e-15, "J") == ("0.003", "pJ")
    assert (figure(23.456, Metric("")), figure(0.5, Metric())) == ("23.46", "50.0")
    assert ends(Interval(0.5, 0.75), Metric()) == "50.0–75.0"
