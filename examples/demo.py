"""What `spikecast demo` does, in Python: networks that come with the package become spiking ones.

pip install "spikecast[demo]"
python examples/demo.py
"""

from __future__ import annotations

from spikecast import Config, convert, measure
from spikecast.sources import open_data, open_model


def main() -> None:
    for name, data in {"cnn": "demo:digits", "llm": "demo:text", "tones": "demo:tones"}.items():
        loaded = open_model(f"demo:{name}")  # the network, its task, and how its images are made ready
        training = open_data(data, loaded.preparation, split="train", limit=256)  # thresholds are found from these
        held_out = open_data(data, loaded.preparation, batch_size=100)  # and this is measured
        snn = convert(loaded.model, training)  # for one step, the default
        several = snn.reconfigure(Config(num_steps=4), training)
        for words, network in (("one step", snn), ("four steps", several)):
            found = measure.evaluate(network, held_out, loaded.task, model=loaded.model)
            print(f"\n{name}, {words}\n{found.table()}")


if __name__ == "__main__":
    main()
