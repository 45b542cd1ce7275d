"""benchmarks.peers: what it says of other tools' answers, and of a network that another tool cannot take."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from benchmarks import peer as peer_process
from benchmarks import peers
from benchmarks.peer import Peer
from benchmarks.peer_scaling import Listed, chain, folded, normalize, scale_first

NOTES = [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
ANN = [[1.0, 1.0, 0.0]] * 3 + [[0.0, 1.0, 0.0]]
ASKED = peers.Asked(samples=4)


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """A process in the place of the other tools, which prints this and exits with that."""

    def install(says: str, status: int = 0) -> None:
        for tool in peers.RECIPES:
            script = tmp_path / tool.lower() / "bin/python"
            script.parent.mkdir(parents=True)
            script.write_text(f"#!{sys.executable}\nimport sys\n{says}\nsys.exit({status})\n")
            script.chmod(0o700)
        monkeypatch.setattr(peers, "HOME", tmp_path)

    return install


def test_a_row_counts_answers() -> None:
    row = peers.Row("net", "tool", "max", 8, 8, NOTES, ANN, 0.5678, 1.234)
    cells = row.cells()
    assert cells[:5] == ("net", "tool", "max", "8", "8")
    assert cells[5].startswith("75.0% (30.1 to 95.4)")  # Wilson's interval of three of four
    assert cells[6:] == ("50.0", "-25.0", "0.57", "1.23")
    assert replace(row, seconds=nan).cells()[-1] == "–"


@pytest.mark.parametrize("tool", peers.RECIPES)
def test_rows_of_another_tool(peer, tool) -> None:
    times = {str(t): 2.0 + 1 / t for t in peers.STEPS}
    spikes = {str(t): 0.1 * t for t in peers.STEPS}
    found = {"version": "9.9", "layers": 2, "notes": {str(t): NOTES for t in peers.STEPS}, "ann": ANN}
    found |= {"spikes": spikes, "seconds": times}
    peer(f"print('a line of progress'); print({json.dumps(found)!r})")
    rows = list(peers.peer_rows("KWS", tool, "max", ASKED))
    assert [row.steps for row in rows] == peers.STEPS
    assert {row.tool for row in rows} == {f"{tool} 9.9"}
    assert [row.seconds for row in rows] == list(times.values())  # of each T, not one for all
    assert [row.spikes for row in rows] == list(spikes.values())


def test_another_tool_is_asked_what_is_wanted(peer, tmp_path) -> None:
    found = json.dumps({"version": "9.9", "layers": 0})
    peer(f"open({str(tmp_path / 'asked')!r}, 'w').write('|'.join(sys.argv[1:])); print({found!r})")
    assert list(peers.peer_rows("KWS", "Sinabs", "scaled", peers.Asked(7, [8, 32], 0))) == []
    module, given = (tmp_path / "asked").read_text().split("|")[1:]
    assert module == "benchmarks.peer_sinabs"
    assert json.loads(given) == {"network": "KWS", "recipe": "scaled", "samples": 7, "steps": [8, 32], "rounds": 0}


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
        return {name: taken[name][:rounds] for name in works}

    monkeypatch.setattr(peers, "in_turns", in_turns)
    snn: Any = Snn()
    assert peers.seconds_of(nn.Identity(), snn, torch.zeros(1), [2, 5], 3) == {2: 1.5, 5: 0.8}
    assert asked == [2, 5]
    assert str(peers.seconds_of(nn.Identity(), snn, torch.zeros(1), [2], 0)) == "{2: nan}"


@pytest.mark.parametrize(
    ("says", "status", "expected"),
    [
        ("print('ValueError: no such node', file=sys.stderr)", 1, "not converted: ValueError: no such node"),
        (f"print({json.dumps({'version': '9.9', 'layers': 0})!r})", 0, "finds no nn.ReLU module"),
    ],
)
def test_what_cannot_be_taken_is_said(peer, capsys, says, status, expected) -> None:
    peer(says, status)
    assert list(peers.peer_rows("KWS", "SpikingJelly", "max", ASKED)) == []
    assert expected in capsys.readouterr().out


def test_it_says_how_to_install_another_tool(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(peers, "HOME", Path(tmp_path / "missing"))
    assert peers.main(["--only", "KWS", "--recipes", "scaled"]) == 1
    said = capsys.readouterr().err
    assert "make importers" in said
    assert "sinabs" in said
    assert "spikingjelly" not in said  # which was not asked for


class Counter(nn.Module):
    """Answers 1, 2, 3 and so on, until it is told to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.calls * x


def forget(snn: nn.Module) -> None:
    for module in snn.modules():
        if isinstance(module, Counter):
            module.calls = 0


