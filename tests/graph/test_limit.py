"""Sizes that follow from each other stay free where their formulas are short, and are fixed where they are long."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast import Config, convert
from tests.nets import relative

SMALL = Config(num_steps=2, burst=1, thresholds="quantile")


class SamePadding(nn.Sequential):
    """Convolutions whose padding follows from the size of what they get, as TensorFlow's."""

    def forward(self, x: Tensor) -> Tensor:
        for conv in self:
            wide = [max((math.ceil(size / 2) - 1) * 2 + 3 - size, 0) for size in x.shape[-2:]]
            x = conv(F.pad(x, (wide[1] // 2, wide[1] - wide[1] // 2, wide[0] // 2, wide[0] - wide[0] // 2))).relu()
        return x.mean((2, 3))


@pytest.mark.parametrize(("layers", "fixed"), [(1, False), (2, True)])
def test_long_formulas_are_fixed_and_the_report_says_so(layers: int, fixed: bool) -> None:
    model = SamePadding(*(nn.Conv2d(3, 3, 3, stride=2) for _ in range(layers))).eval()
    snn = convert(model, [torch.randn(2, 3, 24, 24)], SMALL)
    assert (snn.plan.program.inputs[0].dims[1:] == (3, 24, 24)) is fixed
    assert snn.foldable
    assert any("fixed: (any, 3, 24, 24)" in note for note in snn.report.notes) is fixed
    for size in ((24, 24), (31, 17)):
        x = torch.randn(3, 3, *size)
        assert relative(snn.analog(x), model(x)) <= 1e-5
