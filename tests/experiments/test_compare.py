"""Presets side by side, sweeps and their front."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn

from spikecast import Config, convert
from spikecast.errors import ConfigError
from spikecast.experiments.compare import compare, has_rectifiers, preset_configs
from spikecast.experiments.sweep import Point, Sweep, grid, sweep_of
from spikecast.measure.intervals import UNKNOWN, Interval, mean, paired_bootstrap, share
from spikecast.measure.scores import Scores
from spikecast.measure.tasks import Metric, task_named
from spikecast.measure.tasks.own import OwnTask
from spikecast.measure.verdicts import Setting, two_sided
from spikecast.presets import PRESETS, preset


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 7)).eval()


@pytest.fixture
def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(4, 2, 6, 6), torch.randint(0, 7, (4,))) for _ in range(3)]


def test_presets_are_what_they_are_called() -> None:
    dcgs = preset("dcgs", num_levels=4, num_steps=6)
    assert (dcgs.coding, dcgs.thresholds, dcgs.num_levels, dcgs.num_steps) == ("differential", "iteration_paper", 4, 6)
    transformer = preset("dcgs", rectifiers=False)
    assert (transformer.thresholds, transformer.threshold_scale, transformer.encode_input) == ("quantile", 4.0, True)
    published = preset("dcgs_published", num_levels=4)
    assert (published.thresholds, published.granularity, published.threshold_scale) == (
        "iteration_published",
        "dim1",
        1,
    )
    published = preset("dcgs_published", rectifiers=False)
    assert (published.thresholds, published.granularity, published.threshold_scale) == ("quantile_published", "dim1", 8)
    assert published.encode_input
    assert preset("ecmt").coding == "rate"
    snm, ts = preset("snm", num_levels=4), preset("ts")
    assert (snm.num_levels, snm.signed, snm.initial_potential, snm.firing_boundary) == (1, True, 0.5, 1.0)
    assert not ts.signed
    hmt = preset("hmt", num_levels=5)
    assert (hmt.coding, hmt.firing_boundary, hmt.num_levels, hmt.burst) == ("rate", 1.0, 5, 5)
    assert hmt.initial_potential == 2**-5
    others = [(name, preset(name, rectifiers=r)) for name in PRESETS if name != "ours" for r in (True, False)]
    assert {config.burst for name, config in others if name != "hmt"} == {1}
    assert {config.num_steps for _, config in others} == {8}
    assert preset("ours") == preset("ours", rectifiers=False) == Config()
    assert preset("ours", num_steps=4) == Config(num_steps=4)
    with pytest.raises(ConfigError, match=r"called 'best'; there are dcgs \(the paper\), .* ecmt \(rate"):
        preset("best")


class Functional(nn.Module):
    """Its only activation is a function, not a module."""

    def __init__(self, activation) -> None:
        super().__init__()
        self.first, self.last, self.activation = nn.Linear(5, 6), nn.Linear(6, 3), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.activation(self.first(x)))


class Block(nn.Module):
    """Self-attention and a perceptron with GELU, as in a vision Transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.mlp(x)