COUNTING = Peer("torch", {"count": lambda model, data: Counter()}, Counter, forget)


def test_a_peer_sums_over_steps_and_forgets_between_batches() -> None:
    snn = Counter()
    for _ in range(2):
        means = {t: answer.item() for t, answer in COUNTING.answers(snn, torch.ones(()), [2, 4])}
        assert means == {2: 1.5, 4: 2.5}


@pytest.mark.parametrize(("rounds", "known"), [(2, True), (0, False)])
def test_a_peer_prints_what_it_found(monkeypatch, capsys, rounds, known) -> None:
    def notes(answers: Tensor, reference: Tensor, truth: Tensor) -> list[list[float]]:
        return torch.stack([answers.flatten(), reference.flatten(), truth.flatten()], 1).tolist()

    x, y = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([4.0, 5.0, 6.0])
    real = SimpleNamespace(build=nn.Identity, read=lambda split: (x, y), batch=2, notes=notes)
    monkeypatch.setattr(peer_process, "NETWORKS", {"net": real})
    monkeypatch.setattr(peer_process, "replace", lambda network, samples: network)
    given = {"network": "net", "recipe": "count", "steps": [1, 3], "samples": 3, "rounds": rounds}
    monkeypatch.setattr(sys, "argv", ["peer", json.dumps(given)])
    COUNTING.main()
    found = json.loads(capsys.readouterr().out)
    assert found["layers"] == 1
    assert found["ann"] == [[1, 1, 4], [2, 2, 5], [3, 3, 6]]
    assert found["notes"]["3"] == [[2, 1, 4], [4, 2, 5], [6, 3, 6]]  # (1 + 2 + 3) / 3 times the input
    assert found["spikes"] == {"1": 2, "3": 12}  # of its one neuron: the mean input, then (1 + 2 + 3) times it
    assert all((seconds == seconds) is known for seconds in found["seconds"].values())  # NaN is not itself


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right, self.act = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        return self.left(x) + self.right(x)


@pytest.fixture
def network() -> nn.Module:
    """Nested, with batch norms that have seen something, and biases."""
    torch.manual_seed(0)
    features = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.MaxPool2d(2)
    )
    model = nn.Sequential(features, nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        model.train()(torch.randn(20, 2, 8, 8))
    return model.eval()


def test_stages_of_a_network_without_branches(network) -> None:
    fused = folded(network)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    assert chain(fused) == [("0.0", "0.2"), ("0.3", "0.4"), ("2", "3")]
    assert chain(fx.symbolic_trace(Branches())) is None
    with pytest.raises(ValueError, match="follow no weights: 0"):
        folded(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).eval())


@torch.no_grad()
def test_scaling_leaves_the_answers(network) -> None:
    """Each stage comes to an activity of at most 1, and the answers are the ANN's times one number."""
    x = torch.randn(50, 2, 8, 8)
    fused = folded(network)
    pairs = chain(fused)

    def one(listed: nn.Module, name: str, rectifier: str) -> None:
        largest = max(activities(listed, x)[rectifier])
        for parameter in dict(listed.named_children())[name].parameters():
            parameter.data /= largest

    normalize(fused, pairs, one)
    for rectifier in [rectifier for _, rectifier in pairs]:
        assert max(activities(Listed(fused), x)[rectifier]) == pytest.approx(1)
    assert_same_but_for_a_factor(fused(x), network(x))
    before = fused(x)
    scale_first(fused, 10.0)
    torch.testing.assert_close(fused(x), 10 * before)


def activities(listed: nn.Module, x: Tensor) -> dict[str, list[float]]:
    found: dict[str, Any] = {}
    handles = [
        module.register_forward_hook(lambda _m, _x, y, name=name: found.update({name: y.flatten().tolist()}))
        for name, module in listed.named_children()
        if isinstance(module, nn.ReLU)
    ]
    listed(x)
    for handle in handles:
        handle.remove()
    return found


def assert_same_but_for_a_factor(said: Tensor, wanted: Tensor) -> None:
    factor = (said * wanted).sum() / wanted.square().sum()
    assert factor > 0
    torch.testing.assert_close(said, factor * wanted, rtol=1e-4, atol=1e-5)


def test_a_stage_that_is_silent_is_refused(network) -> None:
    fused = folded(copy.deepcopy(network))

    def one(listed: nn.Module, name: str, rectifier: str) -> None:
        for parameter in dict(listed.named_children())[name].parameters():
            parameter.data.fill_(float("inf"))

    with pytest.raises(ValueError, match=r"0\.2 has an activity of 0"):
        normalize(fused, chain(fused), one)
