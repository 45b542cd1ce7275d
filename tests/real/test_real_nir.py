"""Real networks as NIR files: ResNet-20 in the importers that are installed, VGG-16 there and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nir
import pytest
import torch

import spikecast
from spikecast import Config, SpikingNetwork
from spikecast.hardware import check_nir, export_nir, load_nir
from spikecast.hardware.nir.check import importer_python
from spikecast.hardware.nir.interpret import Interpreter

pytestmark = pytest.mark.slow


PLAIN = Config(coding="rate", num_levels=1, burst=1, signed=False, firing_boundary=1.0, num_steps=16)
Get = Callable[[str, int, int], Any]  # model, calibration images, validation images -> a Case of conftest.py


@pytest.fixture(scope="module")
def resnet(case: Get, tmp_path_factory: pytest.TempPathFactory) -> tuple[SpikingNetwork, Any, Path]:
    given = case("ResNet-20", 100, 8)
    snn = spikecast.convert(given.model, given.calibration.split(50), PLAIN)
    path = tmp_path_factory.mktemp("real") / "resnet20.nir"
    done = export_nir(snn, path)
    assert (done.num_nodes, len(done.neurons), done.host_ops) == (52, 19, ())
    return snn, given.images, path


def test_resnet20_portable_is_the_network(resnet: tuple[SpikingNetwork, Any, Path]) -> None:
    """Until a first spike tips at a rounding tie, spike for spike; later in few of them."""
    snn, images, path = resnet
    _, sent = Interpreter(nir.read(path)).run(images, 16)
    levels = {site: recorded.levels.sum(1) for site, recorded in snn.record(images, num_steps=16).items()}
    nodes = {name: node.metadata for name, node in nir.read(path).nodes.items()}
    sites = {name: metadata["spikecast.site"] for name, metadata in nodes.items() if "spikecast.site" in metadata}
    assert set(sites.values()) == set(levels)
    differ = torch.stack([(sent[n] != levels[s]).float().flatten(1).mean(1) for n, s in sites.items()])
    print("share of spikes that differ, by step:", [f"{v:.1e}" for v in differ.mean(0)])
    assert float(differ[:, :4].max()) == 0
    assert float(differ.mean()) < 0.01


@pytest.mark.parametrize("importer", ["snntorch", "spikingjelly", "sinabs"])
def test_resnet20_portable_in_importers(resnet: tuple[SpikingNetwork, Any, Path], importer: Any) -> None:
    if not importer_python(importer).exists():
        pytest.skip(f"no environment {importer_python(importer)}; make importers")
    snn, images, path = resnet
    found = check_nir(path, importer, images, num_steps=16, network=snn)
    print(found)
    assert not any(stage.error for stage in found.stages.values())
    meant = found.stages["meant"]
    assert sum(meant.layers.values()) / len(meant.layers) < 0.01


def test_vgg16_extended_there_and_back(case: Get, tmp_path: Path) -> None:
    given = case("VGG-16", 32, 2)
    snn = spikecast.convert(given.model, [given.calibration], Config(num_steps=4, burst=1))
    done = export_nir(snn, tmp_path / "vgg16.nir", "extended")
    print(done, (tmp_path / "vgg16.nir").stat().st_size, "bytes")
    assert len(nir.read(done.path).nodes) == done.num_nodes
    assert torch.equal(load_nir(done.path).run(given.images), snn.run(given.images))
