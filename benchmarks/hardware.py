"""What docs/hardware.md says of `demo:cnn` on the way to a chip: python -m benchmarks.hardware

How many spikes change in whole numbers, what the simulator counts beside the meter, how far ONNX is from the network.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import spikecast
from benchmarks.timing import in_turns
from spikecast import Config, SpikingNetwork, hardware, measure
from spikecast.hardware.events.simulator import totals
from spikecast.hardware.integer import fixed_point
from spikecast.sources import Preparation, open_data
from spikecast.sources.demo import demo_network

DIGITS = 32
FAR = 1e-4  # of the largest score of a digit


def whole_numbers(snn: SpikingNetwork, images: Tensor) -> None:
    """Spikes and answers that differ from the float network's, by the bits of a weight."""
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
        print(f"| {bits} | {shares[0]:.1%} | {shares[-1]:.1%} | {total:.1%} | {off:.1%} | {same} of {len(images)} |")


def nearest(snn: SpikingNetwork, images: Tensor) -> None:
    """How far answers would be off if every weight were rounded to the nearest, and sums not kept."""
    answer = snn.run(images)[-1]
    with patch.object(fixed_point, "_keeping_sums", torch.round):
        for bits in (4, 6, 8):
            trace = hardware.IntegerNetwork(snn, weight_bits=bits, membrane_bits=40).trace(images)
            off = float((trace.answer[-1] - answer).norm() / answer.norm())
            print(f"to the nearest, {bits} bits: answers off by {off:.1%}")


def accumulates(snn: SpikingNetwork, images: Tensor) -> None:
    """What the simulator, which fires in float64 by itself, counts beside the meter."""
    simulator = hardware.Simulator(snn)
    simulator.run(images)
    counted, metered = totals(simulator.counts, "spikes"), measure.energy(snn, [images], costs="honest").accumulates
    print(f"accumulates: simulator {sum(counted)}, meter {sum(metered)}")


def onnx(snn: SpikingNetwork, images: Tensor) -> None:
    """onnxruntime beside the network."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        hardware.export_onnx(snn, path)
        session = onnxruntime.InferenceSession(str(path))
        fed = {"input_0": images.numpy()}
        answers, own = torch.from_numpy(session.run(None, fed)[0]), snn(images)
        work: dict[str, Callable[[], Any]] = {"onnx": lambda: session.run(None, fed), "own": lambda: snn(images)}
        times = in_turns(work, 3)
    off = (answers - own).abs().amax(1) / own.abs().amax(1)
    other = int((answers.argmax(1) != own.argmax(1)).sum())
    print(
        f"ONNX: {int((off > FAR).sum())} of {len(images)} differ by more than {FAR:g} of the largest score, at most by "
        f"{float(off.max()):.2%}; {other} have another class; {min(times['onnx']):.2f} s, "
        f"the network's own {min(times['own']):.2f} s"
    )


def main() -> None:
    grey = Preparation(size=8, crop=1.0, mean=(0.0,), std=(1.0,))
    training = list(open_data("demo:digits", grey, split="train", limit=64))
    ((images, _),) = open_data("demo:digits", grey, batch_size=DIGITS, limit=DIGITS)
    snn = spikecast.convert(demo_network("cnn"), training, Config(num_steps=4, num_levels=4, burst=1))
    whole_numbers(snn, images)
    nearest(snn, images)
    accumulates(snn, images)
    digits = [x for split in ("train", "val") for x, _ in open_data("demo:digits", grey, split=split)]
    onnx(snn, torch.cat(digits))


if __name__ == "__main__":
    main()
