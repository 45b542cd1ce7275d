"""Networks by region have Python code between their graphs: hardware refuses them, and says what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config, hardware
from spikecast.errors import ModelError

X = torch.rand(2, 3)


@pytest.fixture(scope="module")
def regions() -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))).eval()
    config = Config(
        num_steps=2, burst=1, coding="rate", num_levels=1, signed=False, firing_boundary=1.0, initial_potential=0.0
    )
    return spikecast.convert(model, [X], config, regions=["1"])


VIEWS: dict[str, Callable[[Any, Path], Any]] = {
    "circuit": lambda snn, _: hardware.Circuit(snn),
    "twin": lambda snn, _: hardware.twin(snn),
    "events": lambda snn, _: hardware.record_events(snn, X),
    "stream": lambda snn, _: next(hardware.stream_events(snn, X)),
    "simulator": lambda snn, _: hardware.Simulator(snn),
    "integers": lambda snn, _: hardware.IntegerNetwork(snn),
    "nir": lambda snn, folder: hardware.export_nir(snn, folder / "net.nir"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_regions_are_refused_with_the_name_that_works(view: str, regions: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"whole SpikingNetwork and was given RegionNetwork; .*snn\.networks\[\.\.\.\]$"
    ):
        VIEWS[view](regions, tmp_path)
    VIEWS[view](regions.networks["1"], tmp_path) if view not in ("events", "stream") else None


def test_a_twin_says_what_it_is() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).eval()
    snn = spikecast.convert(model, [X], Config(num_steps=2, thresholds="quantile"))
    assert repr(snn.twin()) == "Twin(1 layers)"
    assert repr(snn.twin(torch.float64)) == "Twin(1 layers, torch.float64)"


def test_names_that_are_imported_late_are_listed() -> None:
    import subprocess
    import sys

    code = "from spikecast import hardware; print('Simulator' in dir(hardware), 'totals' in dir(hardware.events))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
    assert set(hardware.__all__) <= set(dir(hardware))


def test_hardware_is_light_to_import() -> None:
    import subprocess
    import sys

    code = "import sys, spikecast.hardware; print({'h5py', 'numba', 'nir'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