class Unused(nn.Module):
    """A ReLU that is never called makes no network of rectifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(5, 3), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(nn.functional.silu(x))


@pytest.mark.parametrize(
    ("made", "shape", "thresholds"),
    [
        (lambda: Functional(nn.functional.relu), (5,), "iteration_paper"),
        (lambda: Functional(lambda x: x.clamp(0, 6)), (5,), "iteration_paper"),
        (lambda: Functional(nn.functional.gelu), (5,), "quantile"),
        (lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2)), (5,),
         "iteration_paper"),  # one rectifier is enough: its other sites fall back to the quantile
        (Block, (3, 8), "quantile"),
        (Unused, (5,), "quantile"),
    ],
    ids=["relu", "clamp", "gelu", "mixed", "transformer", "unused"],
)  # fmt: skip
def test_presets_are_chosen_by_what_is_planned(made, shape, thresholds) -> None:
    model = made().eval()
    rectifiers = has_rectifiers(model, (torch.randn(4, *shape) for _ in range(2)))
    chosen = preset_configs(("dcgs",), rectifiers=rectifiers)["dcgs n=8"]
    assert (chosen.thresholds, chosen.encode_input) == (thresholds, thresholds == "quantile")


def test_presets_are_chosen_by_the_regions(model) -> None:
    whole = nn.Sequential(model, nn.GELU(), nn.Linear(7, 7)).eval()
    images = [torch.randn(4, 2, 6, 6)]
    assert has_rectifiers(whole, images, regions=["0"])
    assert not has_rectifiers(whole, images, regions=["2"])


def test_configs_of_presets_by_name() -> None:
    found = preset_configs(list(PRESETS), rectifiers=True, levels=(4, 8), num_steps=5)
    assert list(found) == ["dcgs n=4", "dcgs n=8", "dcgs_published n=4", "dcgs_published n=8",
                           "ecmt n=4", "ecmt n=8", "hmt n=4", "hmt n=8",
                           "snm n=1", "ts n=1", "ours n=4", "ours n=8"]  # fmt: skip
    assert {c.num_steps for c in found.values()} == {5}
    found = preset_configs(("dcgs", "ours"), rectifiers=True)
    assert {name: (c.num_steps, c.burst) for name, c in found.items()} == {"dcgs n=8": (8, 1), "ours n=8": (1, 3)}


def test_comparison_and_resume(model, batches, tmp_path, monkeypatch) -> None:
    configs = preset_configs(("dcgs", "ecmt"), rectifiers=True, levels=(3,), num_steps=4)
    told = []
    found = compare(
        model,
        lambda: batches,
        lambda: batches,
        configs,
        folder=tmp_path,
        progress=lambda name, n: told.append((name, n)),
    )
    assert told == [("dcgs n=3", 4)] * 3 + [("ecmt n=3", 4)] * 3
    text = found.table()
    assert "top1 T=4" in text
    assert [line.split()[:3] for line in text.splitlines()[1:3]] == [["dcgs", "n=3", "1/2/4"], ["ecmt", "n=3", "1/2/4"]]
    assert "ANN: top1" in text
    assert len(found.table((2,)).splitlines()) == 5
    monkeypatch.setattr("spikecast.experiments.compare.convert", lambda *_a, **_k: pytest.fail("converted again"))
    again = compare(model, lambda: batches, lambda: batches, configs, folder=tmp_path)
    assert json.dumps(again.to_json()) == json.dumps(found.to_json())
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare(model, lambda: batches, lambda: batches, {})


def test_hmt_sends_the_binary_digits_of_a_value_at_once(model, batches) -> None:
    """Its neuron rounds to whole numbers of smallest levels, in one step, and all its spikes are positive."""
    x = batches[0][0]
    snn = convert(model, [x], preset("hmt", num_levels=6, num_steps=1))
    (site,) = snn.sites
    found, theta = snn.record(x)[site], snn.thresholds[site]
    with torch.no_grad():
        units = model[:2](x) / theta * 2**5
    inside = units < 63.49  # all levels together are 63 smallest ones
    sent = found.estimates[0] / theta * 2**5
    torch.testing.assert_close(sent[inside], (units[inside] + 0.5).floor())
    assert found.levels.shape[:2] == (1, 6)
    assert int(found.levels.min()) == 0


def test_comparison_shows_slots_of_bursts(model, batches) -> None:
    configs = preset_configs(("hmt",), rectifiers=True, num_steps=1)
    configs = {"three": Config(num_steps=2, burst=3, thresholds="quantile"), **configs}
    found = compare(model, lambda: batches, lambda: batches, configs)
    lines = found.table().splitlines()
    assert lines[0].split()[0] == "slots"
    assert [lines[1].split()[1], lines[2].split()[2]] == ["3/6", "8"]
    assert [(p.num_steps, p.slots) for p in sweep_of(found).points] == [(1, 3), (2, 6), (1, 8)]


def test_presets_with_steps_of_their_own() -> None:
    configs = preset_configs(("dcgs@4", "ours@1", "ecmt"), rectifiers=True, levels=(3, 8), num_steps=6)
    assert {name: config.num_steps for name, config in configs.items()} == {
        "dcgs@4 n=3": 4, "dcgs@4 n=8": 4, "ours@1 n=3": 1, "ours@1 n=8": 1, "ecmt n=3": 6, "ecmt n=8": 6,
    }  # fmt: skip
    for wrong in ("dcgs@", "dcgs@two", "dcgs@-1"):
        with pytest.raises(ConfigError, match=f"preset '{wrong}': after @ comes a number of steps, as in dcgs@4"):
            preset_configs((wrong,), rectifiers=True)
    with pytest.raises(ConfigError, match="num_steps=0"):
        preset_configs(("dcgs@0",), rectifiers=True)
    with pytest.raises(ConfigError, match="num_levels=-5000"):
        preset("hmt", num_levels=-5000)


def test_sweep_of_a_comparison(model, batches) -> None:
    configs = grid(
        Config(num_steps=3, thresholds="quantile"), {"num_levels": (1, 6), "coding": ("rate", "differential")}
    )
    comparison = compare(model, lambda: batches, lambda: batches, configs)
    found = sweep_of(comparison)
    assert len(found.points) == 4 * 3
    assert {p.name for p in found.points} == set(configs)
    assert f"of {len(found.points)} points (a setting after a step) are beaten by none" in found.table()
    best = found.front[0]
    assert f"{best.chosen_by:.2%}" in found.table().splitlines()[1].split()  # beside what is reported
    _, evaluation = comparison.entries[found.points[-1].name]
    right = [note[0] for note in evaluation.scores.notes[-1]]
    assert found.points[-1].chosen_by == sum(right[::2]) / 6  # on every other of the twelve, reported on the rest
    assert found.points[-1].reported == sum(right[1::2]) / 6
    assert found.points[-1].interval == share(sum(right[1::2]), 6)
    assert all(f"{p.name}  " in found.table() for p in found.front)  # whole, however long
    assert sum(p["front"] for p in found.to_json()["points"]) == len(found.front)
    assert [(row["num_levels"], row["coding"]) for row in found.rows[::3]] == [
        (n, coding) for n in (1, 6) for coding in ("rate", "differential")
    ]
    assert all("thresholds" not in row for row in found.rows)  # the same in all
    with pytest.raises(ConfigError, match="compare with costs"):
        sweep_of(compare(model, lambda: batches, lambda: batches, configs, costs=None))


def test_goals_that_cannot_be_met_are_left_out(model, batches) -> None:
    ways = {"fixed": Config(num_steps=1, burst=2), "dear": Config(num_steps=1, energy_budget=0.001)}
    comparison = compare(model, lambda: batches, lambda: batches, ways)
    assert list(comparison.entries) == ["fixed"]
    assert "energy_budget=0.001 cannot be met: the least that is reached is" in comparison.unmet["dear"]
    sweep = sweep_of(comparison)
    for table in (comparison.table(), sweep.table()):
        assert f"left out: dear: {comparison.unmet['dear']}" in table
    assert sweep.to_json()["unmet"] == comparison.unmet
    with pytest.raises(ConfigError, match=r"energy_budget=0\.001 cannot be met"):
        compare(model, lambda: batches, lambda: batches, {"dear": ways["dear"]})


def point(name: str, num_steps: int, slots: int, metric: float, energy: float) -> Point:
    return Point(name, num_steps, slots, metric, energy, metric, Interval(0.0, 1.0))


def test_a_front_is_drawn(tmp_path) -> None:
    points = [point("cheap", 1, 1, 0.5, 0.1), point("good", 2, 2, 0.9, 0.4), point("worse", 2, 2, 0.8, 0.5)]
    first, second = (Sweep("top1", points).write_plot(tmp_path / f"{n}.svg").read_text() for n in "ab")
    assert first == second
    assert "cheap, T = 1" in first
    assert "good, T = 2" in first
    assert "worse, T = 2" not in first
    bars = re.findall(r"(?:M|L) (\S+) (\S+) \n" * 2 + r'" clip-path="[^"]*" style="fill: none; stroke: #1f5fbf', first)
    assert [x0 == x1 for x0, _, x1, _ in bars].count(True) == 2  # the intervals of the front
    names = ("n=4 burst=1 c=2", "n=8 burst=1 c=2", "goal=0.1")
    points = [point(name, 1, 1, 0.5 + 0.1 * i, 0.1 * i) for i, name in enumerate(names, 1)]
    drawn = Sweep("top1", points).write_plot(tmp_path / "names.svg").read_text()
    for words in ("1: n=4, T = 1", "2: n=8, T = 1", "3: goal=0.1, T = 1"):  # what is the same in all is left out
        assert f">{words}</text>" in drawn
    with pytest.raises(ConfigError, match=r"front\.gif ends in none of \.svg, \.pdf, \.png"):
        Sweep("top1", points).write_plot(tmp_path / "front.gif")


def test_a_front_whose_intervals_are_unknown_is_drawn(tmp_path) -> None:
    """As of one sample, which cannot be drawn anew."""
    points = [Point("alone", 1, 1, 0.5, 0.1, 0.5, UNKNOWN)]
    for how in (Metric(), Metric("")):
        assert "1: alone, T = 1" in Sweep("top1", points, how=how).write_plot(tmp_path / "front.svg").read_text()


def right_on(samples: int = 10, **counts: tuple[int, ...]) -> dict[str, Scores]:
    """Scores of settings that are right on the first so many samples, after each step."""
    task = task_named("classification")
    notes = {name: [[[int(i < k), 1] for i in range(samples)] for k in steps] for name, steps in counts.items()}
    return {name: Scores(task, found, None, None) for name, found in notes.items()}


def test_best_is_said_outside_of_the_intervals_only() -> None:
    points = [
        point(name, 1, 1, metric, 0.1 * i)
        for i, (name, metric) in enumerate(zip("abc", (0.5, 0.7, 0.9), strict=True), 1)
    ]
    found = Sweep("top1", points, scores=right_on(200, a=(100,), b=(140,), c=(180,))).within()
    assert (found.point, found.others, found.rivals) == (points[2], 2, [])
    assert found.text == "the best of 3 settings within the budget, beyond the interval of every difference"
    near = Sweep("top1", points, scores=right_on(200, a=(100,), b=(178,), c=(180,))).within()
    assert near.rivals == [points[1]]  # two samples more may be luck
    assert near.text == "chosen within the budget; 1 of 2 other settings within the budget may be as good"
    assert (near.cheaper, found.cheaper) == (points[1], None)
    close = right_on(200, a=(178,), b=(179,), c=(180,))
    assert Sweep("top1", points, scores=close).within().cheaper == points[0]
    cheap = point("c", 1, 1, 0.9, 0.05)
    assert Sweep("top1", [*points[:2], cheap], scores=close).within().cheaper is None
    alone = Sweep("top1", points, scores=right_on(200, a=(100,), b=(178,), c=(180,))).within(energy=0.1)
    assert alone.text == "the only setting within the budget"


def test_best_where_less_is_better() -> None:
    task = OwnTask(lambda a, b: [], lambda notes: sum(notes) / len(notes), "loss", Metric("", more=False))
    scores = {name: Scores(task, [[x, x + 0.1] * 20], None, None) for name, x in (("low", 0.5), ("high", 0.9))}
    points = [point("low", 1, 1, 0.55, 0.2), point("high", 1, 1, 0.95, 0.1)]
    found = Sweep("loss", points, how=Metric("", more=False), scores=scores).within()
    assert (found.point.name, found.rivals) == ("low", [])


def test_methods_are_compared_at_every_energy(model, batches) -> None:
    configs = preset_configs(("dcgs", "ours"), rectifiers=True, levels=(3,), num_steps=2)
    comparison = compare(model, lambda: batches, lambda: batches, configs)
    ways = {"dcgs": ["dcgs n=3"], "unmet": [], "ours": ["ours n=3"]}
    ((pair, found),) = comparison.against(ways).items()
    assert pair == ("ours", "dcgs")
    ratios = [e.energy.ratio for _, e in comparison.entries.values()]
    assert [at.energy for at in found.energies] == sorted({x for ratio in ratios for x in ratio})
    notes = [[n[0] for n in step] for step in comparison.entries["ours n=3"][1].scores.notes]
    settings = [Setting(*pair) for pair in zip(ratios[1], notes, strict=True)]
    again = two_sided(settings, settings, mean)
    assert {at.first for at in found.energies if at.energy in ratios[1]} == {at.first for at in again.energies}
    with pytest.raises(ConfigError, match="compare with costs"):
        compare(model, lambda: batches, lambda: batches, configs, costs=None).against(ways)


def test_a_budget_draws_no_samples_again() -> None:
    """The draws of each setting's own interval say how it compares with every other."""
    calls = []

    def score(notes) -> float:
        calls.append(len(notes))
        return mean(notes)

    task = OwnTask(lambda a, b: [], score, "score", draws=100)
    torch.manual_seed(0)
    x = torch.rand(12)
    notes = {"a": (0.2 * x).tolist(), "b": (0.99 * x.flip(0)).tolist(), "c": x.tolist()}
    scores = {name: Scores(task, [own, own], None, None) for name, own in notes.items()}
    points = [point(name, t, t, mean(own), 0.1 * t) for name, own in notes.items() for t in (1, 2)]
    for found in scores.values():
        found.intervals()
    drawn = len(calls)
    choice = Sweep("score", points, scores=scores).within()
    assert len(calls) == drawn
    assert (choice.point, choice.others) == (points[4], 5)
    lows = {name: paired_bootstrap(score, notes["c"], own, draws=100).low for name, own in notes.items()}
    assert choice.rivals == [p for p in points if lows[p.name] <= 0 and p is not choice.point]
    assert {p.name for p in choice.rivals} == {"b", "c"}


