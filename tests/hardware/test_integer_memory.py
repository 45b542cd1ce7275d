"""What a chip stores: registers that neurons need, read-outs that spikes reach, weights that anything passes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from spikecast import Config, convert
from spikecast.hardware.integer.network import IntegerNetwork
from tests.nets import relative


def test_only_rectifying_neurons_keep_their_estimate() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3)).eval()
    memory = IntegerNetwork(convert(model, [torch.randn(8, 4)], Config(num_steps=2, burst=1))).memory()
    # the ReLU's neurons, what the host reads for the GELU, the identity neurons behind it, the answer
    assert [layer.registers for layer in memory.layers.values()] == [2, 1, 1, 1]


@pytest.mark.parametrize("ceiling", [False, True])
def test_neurons_that_never_fall_have_one_register(ceiling) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU6() if ceiling else nn.ReLU(), nn.Linear(6, 3)).eval()
    chip = IntegerNetwork(convert(model, [torch.randn(8, 4)], Config(num_steps=2, coding="rate", signed=False)))
    chip.run(torch.randn(8, 4))
    hidden, answer = chip.memory().layers.values()
    assert (hidden.registers, answer.registers) == (2 if ceiling else 1, 1)
    assert sorted(chip.report.used) == ["1 estimate"] * ceiling + ["1 membrane", "linear_1 read-out"]


class Normed(nn.Module):
    """What the first norm reads is there before any spike; what the second one reads comes from neurons."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.hidden, self.second, self.out = (
            nn.LayerNorm(4),
            nn.Linear(4, 5),
            nn.LayerNorm(5),
            nn.Linear(5, 3),
        )

    def forward(self, x):
        return self.out(self.second(self.hidden(self.first(2 * x))))


def test_read_outs_that_no_spike_reaches_are_left_out() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    snn = convert(Normed().eval(), [x], Config(num_steps=4, thresholds="quantile"))
    chip = IntegerNetwork(snn, weight_bits=16, membrane_bits=40)
    assert "mul" in chip.receivers  # the host works it out all the same
    names = [*snn.sites, "linear_1 read-out", "linear read-out"]
    assert list(chip.memory().layers) == list(chip.weights()) == names
    assert relative(chip.run(x), snn.run(x)) < 0.01
    assert {name.removesuffix(" membrane") for name in chip.report.used} == set(names)


class Recurrent(nn.Module):
    """The answer reads the last of four places."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.head = nn.RNN(4, 6, nonlinearity="relu", batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.line(x)[0][:, -1])


def test_a_recurrent_layer_is_there_once_for_each_place() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 4, 4)
    snn = convert(Recurrent().eval(), [x], Config(num_steps=4, thresholds="quantile", granularity="layer"))
    chip = IntegerNetwork(snn, weight_bits=16, membrane_bits=40)
    assert [layer.weights for layer in chip.memory().layers.values()] == [0, 36, 36, 36, 18]
    assert relative(chip.run(x), snn.run(x)) < 0.01
    snn.set_thresholds({name: torch.full_like(t, 2.0) for name, t in snn.thresholds.items()})
    _, second, third, fourth, _ = IntegerNetwork(snn).weights().values()
    for other in (third, fourth):  # with equal thresholds a chip can share them
        assert torch.equal(second.synapses[0].weight, other.synapses[0].weight)
        assert torch.equal(second.synapses[0].exponent, other.synapses[0].exponent)
