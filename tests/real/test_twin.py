"""The spike view of real networks against their value view: how far the answers differ, and how many spikes.

A spike differs on its own account where rounding puts a potential on the other side of an edge. One of them changes the
values of many neurons behind it by as much as their smallest level, so that a free run differs in a few per cent of its
spikes afterwards (and answers as well). The twin therefore also follows the spikes of the value view, step by step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import spikecast
from spikecast import Config
from spikecast.hardware import twin

pytestmark = pytest.mark.slow

CASES = {"ResNet-20": (8, 8), "SqueezeNet": (2, 4), "ViT-Tiny": (1, 4)}  # images, steps


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_the_twin_answers_like_the_network(
    case: Callable[..., Any], capsys: pytest.CaptureFixture[str], name: str, dtype: torch.dtype
) -> None:
    images, num_steps = CASES[name]
    given = case(name, 16, images)
    model, x = copy.deepcopy(given.model).to(dtype), given.images.to(dtype)
    config = Config(num_steps=num_steps, num_levels=8, burst=1, thresholds="quantile")
    snn = spikecast.convert(model, [given.calibration.to(dtype)], config)
    recorded, answer = snn.record(x), snn.run(x)
    spikes = sum(int((r.levels != 0).sum()) for r in recorded.values())

    def compare(levels: dict[str, Tensor] | None) -> tuple[float, int]:
        trace = twin(snn).trace(x, follow=levels)
        differ = sum(int((trace.levels[site] != recorded[site].levels).sum()) for site in snn.sites)
        apart = (trace.answer - answer).norm(dim=-1) / answer.norm(dim=-1)
        return float((apart if levels else apart[-1]).max()), differ  # early answers of a free run are coarse

    worst, ties = compare({site: r.levels for site, r in recorded.items()})
    free, differ = compare(None)
    with capsys.disabled():
        print(
            f"\n{name} {dtype} {images} images T={num_steps} {spikes} spikes: following, largest relative difference "
        )
        print(f"  {worst:.1e} and {ties} spikes differ; free run: {free:.1e}, {differ} spikes differ", flush=True)
    assert worst <= (1e-12 if dtype == torch.float64 else 1e-4)
    assert ties <= (1e-6 if dtype == torch.float64 else 1e-4) * spikes + 1
    assert free <= 0.3
