"""ResNet-20 in whole numbers, 8-bit weights: like the float SNN to half a point as far as 500 images tell; 24 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import spikecast
from spikecast import Config
from spikecast.hardware.integer.network import IntegerNetwork
from spikecast.measure.intervals import paired_share

pytestmark = pytest.mark.slow

IMAGES, BATCH = 500, 100


def test_eight_bits_answer_like_floats(case: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    given = case("ResNet-20", 64, IMAGES)
    snn = spikecast.convert(given.model, [given.calibration], Config(num_steps=8, num_levels=4, burst=1))
    net = IntegerNetwork(snn)
    (why,) = net.report.host.values()  # of the first convolution
    assert why.startswith("weights on values, not on spikes")
    ann, labels = given.answers.argmax(-1), given.labels
    floats = torch.cat([snn.run(x)[-1] for x in given.images.split(BATCH)]).argmax(-1)
    whole = torch.cat([net.run(x)[-1] for x in given.images.split(BATCH)]).argmax(-1)
    used = net.report.used
    widths = {kind: max(bits for name, bits in used.items() if kind in name) for kind in ("membrane", "estimate")}
    with capsys.disabled():
        print(f"\nResNet-20, n = 4, T = 8, {IMAGES} images, 8-bit weights, bits needed {widths}")
        for name, answers in (("float", floats), ("integer", whole)):
            right, same = float((answers == labels).float().mean()), float((answers == ann).float().mean())
            print(f"  {name}: accuracy {100 * right:.1f} %, agreement with the ANN {100 * same:.1f} %")
    for wanted in (labels, ann):  # half a point less is not beyond doubt
        assert paired_share(whole == wanted, floats == wanted).interval.high >= -0.005
    assert max(used.values()) <= 24
    assert net.report.overflows == {}
