"""A file of events is what its name says, or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError
from spikecast.hardware import load_events, record_events


def test_events_are_written_under_names_that_say_what_they_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 4)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).eval()
    events = record_events(spikecast.convert(model, [x], Config(num_steps=2, thresholds="quantile")), x)
    for name in ("net", "net.csv", "net.NPZ", "net.npz.gz"):
        with pytest.raises(
            ConfigError, match=rf"{name}: the name must end in one of .npz, .h5, .hdf5; give such a name$"
        ):
            events.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
    for name in ("net.npz", "net.h5", "net.hdf5"):
        events.save(tmp_path / name)
        assert len(load_events(tmp_path / name)) == len(events)
    with open(tmp_path / "net.npz", "rb") as zipped, open(tmp_path / "net.hdf5", "rb") as other:
        assert zipped.read(2) == b"PK" != other.read(2)
