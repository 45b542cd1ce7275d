"""A converted network on its way to a chip: events, integers, the event simulator, and a NIR file.

python examples/export_to_chip.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import spikecast
from spikecast import Config, hardware, measure
from spikecast.sources import Preparation, open_data
from spikecast.sources.demo import demo_network


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = demo_network("cnn")
    ((digits, labels),) = open_data("demo:digits", Preparation(8, 1.0, (0.0,), (1.0,)), batch_size=32, limit=32)
    snn = spikecast.convert(model, [digits], Config(num_steps=4, num_levels=4))

    events = hardware.record_events(snn, digits)
    events.save(folder / "digits.npz")
    print(f"{len(events)} events, {len(events) / len(digits):.0f} for each image")

    simulator = hardware.Simulator(snn, digits)
    answers = simulator.run(events=events)
    print(f"replayed, event by event: {float((answers - snn.run(digits)).abs().max()):.1e} off")
    print(f"accumulates counted by the meter: {measure.energy(snn, [digits]).accumulates}")

    integers = hardware.IntegerNetwork(snn, weight_bits=8)
    right = float((integers.run(digits)[-1].argmax(-1) == labels).float().mean())
    print(f"8-bit weights: {right:.1%} right; bits needed {max(integers.report.used.values())}")

    simple = Config(num_steps=32, coding="rate", num_levels=1, burst=1, signed=False, firing_boundary=1.0)
    rates = spikecast.convert(model, [digits], simple)
    hardware.export_nir(rates, folder / "digits.nir", profile="portable")
    hardware.export_nir(snn, folder / "digits-exact.nir", profile="extended")
    same = torch.equal(hardware.load_nir(folder / "digits-exact.nir").run(digits), snn.run(digits))
    print(f"NIR written to {folder}; read back from the extended profile: {'the same' if same else 'not the same'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/chip"))