def test_front_and_budget_by_hand() -> None:
    a, b, c, d = (
        point("a", 1, 1, 0.5, 0.1),
        point("b", 2, 2, 0.8, 0.3),
        point("c", 4, 4, 0.8, 0.2),  # less energy than b, more steps
        point("d", 4, 4, 0.7, 0.3),  # beaten by both
    )
    sweep = Sweep("top1", [d, c, b, a], scores=right_on(a=(5,), b=(0, 8), c=(0, 0, 0, 8), d=(0, 0, 0, 7)))
    assert sweep.front == [a, c, b]
    assert sweep.within(energy=0.25).point == c
    assert sweep.within(num_steps=2).point == b
    assert sweep.within(energy=0.25, num_steps=3).point == a
    assert sweep.within().point == c
    with pytest.raises(ConfigError, match=r"the least energy is 10.0% of the ANN's \(a, T = 1\)"):
        sweep.within(energy=0.05)


def test_bursts_take_time() -> None:
    """A burst is no way to beat a setting with more steps: its slots count."""
    steps, burst = point("steps", 2, 2, 0.8, 0.3), point("burst", 1, 3, 0.8, 0.3)
    sweep = Sweep("top1", [burst, steps], scores=right_on(steps=(0, 8), burst=(8,)))
    assert sweep.front == [steps, burst]
    assert sweep.within(slots=2).point == steps
    assert sweep.within(num_steps=1).point == burst
    assert [line.split()[:3] for line in sweep.table().splitlines()[:3]] == [
        ["setting", "T", "slots"], ["steps", "2", "2"], ["burst", "1", "3"],
    ]  # fmt: skip
    assert [p["slots"] for p in sweep.to_json()["points"]] == [3, 2]


def test_grid_leaves_out_what_makes_no_sense() -> None:
    found = grid(Config(), {"coding": ("rate", "differential"), "signed": (False,)})
    assert list(found) == ["coding=rate signed=False"]
    with pytest.raises(ConfigError, match="cannot work"):
        grid(Config(), {"coding": ("differential",), "signed": (False,)})
    with pytest.raises(ConfigError, match="unknown setting"):
        grid(Config(), {"levels": (1,)})
    assert list(grid(Config(), {})) == ["default"]
