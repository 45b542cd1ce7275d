"""README's sentence on ours and dcgs, checked on made-up measurements: true, false in each of its parts, missing."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.claims import SENTENCE, UNTOLD, WORSE, listed
from benchmarks.fronts import config_of, main
from benchmarks.measured import ENDING, RECORDS, points, read_record, write_record
from benchmarks.real import NETWORKS, Real
from benchmarks.results import summary
from spikecast.costs import COSTS

ROOT = Path(__file__).parents[2]
# Shares right and energies after each step: ours is better at low energy, and as good at high energy.
TRUE = {
    "dcgs": ([0.3, 0.6, 0.8, 0.9], [0.1, 0.2, 0.3, 0.4]),
    "ours": ([0.9], [0.2]),
    "ours, half": ([0.9], [0.25]),
    "ours, least": ([0.8], [0.09]),
}
A_LITTLE_BETTER = ([0.3, 0.6, 0.8, 0.9, 0.92], [0.1, 0.2, 0.3, 0.4, 0.5])  # than ours, at its dearest step


def measured(folder: Path, changes: dict[str, tuple[list[float], list[float]] | None], network: str) -> list[str]:
    """Write what settings would have said, each right wherever a worse one is, and return the words that check it."""
    order = random.Random(0).sample(range(400), 400)
    for setting, figures in {**TRUE, **changes}.items():
        if figures is not None:
            shares, energy = figures
            notes = [[[float(i < share * 400), 1.0, 0.0] for i in order] for share in shares]
            costs = dict.fromkeys(COSTS, energy)
            data = {"network": network, "setting": setting, "slots": [1] * len(shares), "notes": notes, "energy": costs}
            write_record(folder / network / f"{setting}{ENDING}", {**data, "ann": notes[-1]})
    return ["--check", "--folder", str(folder), "--only", network]


def test_a_true_sentence(tmp_path, capsys) -> None:
    assert main(measured(tmp_path, {}, "ResNet-8")) == 0
    line, end = capsys.readouterr().out.splitlines()
    assert "true; undecided over all; of 6 energies better at 4, undecided at 1, only ours reaches 1; " in line
    assert "T=1 minus dcgs T=4 +0.00 (-0.95 to +0.95) for 0.50 of its energy" in line
    assert end == "README's sentence is true of all 1 networks"


@pytest.mark.parametrize(
    ("changes", "network"),
    [
        ({"dcgs": ([0.3, 0.6, 0.96, 0.9], [0.1, 0.2, 0.3, 0.4])}, "ResNet-8"),  # worse than its third step
        ({"ours, least": ([0.8], [0.11])}, "ResNet-8"),  # only dcgs reaches 0.1
        ({"dcgs": ([0.82, 0.9, 0.9, 0.9], [0.1, 0.2, 0.3, 0.4])}, "ResNet-8"),  # as good everywhere
        (
            {"dcgs": ([0.3, 0.6, 0.8, 0.9, 0.92], [0.1, 0.2, 0.3, 0.4, 0.5])},
            "ResNet-8",
        ),  # worse by an interval, not by the band
        ({}, next(iter(WORSE))),  # nowhere worse, where README says that it is
        ({}, UNTOLD[0]),  # better where README says that the samples do not tell
        ({"ours": ([0.9], [0.31])}, "ResNet-8"),  # one step for more than 0.75 of the energy
        ({"ours": ([0.85], [0.2])}, "ResNet-8"),  # one step is worse, where another setting is not
    ],
    ids=[
        "worse",
        "unreached",
        "nowhere better",
        "worse by itself",
        "nowhere worse",
        "told apart",
        "dear",
        "one step worse",
    ],
)
def test_a_false_sentence(tmp_path, capsys, changes, network) -> None:
    assert main(measured(tmp_path, changes, network)) == 1
    assert f"README's sentence is false of {network}" in capsys.readouterr().out


def test_an_energy_is_worse_by_itself_where_it_is_said(tmp_path, monkeypatch) -> None:
    """By the band of all energies it may not be, even where README says so of an interval."""
    monkeypatch.setitem(WORSE, "ResNet-8", 1)
    assert main(measured(tmp_path / "little", {"dcgs": A_LITTLE_BETTER}, "ResNet-8")) == 0
    much = ([0.3, 0.6, 0.8, 0.9, 0.96], A_LITTLE_BETTER[1])
    assert main(measured(tmp_path / "much", {"dcgs": much}, "ResNet-8")) == 1


@pytest.mark.parametrize("setting", TRUE)
def test_a_missing_measurement(tmp_path, capsys, setting) -> None:
    assert main(measured(tmp_path, {setting: None}, "ResNet-20")) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"ResNet-20: {setting} T=" in said.err
    assert "run python -m benchmarks.fronts" in said.err


def test_readme_says_it() -> None:
    assert SENTENCE in " ".join((ROOT / "README.md").read_text().split())


def test_readme_and_the_page_have_the_rows_of_the_records() -> None:
    """Of all networks but YOLO, which is scored with its images."""
    names = [name for name, real in NETWORKS.items() if real.task != "boxes"]
    rows = list(summary(RECORDS, names))
    assert len(rows) == len(names) + 2
    for file in ("README.md", "docs/results.md"):
        lines = (ROOT / file).read_text().splitlines()
        assert [row for row in rows if row not in lines] == [], file


def test_readme_says_where_other_methods_are_better() -> None:
    """As the page has it: by the band, beside others than dcgs."""
    found: dict[str, int] = {}
    for line in (ROOT / "docs" / "results.md").read_text().splitlines():
        said = re.fullmatch(r"\| (\S+) \| (\S+) \| \d+ \| \d+ \| ([1-9]\d*) \|( \d+ \|){5}", line)
        if said and said[2] != "dcgs":
            found[said[1]] = max(int(said[3]), found.get(said[1], 0))
    assert set(found.values()) == {1, 2}
    names = [name for name in NETWORKS if name in found]
    assert f"the band says worse at 1 or 2 energies of {listed(names)}." in (ROOT / "README.md").read_text()


def test_ours_beside_other_methods(tmp_path, capsys) -> None:
    words = measured(tmp_path, {}, "ResNet-20")
    assert main(["--list", *words[1:]]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == "| ResNet-20 | dcgs | 6 | 4 | 0 | 4 | 0 | 1 | 1 | 0 |"
    words = measured(tmp_path / "little", {"dcgs": A_LITTLE_BETTER}, "ResNet-20")
    assert main(["--list", *words[1:]]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == "| ResNet-20 | dcgs | 7 | 4 | 0 | 4 | 1 | 1 | 1 | 0 |"  # worse alone, not by the band


def test_points_that_are_not_reached(tmp_path, capsys) -> None:
    changes = {"dcgs": ([0.3, 0.6, 0.96, 0.9], [0.085, 0.2, 0.3, 0.4])}
    words = ["--unreached", *measured(tmp_path, changes, "ResNet-20")[1:]]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ResNet-20: dcgs T=1, 30.00 at 0.085",  # none of ours is as cheap
    ]
    (tmp_path / "more").mkdir()
    changes["dcgs"] = ([0.3, 0.6, 0.8, 0.96], [0.1, 0.2, 0.3, 0.4])  # better than all of ours after its fourth step
    words = ["--unreached", *measured(tmp_path / "more", changes, "ResNet-20")[1:]]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == ["ResNet-20: dcgs T=4, 96.00 at 0.400"]


def test_the_page_has_three_costs_and_every_point(tmp_path) -> None:
    words = measured(tmp_path, {}, "ResNet-20")
    assert main([*words[1:], "--page", str(tmp_path)]) == 0
    lines = (tmp_path / "results.md").read_text().splitlines()
    for picture in ("fronts.svg", "story.svg"):
        assert (tmp_path / picture).stat().st_size > 1000
    assert "| ResNet-20 | 0.200 | 0.400 | 0.200 | 0.400 | 0.200 | 0.400 |" in lines
    assert sum(line.startswith("| dcgs T=") for line in lines) == 3  # 1, 2 and 4; the third step is not shown
    assert any(line.startswith("| ours T=1 | 1 | 0.200 | 0.200 | 0.200 | 90.00 |") for line in lines)


def test_records_of_two_commits(tmp_path, capsys) -> None:
    """One sample of 400 turns at the second step, where energy moves by a tenth; only settings of both count."""
    for folder, right, energy in (("first", 200, 0.2), ("second", 201, 0.22)):
        notes = [[[float(i < many), 1.0, 0.0] for i in range(400)] for many in (100, right)]
        data: dict[str, Any] = {"network": "KWS", "setting": "ours", "commit": folder, "slots": [3, 6], "notes": notes}
        data |= {"energy": {"paper": [0.1, energy]}, "ann": notes[0]}
        write_record(tmp_path / folder / "KWS" / f"ours{ENDING}", data)
    write_record(tmp_path / "first" / "KWS" / f"dcgs{ENDING}", {**data, "setting": "dcgs"})
    words = ["--folder", str(tmp_path / "second"), "--beside", str(tmp_path / "first"), "--only", "KWS"]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "KWS, ours (second and first): at most 1 of 400 samples differ after a step, the score by 0.25, "
        "energy by 10.000%"
    ]


def test_settings_are_understood(tmp_path, monkeypatch) -> None:
    spent = {"network": "ESPNet", "energy on the first half": [0.2, 0.3]}
    write_record(tmp_path / f"dcgs, n=4{ENDING}", spent)
    real = Real("", "")
    with_relu = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()).eval()
    monkeypatch.setattr(Real, "read", lambda *_: (torch.randn(8, 3), None))
    fewer, many = (config_of(name, real, with_relu, tmp_path) for name in ("dcgs_published, n=4", "hmt"))
    assert (fewer.num_levels, fewer.num_steps, fewer.thresholds) == (4, 8, "iteration_published")
    assert (many.num_levels, many.burst, many.num_steps) == (8, 8, 4)
    assert config_of("ours, less", real, with_relu, tmp_path).energy_budget == pytest.approx(0.97 * 0.2)
    assert config_of("ours, burst=2 num_levels=6", real, with_relu, tmp_path).burst == 2


def test_a_record_keeps_what_is_counted(tmp_path) -> None:
    """Of classes whether each sample was right and like the ANN; of other tasks all that was noted."""
    energy = {"paper": [0.1, 0.2], "full": [0.3, 0.5]}
    both = {"setting": "ours", "slots": [3, 6], "energy": energy}
    notes = [[[1.0, 0.0, 0.25], [0.0, 1.0, 0.75]], [[1.0, 1.0, 0.0], [0.0, 1.0, 0.5]]]
    write_record(tmp_path / f"KWS/ours{ENDING}", {**both, "network": "KWS", "notes": notes, "ann": notes[1]})
    (first, second), ann = points(tmp_path / "KWS")
    assert (first.notes, second.notes, ann) == ([[1, 0], [0, 1]], [[1, 1], [0, 1]], [[1, 1], [0, 1]])
    assert (first.nats, second.nats) == (0.5, 0.25)
    assert (second.t, second.slots, second.energies) == (2, 6, {"paper": 0.2, "full": 0.5})
    write_record(tmp_path / f"Stories/ours{ENDING}", {**both, "network": "Stories", "notes": notes, "ann": notes[1]})
    (first, _), _ = points(tmp_path / "Stories")
    assert (first.notes, first.nats) == (notes[0], None)
    assert not list(tmp_path.rglob("*.part"))


def test_energies_of_two_parts_of_the_samples() -> None:
    """What docs/measure.md says of how much energy varies, on the records."""
    worst = dict.fromkeys(NETWORKS, 0.0)
    for name in NETWORKS:
        for path in sorted((RECORDS / name).glob(f"dcgs*{ENDING}")):
            record = read_record(path)
            first, second = record.get("energy on the first half", []), record["energy"]["paper"]
            worst[name] = max([worst[name], *(abs(a / b - 1) for a, b in zip(first, second, strict=False))])
    espnet = worst.pop("ESPNet")
    said = " ".join((ROOT / "docs/measure.md").read_text().split())
    assert min(worst.values()) > 0  # all have such a record
    assert f"differ by at most {100 * max(worst.values()):.1f} %" in said
    assert f"ESPNet (32 images) by {100 * espnet:.1f} %" in said
