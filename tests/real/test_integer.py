"""ResNet-20 in whole numbers, 8-bit weights: as good as the float SNN to half a point, and in registers of 24 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import spikecast
from spikecast import Config
from spikecast.hardware.integer.network import IntegerNetwork

pytestmark = pytest.mark.slow

IMAGES, BATCH = 500, 100


def test_eight_bits_answer_like_floats(case: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    given = case("ResNet-20", 64, IMAGES)
    snn = spikecast.convert(given.model, [given.calibration], Config(num_steps=8, num_levels=4, burst=1))
    net = IntegerNetwork(snn)
    assert net.report.host == {}
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
    slack = 0.005 * IMAGES
    assert int((whole == labels).sum()) >= int((floats == labels).sum()) - slack
    assert int((whole == ann).sum()) >= int((floats == ann).sum()) - slack
    assert max(used.values()) <= 24
    assert net.report.overflows == {}
