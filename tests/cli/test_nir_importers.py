"""NIR files in the hands of other tools, each in its own environment (make importers); the deviation is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config, SpikingNetwork
from spikecast.hardware import check_nir, export_nir
from spikecast.hardware.nir.check import NirCheck, importer_python

pytestmark = pytest.mark.importers

PLAIN = Config(
    num_steps=8,
    num_levels=1,
    burst=1,
    coding="rate",
    signed=False,
    firing_boundary=1.0,
    thresholds="quantile",
    threshold_scale=1.0371,
)
# What each importer is known to do otherwise than the file means, as of the versions that make importers found.
KNOWN = {
    "snntorch": {"strict threshold", "leak", "lost backlog"},
    "spikingjelly": {"hard reset", "lost backlog"},
    "sinabs": {"several spikes", "lost backlog", "floor", "lost branches"},
}


class Shortcut(nn.Module):
    """LeNet with average pooling and one residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.short = nn.Conv2d(1, 6, 5, 1, 2), nn.Conv2d(6, 8, 3, 2, 1), nn.Conv2d(6, 8, 1, 2)
        self.pool, self.fc1, self.fc2 = nn.AvgPool2d(2), nn.Linear(8 * 4 * 4, 20), nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.conv1(x)))
        x = torch.relu(self.conv2(x) + self.short(x)).flatten(1)
        return self.fc2(torch.relu(self.fc1(x)))


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.rand(8, 1, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def snn(x: torch.Tensor) -> SpikingNetwork:
    torch.manual_seed(0)
    return spikecast.convert(Shortcut().eval(), [x], PLAIN)


@pytest.fixture(scope="module", params=["snntorch", "spikingjelly", "sinabs"])
def checked(
    request: pytest.FixtureRequest, snn: SpikingNetwork, x: torch.Tensor, tmp_path_factory: pytest.TempPathFactory
) -> NirCheck:
    if not importer_python(request.param).exists():
        pytest.skip(f"no environment {importer_python(request.param)}; make importers")
    path = tmp_path_factory.mktemp("importers") / "net.nir"
    export_nir(snn, path)
    found = check_nir(path, request.param, x, num_steps=16, network=snn)
    print(f"\n{found}")
    return found


def test_importer_runs_the_file(checked: NirCheck) -> None:
    """The graph, its weights and its sums arrive: with the neuron the file means, spike for spike."""
    assert not any(stage.error for stage in checked.stages.values())
    assert checked.stages["meant"].worst < 1e-3
    assert checked.stages["meant"].agreement == 1
    assert checked.stages["meant"].differences == ()


def test_known_differences_are_found(checked: NirCheck) -> None:
    """An importer that has changed shows here: the list above, and docs/hardware.md, are then to be changed."""
    found = {line.split(" (")[0] for line in checked.stages["imported"].differences}
    assert found - {"wrong output"} == KNOWN[checked.importer]
    assert checked.stages["imported"].worst > 0.01
    if checked.importer != "snntorch":  # its own settings can be put right
        assert checked.stages["set"].worst < 1e-3
        assert checked.stages["set"].differences == ()


def test_from_the_command_line(cli, home: Path) -> None:
    names = ["snntorch", "spikingjelly", "sinabs"]
    if missing := [name for name in names if not importer_python(name).exists()]:
        pytest.skip(f"no environment of {missing}; make importers")
    plain = [
        "--coding",
        "rate",
        "--levels",
        "1",
        "--burst",
        "1",
        "--set",
        "signed=false",
        "--set",
        "firing_boundary=1.0",
    ]
    images = ["--data", "demo:digits", "--limit", "4", "--steps", "6"]
    done = cli("export", "demo:cnn", *images, *plain, "--out", "cnn.nir", "--check", ",".join(names), "--json")
    assert done.code == 0, done.complaint
    found = json.loads(done.out)["check"]
    assert [found[name]["stages"]["meant"]["agreement"] for name in names] == [1, 1, 1]
