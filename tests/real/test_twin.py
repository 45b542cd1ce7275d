"""The spike view of real networks against their value view: how far the answers differ, and how many spikes.

In float64 the two are one, but for spikes on an edge. In float32 rounding puts more potentials on the other side of an
edge, and what follows from such a spike differs as well; the answers stay within what a late spike costs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import spikecast
from spikecast import Config
from spikecast.hardware import twin

# images, steps, and the share of spikes that may differ in float32
CASES = {"ResNet-20": (16, 8, 0.01), "SqueezeNet": (4, 4, 0.01), "ViT-Tiny": (2, 4, 0.05)}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_the_twin_answers_like_the_network(
    case: Callable[..., Any], capsys: pytest.CaptureFixture[str], name: str, dtype: torch.dtype
) -> None:
    images, num_steps, share = CASES[name]
    given = case(name, 16, images)
    model, x = copy.deepcopy(given.model).to(dtype), given.images.to(dtype)
    snn = spikecast.convert(model, [given.calibration.to(dtype)], Config(num_steps=num_steps, num_levels=8))
    trace, recorded, answer = twin(snn).trace(x), snn.record(x), snn.run(x)
    differ = sum(int((trace.levels[site] != recorded[site].levels).sum()) for site in snn.sites)
    spikes = sum(int((recorded[site].levels != 0).sum()) for site in snn.sites)
    worst = float(((trace.answer - answer).norm(dim=-1) / answer.norm(dim=-1)).max())
    same = (trace.answer.argmax(-1) == answer.argmax(-1)).float().mean()
    with capsys.disabled():
        print(f"\n{name} {dtype} {images} images T={num_steps}: largest relative difference {worst:.1e}, ", end="")
        print(f"{differ} of {spikes} spikes differ, {100 * same:.1f} % of the answers agree")
    if dtype == torch.float64:
        assert worst <= 1e-6
        assert differ <= 1e-5 * spikes
    else:
        assert differ <= share * spikes
        assert same >= 0.95
