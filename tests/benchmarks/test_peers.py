"""benchmarks.peers: what it says of another tool's answers, and of a network that the other tool cannot take."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import peers

NOTES = [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
ANN = [[1.0, 1.0, 0.0]] * 3 + [[0.0, 1.0, 0.0]]


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """A process in the place of the other tool, which prints this and exits with that."""

    def install(says: str, status: int = 0) -> None:
        script = tmp_path / "python"
        script.write_text(f"#!{sys.executable}\nimport sys\n{says}\nsys.exit({status})\n")
        script.chmod(0o700)
        monkeypatch.setattr(peers, "PEER", script)

    return install


def test_a_row_counts_answers() -> None:
    cells = peers.Row("net", "tool", "max", 8, 8, NOTES, ANN, 1.234).cells()
    assert cells[:5] == ("net", "tool", "max", "8", "8")
    assert cells[5].startswith("75.0% (30.1 to 95.4)")  # Wilson's interval of three of four
    assert cells[6:] == ("50.0", "-25.0", "1.23")


def test_rows_of_the_other_tool(peer) -> None:
    times = {str(t): 2.0 + 1 / t for t in peers.STEPS}
    found = {"version": "9.9", "layers": 2, "notes": {str(t): NOTES for t in peers.STEPS}, "ann": ANN, "seconds": times}
    peer(f"print('a line of progress'); print({json.dumps(found)!r})")
    rows = list(peers.peer_rows("KWS", "max", 4))
    assert [row.steps for row in rows] == peers.STEPS
    assert {row.tool for row in rows} == {"SpikingJelly 9.9"}
    assert [row.seconds for row in rows] == list(times.values())  # of each T, not one for all


def test_time_is_of_each_number_of_steps(monkeypatch) -> None:
    """Two steps together take three times as long as the ANN, and five take four times."""
    asked = []

    class Snn:
        def run(self, x, num_steps):
            asked.append(num_steps)

    taken = {"2": [9.0, 6.0, 7.0], "5": [8.0, 8.5, 9.0], "ann": [2.0, 2.5, 3.0]}

    def in_turns(works, rounds):
        for work in works.values():
            work()
        return {name: taken[name] for name in works}

    monkeypatch.setattr(peers, "in_turns", in_turns)
    snn: Any = Snn()
    assert peers.seconds_of(nn.Identity(), snn, torch.zeros(1), [2, 5]) == {2: 1.5, 5: 0.8}
    assert asked == [2, 5]


@pytest.mark.parametrize(
    ("says", "status", "expected"),
    [
        ("print('ValueError: no such node', file=sys.stderr)", 1, "not converted: ValueError: no such node"),
        (f"print({json.dumps({'version': '9.9', 'layers': 0})!r})", 0, "finds no nn.ReLU module"),
    ],
)
def test_what_cannot_be_taken_is_said(peer, capsys, says, status, expected) -> None:
    peer(says, status)
    assert list(peers.peer_rows("KWS", "max", 4)) == []
    assert expected in capsys.readouterr().out


def test_it_says_how_to_install_the_other_tool(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(peers, "PEER", Path(tmp_path / "missing"))
    assert peers.main(["--only", "KWS"]) == 1
    assert "make importers" in capsys.readouterr().err
