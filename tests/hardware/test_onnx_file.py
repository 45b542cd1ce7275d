"""A network as an ONNX file: onnxruntime answers as the network does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError, MissingExtraError, ModelError
from spikecast.hardware import IntegerNetwork
from spikecast.hardware.onnx_file import export_onnx


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, x: Tensor, scale: float = 1.0) -> dict[str, object]:
        return {"scores": self.head(torch.relu(self.conv(x)).mean((2, 3))) * scale, "name": "net"}


@pytest.fixture(scope="module")
def snn() -> spikecast.SpikingNetwork:
    torch.manual_seed(0)
    return spikecast.convert(Net().eval(), [torch.rand(3, 2, 6, 6)], Config(num_steps=2, thresholds="quantile"))


def test_onnxruntime_answers_as_the_network(snn, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="torch writes ONNX with onnxscript, which the extra onnx brings")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the file; the extra dev brings it")
    loaded = spikecast.load(_saved(snn, tmp_path))  # the file is all that is needed: no model, no data
    written = export_onnx(loaded, tmp_path / "net.onnx")
    assert (written.num_steps, written.inputs, written.outputs) == (2, ("input_0",), ("output_0",))
    session = runtime.InferenceSession(str(tmp_path / "net.onnx"))
    for batch in (1, 7):
        x = torch.rand(batch, 2, 6, 6)
        (found,) = session.run(None, {"input_0": x.numpy()})
        # in another order of sums float32 rounds otherwise; no spike lies so near to an edge that it falls otherwise
        torch.testing.assert_close(torch.from_numpy(found), snn(x)["scores"], rtol=1e-5, atol=1e-6)
        assert not torch.allclose(torch.from_numpy(found), snn.run(x)["scores"][0], rtol=1e-5, atol=1e-6)


def _saved(snn: spikecast.SpikingNetwork, folder: Path) -> Path:
    snn.save(folder / "net.spikecast")
    return folder / "net.spikecast"


def test_refusals(snn, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"onnx and onnxscript; pip install 'spikecast\[onnx\]'"):
        export_onnx(snn, tmp_path / "net.onnx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    parts = spikecast.convert(Net().eval(), [torch.rand(3, 2, 6, 6)], Config(thresholds="quantile"), regions=["conv"])
    with pytest.raises(ModelError, match="ONNX needs a network that was converted whole"):
        export_onnx(parts, tmp_path / "net.onnx")
    with pytest.raises(ConfigError, match=r"net.nir: the name must end in .onnx; give such a name$"):
        export_onnx(snn, tmp_path / "net.nir")
    for other in (IntegerNetwork(snn), Net()):
        said = (
            f"^ONNX is written of a network that convert made, and this is {type(other).__name__}; give that network$"
        )
        with pytest.raises(ModelError, match=said):
            export_onnx(other, tmp_path / "net.onnx")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
