"""Sizes that follow from the input's by short formulas are free; long ones are fixed, and the report says so."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from spikecast import Config, convert, load
from tests.nets import relative

SMALL = Config(num_steps=2, burst=1, thresholds="quantile")


class SamePadding(nn.Sequential):
    """Convolutions whose padding follows from the size of what they get, as TensorFlow's."""

    def forward(self, x):
        for conv in self:
            wide = [max((math.ceil(size / 2) - 1) * 2 + 3 - size, 0) for size in x.shape[-2:]]
            x = conv(F.pad(x, (wide[1] // 2, wide[1] - wide[1] // 2, wide[0] // 2, wide[0] - wide[0] // 2))).relu()
        return x.mean((2, 3))


def test_sizes_by_short_formulas_are_free(tmp_path: Path) -> None:
    model = SamePadding(nn.Conv2d(3, 4, 3, stride=2)).eval()
    snn = convert(model, [torch.randn(2, 3, 12, 14)], SMALL)
    assert snn.report.notes == ()
    for size in ((12, 14), (20, 8)):
        x = torch.randn(3, 3, *size)
        assert relative(snn.analog(x), model(x)) <= 1e-5
    assert len(snn.plans) == 1
    snn.save(tmp_path / "net")
    assert torch.equal(load(tmp_path / "net").run(x), snn.run(x))


def test_sizes_by_long_formulas_are_fixed() -> None:
    model = SamePadding(*(nn.Conv2d(3, 3, 3, stride=2) for _ in range(2))).eval()
    snn = convert(model, [torch.randn(2, 3, 24, 24)], SMALL)
    assert snn.plan.program.inputs[0].dims[1:] == (3, 24, 24)
    assert snn.foldable
    assert any("fixed: (any, 3, 24, 24)" in note for note in snn.report.notes)
    for size in ((24, 24), (31, 17)):
        x = torch.randn(3, 3, *size)
        assert relative(snn.analog(x), model(x)) <= 1e-5
    assert len(snn.plans) == 2
