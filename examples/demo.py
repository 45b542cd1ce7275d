"""What `spikecast demo` does, in Python: a network that comes with the package becomes a spiking one.

pip install "spikecast[demo]"
python examples/demo.py
"""

from __future__ import annotations

from spikecast import Config, convert, measure
from spikecast.sources import Preparation, open_data
from spikecast.sources.demo import demo_network


def main() -> None:
    grey = Preparation(size=8, crop=1.0, mean=(0.0,), std=(1.0,))
    training = open_data("demo:digits", grey, split="train", limit=256)  # thresholds are found from these
    held_out = open_data("demo:digits", grey)  # and accuracy is measured on these
    for name in ("cnn", "vit"):
        model = demo_network(name)
        for coding in ("differential", "rate"):
            snn = convert(model, training, Config(num_steps=4, num_levels=4, coding=coding))
            print(f"\n{name}, {coding} coding\n{measure.evaluate(snn, held_out, model=model).table()}")


if __name__ == "__main__":
    main()
