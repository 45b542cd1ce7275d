"""A layer and the adapter beside it are one layer; nothing else is merged."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config, convert
from tests.nets import relative


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter beside it, as peft's LoRA has it where it is not merged."""

    def __init__(self, base: nn.Module, *, bias: bool = False) -> None:
        super().__init__()
        self.base_layer, self.drop = base, nn.Dropout(0.5)
        self.lora_a, self.lora_b = nn.Linear(6, 2, bias=bias), nn.Linear(2, 6, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora_b(self.lora_a(self.drop(x))) * 2.0


class Shown(Adapted):
    """Shows what the adapter adds, so that it must be computed by itself."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        added = self.lora_b(self.lora_a(x))
        return self.base_layer(x) + added, added


X = torch.randn(8, 6)


def ops(snn: spikecast.SpikingNetwork) -> list[str]:
    return [row.target.split(".")[1] for row in snn.report.rows]


@pytest.mark.parametrize(
    "layer",
    [
        Adapted(nn.Linear(6, 6)),
        Adapted(nn.Linear(6, 6, bias=False)),
        Adapted(nn.Linear(6, 6), bias=True),
        Adapted(Adapted(nn.Linear(6, 6)), bias=True),
    ],
    ids=["plain", "no bias", "biases", "two"],
)
def test_an_adapter_is_merged(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), layer, nn.ReLU(), nn.Linear(6, 3)).eval()
    snn = convert(model, [X], Config(num_steps=2, thresholds="quantile"))
    assert ops(snn) == ["linear", "relu", "linear", "relu", "linear"]
    assert snn.report.rows[2].scope in ("2.base_layer", "2.base_layer.base_layer")
    assert list(snn.sites) == ["1", "3"]
    assert relative(snn.analog(X), model(X)) < 1e-6


def test_what_others_read_is_not_merged() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), Shown(nn.Linear(6, 6))).eval()
    snn = convert(model, [X], Config(num_steps=2, thresholds="quantile"))
    assert ops(snn) == ["linear", "relu", "linear", "linear", "linear", "add"]
    assert relative(snn.analog(X), model(X)) < 1e-6


def test_maps_of_different_inputs_are_not_merged() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x.relu()) + self.b(x.tanh())

    model = Two().eval()
    snn = convert(model, [X], Config(num_steps=2, thresholds="quantile"))
    assert sorted(ops(snn)) == ["add", "linear", "linear", "relu", "tanh"]


def test_two_of_low_rank_are_not_merged() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Sequential(nn.Linear(6, 1), nn.Linear(1, 6)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) + self.b(x)

    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), Two()).eval()
    snn = convert(model, [X], Config(num_steps=2, thresholds="quantile"))
    assert ops(snn) == ["linear", "relu", "linear", "linear", "linear", "linear", "add"]


def test_one_adapted_layer_after_another() -> None:
    model = nn.Sequential(Adapted(nn.Linear(6, 6)), Adapted(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 3)).eval()
    snn = convert(model, [X], Config(num_steps=2, thresholds="quantile"))
    assert ops(snn) == ["linear", "linear", "relu", "linear"]
    assert relative(snn.analog(X), model(X)) < 1e-6
