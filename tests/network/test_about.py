"""What is said about a network is saved along with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import spikecast
from spikecast.errors import ArtifactError


@pytest.fixture(scope="module")
def network() -> spikecast.SpikingNetwork:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    return spikecast.convert(model, [torch.rand(8, 3)], spikecast.Config(num_steps=2, thresholds="quantile"))


def test_it_comes_back(network: spikecast.SpikingNetwork, tmp_path: Path) -> None:
    network.about = {"model": "mine", "mean": [0.5, 1], "nested": {"deep": None}}
    network.save(tmp_path / "net.spikecast")
    assert spikecast.load(tmp_path / "net.spikecast").about == network.about


@pytest.mark.parametrize(
    ("about", "message"),
    [(["a list"], "Expected `object`, got `array`"), ({"x": object()}, "JSON cannot")],
)
def test_what_is_no_json_is_refused(
    network: spikecast.SpikingNetwork, tmp_path: Path, about: object, message: str
) -> None:
    network.about = about  # type: ignore[assignment]
    with pytest.raises(ArtifactError, match=message):
        network.save(tmp_path / "net.spikecast")
    assert list(tmp_path.iterdir()) == []
