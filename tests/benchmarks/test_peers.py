"""benchmarks.peers: what it says of another tool's answers, and of a network that the other tool cannot take."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

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
    found = {"version": "9.9", "layers": 2, "notes": {str(t): NOTES for t in peers.STEPS}, "ann": ANN, "seconds": 2.0}
    peer(f"print('a line of progress'); print({json.dumps(found)!r})")
    rows = list(peers.peer_rows("KWS", "max", 4))
    assert [row.steps for row in rows] == peers.STEPS
    assert {row.tool for row in rows} == {"SpikingJelly 9.9"}


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
