"""Regions of a model come back to the bit, into the model they were taken from."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

import spikecast
from spikecast.errors import ArtifactError
from spikecast.storage.tensors import digest, sealed


class Detector(nn.Module):
    """Two parts, and Python between them that no export can take."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleDict(
            {
                "back": nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 6), nn.ReLU()),
                "head": nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
            }
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        found = self.parts["back"](x)
        return [self.parts["head"](row[None]) for row in found[: 1 + int(found.sum() > -1)]]


MODEL = Detector().eval()
X = torch.rand(3, 1, 6, 6)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = spikecast.Config(num_steps=3, num_levels=3)
    network = spikecast.convert(MODEL, [X], config, regions=["parts.head", "parts.back"])
    network.about = {"made": "here"}
    path = tmp_path_factory.mktemp("regions") / "net.spikecast"
    network.save(path)
    return path


def test_round_trip_is_exact(saved: Path, tmp_path: Path) -> None:
    loaded = spikecast.load(saved, model=Detector().eval())
    network = spikecast.convert(MODEL, [X], loaded.config, regions=["parts.head", "parts.back"])
    assert list(loaded.networks) == list(network.networks) == ["parts.back", "parts.head"]  # as they are called
    assert loaded.about == {"made": "here"}
    assert loaded.neurons == network.neurons
    for ours, theirs in zip(loaded.run(X), network.run(X), strict=True):
        assert torch.equal(ours, theirs)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_the_model_is_needed_and_must_have_the_regions(saved: Path) -> None:
    with pytest.raises(ArtifactError, match=r"holds regions of a model; give that model: spikecast\.load\(path, model"):
        spikecast.load(saved)
    with pytest.raises(ArtifactError, match=r"Linear has no submodule 'parts\.back'"):
        spikecast.load(saved, model=nn.Linear(2, 2).eval())


def test_lies_are_refused_or_harmless(saved: Path, tmp_path: Path) -> None:
    """The checksum is right, what it vouches for is not."""
    content = saved.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    tensors, text = read_tensors(content), header["__metadata__"]["spikecast"]
    digests = {name: digest(tensor) for name, tensor in tensors.items()}
    complaints = []
    for seed in range(150):
        draw, document = random.Random(seed), json.loads(text)
        del document["sha256"]
        container: Any = document["body"]
        for _ in range(draw.randrange(4)):
            inner = [
                v
                for v in (container.values() if isinstance(container, dict) else container)
                if v and type(v) in (dict, list)
            ]
            container = draw.choice(inner) if inner else container
        key = draw.choice(list(container) if isinstance(container, dict) else range(len(container)))
        if isinstance(container, dict) and draw.random() < 0.4:
            container[draw.choice(["", "pop", "parts", "parts.back"])] = container.pop(key)
        else:
            container[key] = draw.choice([None, True, -1, 10**12, 0.5, "", "x", [], {}, [[]], ["ref", "x"]])
        path = tmp_path / "net"
        path.write_bytes(to_bytes(tensors, {"spikecast": sealed(json.dumps(document), digests)}))
        try:
            spikecast.load(path, model=MODEL)
        except ArtifactError as error:
            complaints.append(str(error))
    assert len(complaints) > 100
    assert not any("\n" in complaint for complaint in complaints)
