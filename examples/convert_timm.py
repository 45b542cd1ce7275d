"""What would my timm model cost in spikes? For ML engineers.

    python examples/convert_timm.py [NAME] [--pretrained] [--data imagenet:/data/imagenet]

Without data it runs on random images, which shows the report and the costs but no accuracy.
"""

from __future__ import annotations

import argparse

import timm
import torch

import spikecast
from spikecast import Config, measure
from spikecast.sources import Preparation, open_data


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="vit_tiny_patch16_224")
    parser.add_argument("--pretrained", action="store_true")
    parser.add_argument("--data", help="imagenet:DIR or imagefolder:DIR")
    parser.add_argument("--steps", type=int, default=Config.num_steps)
    given = parser.parse_args(words)

    model = timm.create_model(given.name, pretrained=given.pretrained).eval()
    wanted = timm.data.resolve_data_config({}, model=model)
    size = wanted["input_size"][-1]
    if given.data:
        preparation = Preparation(size=size, mean=wanted["mean"], std=wanted["std"])
        data = open_data(given.data, preparation=preparation, batch_size=8, limit=64)
    else:
        data = [(torch.randn(2, 3, size, size), torch.zeros(2, dtype=torch.long))]

    snn = spikecast.convert(model, data, Config(num_steps=given.steps))
    print(snn.report)
    print(measure.evaluate(snn, data, model=model).table())
    print("\n".join(measure.agreement(model, snn, data).explain()))


if __name__ == "__main__":
    main()
