"""How many spikes change in whole numbers: `python -m benchmarks.integer_spikes`, on 32 digits of `demo:cnn`."""

from __future__ import annotations

import spikecast
from spikecast import Config, hardware
from spikecast.sources import Preparation, open_data
from spikecast.sources.demo import demo_network

DIGITS = 32


def main() -> None:
    grey = Preparation(size=8, crop=1.0, mean=(0.0,), std=(1.0,))
    training = list(open_data("demo:digits", grey, split="train", limit=64))
    ((images, _),) = open_data("demo:digits", grey, batch_size=DIGITS, limit=DIGITS)
    snn = spikecast.convert(demo_network("cnn"), training, Config(num_steps=4, num_levels=4, burst=1))
    floats, answer = snn.record(images), snn.run(images)[-1]
    print("| weight bits | first layer | last layer | all | answers off by | same class |")
    print("|---|---|---|---|---|---|")
    for bits in (4, 6, 8, 12, 16):
        trace = hardware.IntegerNetwork(snn, weight_bits=bits, membrane_bits=40).trace(images)
        differ = [(trace.levels[site] != floats[site].levels).float() for site in trace.levels]
        shares = [float(d.mean()) for d in differ]
        total = sum(float(d.sum()) for d in differ) / sum(d.numel() for d in differ)
        off = float((trace.answer[-1] - answer).norm() / answer.norm())
        same = int((trace.answer[-1].argmax(1) == answer.argmax(1)).sum())
        print(f"| {bits} | {shares[0]:.1%} | {shares[-1]:.1%} | {total:.1%} | {off:.1%} | {same} of {DIGITS} |")


if __name__ == "__main__":
    main()
