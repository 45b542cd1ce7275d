"""The captured graph is held against the model before anything else is done with it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from spikecast import convert
from spikecast.conversion import prepare
from spikecast.errors import CaptureError


class Chaos(nn.Module):
    """Doubles the distance of two near inputs many times; its BatchNorm is folded, which rounds otherwise."""

    def __init__(self, wrong: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.norm.running_mean, self.norm.running_var = torch.rand(6), torch.rand(6) + 0.5
        self.wrong = wrong

    def forward(self, x):
        x = self.norm(self.first(x)).sigmoid()
        for _ in range(17):
            x = 4 * x * (1 - x)
        if not torch.compiler.is_exporting():
            x = x + self.wrong
        return self.last(x)


class Noise(nn.Sequential):
    def forward(self, x):
        return super().forward(x) * (1 + 0.01 * torch.rand_like(x[:, :1]))


def test_a_model_that_amplifies_rounding_is_taken() -> None:
    model, x = Chaos().eval(), torch.randn(64, 6)
    with torch.no_grad():
        assert prepare._own_rounding(model, ((x,), {}), [model(x)]) > 1e-3
    convert(model, [x])


@pytest.mark.parametrize("model", [Chaos(wrong=0.5), Noise(nn.Linear(6, 3))], ids=["another function", "noise"])
def test_a_graph_that_answers_otherwise_is_refused(model) -> None:
    with pytest.raises(CaptureError, match=r"answers otherwise than the model \(relative error"):
        convert(model.eval(), [torch.randn(64, 6)])
