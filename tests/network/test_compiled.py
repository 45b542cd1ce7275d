"""compile=True gives the answers of a plain run, also after thresholds, sizes and batches change."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("g++", "clang++", "c++")),
    reason="torch.compile needs a C++ compiler on the CPU, and this machine has none",
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        y = self.norm(self.conv(x).relu().flatten(2).transpose(1, 2))
        return {"scores": self.head(y).mean(1), "name": "net"}


@pytest.fixture
def snn() -> spikecast.SpikingNetwork:
    return spikecast.convert(Net().eval(), [torch.randn(3, 2, 6, 6)], Config(num_steps=4, thresholds="quantile"))


# torch's own compiler warns, by the version, of what it will change
@pytest.mark.filterwarnings("ignore")
@needs_compiler
def test_compiled_run_answers_as_a_plain_one(snn) -> None:
    x = torch.randn(5, 2, 6, 6)
    found = snn.run(x, compile=True, max_batch=8)  # two samples a piece, and one left over
    plain = snn.run(x)
    assert found["name"] == "net"
    torch.testing.assert_close(found["scores"], plain["scores"], rtol=1e-4, atol=1e-4)
    snn.set_thresholds({name: 4 * theta for name, theta in snn.thresholds.items()})
    again = snn.run(x[:1], compile=True)["scores"]
    torch.testing.assert_close(again, snn.run(x[:1])["scores"], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(again, plain["scores"][:, :1], rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@needs_compiler
@pytest.mark.parametrize(("dtype", "leak"), [(torch.float32, 0.2), (torch.float64, 0.0)])
def test_neurons_without_a_kernel_keep_the_layout_that_was_promised(dtype, leak) -> None:
    """Convolutions have their channels innermost, and Flatten is compiled for what lies behind the neurons."""
    layers = (nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    model, x = nn.Sequential(*layers).eval().to(dtype), torch.randn(3, 2, 6, 6, dtype=dtype)
    snn = spikecast.convert(model, [x], Config(num_steps=4, burst=1, leak=leak, thresholds="quantile"))
    torch.testing.assert_close(snn.run(x, compile=True), snn.run(x), rtol=1e-4, atol=1e-4)


def test_compiled_run_does_not_take_a_budget(snn) -> None:
    with pytest.raises(ConfigError, match="compile=True with max_memory"):
        snn.run(torch.randn(1, 2, 6, 6), compile=True, max_memory="1GiB")
