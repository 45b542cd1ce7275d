"""A module of one's own, with functional calls and two inputs, converted, looked into, saved and loaded.

python examples/convert_own_module.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config


class Gated(nn.Module):
    """An image and a vector of features; neither the ReLU nor the softmax is a module."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.features, self.head = nn.Linear(5, 8), nn.Linear(8, 4)

    def forward(self, image: Tensor, features: Tensor) -> Tensor:
        x = torch.relu(self.first(image))
        x = torch.relu(self.second(x)) + x
        gate = self.features(features).softmax(-1)
        return self.head(x.mean((2, 3)) * gate)


def main() -> None:
    torch.manual_seed(0)
    model = Gated().eval()
    # a batch is a dict by argument name; tuples and (input, label) pairs would do as well
    batches = [{"image": torch.rand(8, 1, 12, 12), "features": torch.randn(8, 5)} for _ in range(4)]
    snn = spikecast.convert(model, batches, Config(num_steps=8, overrides={"relu#2": {"num_levels": 4}}))
    print(snn.report)

    given = batches[0]
    with torch.no_grad():
        expected = model(**given)
    for t, answer in snn.steps(**given):
        print(f"t = {t}: error {float((answer - expected).norm() / expected.norm()):.3f}")

    sites = snn.record(**given)
    for name, site in sites.items():
        spikes = (site.levels != 0).sum(1)  # of a burst
        print(f"{name}: {float(spikes.float().mean()):.3f} spikes per neuron and step")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gated.spikecast"
        snn.save(path)
        assert torch.equal(spikecast.load(path)(**given), snn(**given))
        print(f"saved, loaded, the same: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
