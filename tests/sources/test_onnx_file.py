"""onnx:FILE: what torch wrote reads back with the same answers, and older files, and files that lie."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import spikecast
from spikecast import Config
from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.sources.models import open_model
from spikecast.sources.onnx_file import read_onnx

onnx = pytest.importorskip("onnx", reason="reading ONNX needs onnx, which the extra onnx brings")


class Net(nn.Module):
    """A convolution, BatchNorm, a pool, attention, LayerNorm, GELU, and reshapes by the size of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.layer, self.qkv, self.head = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        x = self.layer(x.flatten(2).transpose(1, 2))
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        return self.head(F.gelu(x).mean(1))


def written(model: nn.Module, x: Tensor, path: Path) -> Path:
    pytest.importorskip("onnxscript", reason="torch writes ONNX with onnxscript, which the extra onnx brings")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Any = torch.onnx.export(
            model, (x,), dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False
        )
    made.save(path, external_data=True)
    return path


def test_what_torch_wrote_converts_and_is_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Net().eval(), torch.rand(3, 3, 16, 16)
    path = written(model, x, tmp_path / "net.onnx")
    assert len(list(tmp_path.iterdir())) == 2  # the weights lie beside it
    found = open_model(f"onnx:{path}")
    assert found.preparation.size == 16
    more = torch.rand(5, 3, 16, 16)
    torch.testing.assert_close(found.model(more), model(more).detach(), rtol=1e-5, atol=1e-5)
    snn = spikecast.convert(found.model, [x], Config(num_steps=2, thresholds="quantile"))
    assert snn.foldable
    assert len(snn.sites) == len(spikecast.convert(model, [x], Config(thresholds="quantile")).sites)
    snn.save(tmp_path / "net.spikecast")
    assert torch.equal(spikecast.load(tmp_path / "net.spikecast").run(more), snn.run(more))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "size", "options"),
    [
        ("torchvision:resnet18", 32, {}),
        ("torchvision:shufflenet_v2_x0_5", 32, {}),
        ("torchvision:mobilenet_v3_small", 32, {}),
        ("timm:vit_tiny_patch16_224", 32, {"img_size": 32, "patch_size": 8, "depth": 2}),
        ("timm:convnext_atto", 32, {}),
    ],
)
def test_networks_of_the_zoos(spec: str, size: int, options: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = open_model(spec, options={"num_classes": 7} | options).model, torch.rand(3, 3, size, size)
    found, more = read_onnx(written(model, x, tmp_path / "net.onnx")), torch.rand(5, 3, size, size)
    with torch.no_grad():
        torch.testing.assert_close(found(more), model(more), rtol=1e-5, atol=1e-5)
    snn = spikecast.convert(found, [x], Config(thresholds="quantile"))
    assert snn.foldable
    assert relative_to(snn.analog(more), model(more).detach()) < 1e-5


def relative_to(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


# -- files made by hand

W = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def file(path: Path, nodes: list[Any], weights: dict[str, Any], opset: int = 13, shape: Any = ("N", 6)) -> Path:
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    stored = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    ends = [helper.make_tensor_value_info(n, floats, s) for n, s in (("x", shape), ("y", None))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), str(path))
    return path


node = onnx.helper.make_node


def test_an_older_file_works_out_its_shapes(tmp_path: Path) -> None:
    """As torch wrote them until 2.4: Shape, Gather, Unsqueeze and Concat before a Reshape; axes that are attributes."""
    nodes = [
        node("Gemm", ["x", "w"], ["a"], transB=1, alpha=0.5),
        node("Clip", ["a"], ["b"], min=0.0, max=6.0),
        node("Shape", ["x"], ["s"]),
        node("Constant", [], ["zero"], value=onnx.numpy_helper.from_array(np.array(0))),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n"], ["n1"], axes=[0]),
        node("Concat", ["n1", "two"], ["to"], axis=0),
        node("Reshape", ["b", "to"], ["c"]),
        node("Softmax", ["c"], ["d"], axis=1),
        node("ReduceMean", ["d"], ["e"], axes=[2], keepdims=0),
        node("Slice", ["e"], ["y"], starts=[0], ends=[9223372036854775807], axes=[1]),
    ]
    model = read_onnx(file(tmp_path / "old.onnx", nodes, {"w": W, "two": np.array([2, 2])}, opset=9))
    x = torch.randn(3, 6)
    before = (0.5 * x @ torch.from_numpy(W).t()).clamp(0, 6)
    torch.testing.assert_close(model(x), before.softmax(1).reshape(3, 2, 2).mean(2))
    assert spikecast.convert(model, [x], Config(thresholds="quantile")).foldable


def test_padding_that_is_not_even(tmp_path: Path) -> None:
    kernel = np.ones((1, 1, 3, 3), np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[0, 1, 2, 1]),
        node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    ]
    model, x = read_onnx(file(tmp_path / "p.onnx", nodes, {"w": kernel}, shape=("N", 1, 5, 5))), torch.randn(2, 1, 5, 5)
    conv = F.conv2d(F.pad(x, (1, 1, 0, 2)), torch.ones(1, 1, 3, 3))
    torch.testing.assert_close(model(x), F.max_pool2d(F.pad(conv, (0, 1, 0, 1), value=-torch.inf), 2))


@pytest.mark.parametrize("wide", [[0], 0])
def test_sizes_that_became_floats_are_divided_as_floats(wide: Any, tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["s"], start=1),
        node("Shape", ["w"], ["four"], end=1),
        node("Cast", ["s"], ["f"], to=1),
        node("Cast", ["four"], ["g"], to=1),
        node("Div", ["f", "g"], ["h"]),
        node("Gather", ["h", "zero"], ["scale"]),
        node("Mul", ["x", "scale"], ["a"]),
        node("Div", ["s", "four"], ["whole"]),
        node("Mul", ["a", "whole"], ["b"]),
        node("Cast", ["h"], ["cut"], to=7),
        node("Mul", ["b", "cut"], ["y"]),
    ]
    weights = {"w": W, "zero": np.array(wide)}
    x = torch.randn(2, 6)
    torch.testing.assert_close(read_onnx(file(tmp_path / "d.onnx", nodes, weights, opset=15))(x), x * 1.5)


def test_a_tensor_in_an_attribute_lies_beside_the_file(tmp_path: Path) -> None:
    seven = onnx.numpy_helper.from_array(np.array([7.0], np.float32), "seven")
    onnx.external_data_helper.set_external_data(seven, "seven.bin", 0, 4)
    (tmp_path / "seven.bin").write_bytes(seven.raw_data)
    seven.ClearField("raw_data")
    nodes = [node("ConstantOfShape", ["six"], ["c"], value=seven), node("Add", ["x", "c"], ["y"])]
    model = read_onnx(file(tmp_path / "a.onnx", nodes, {"six": np.array([6])}))
    torch.testing.assert_close(model(torch.zeros(2, 6)), torch.full((2, 6), 7.0), check_dtype=False)


@pytest.mark.parametrize("op", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"])
def test_a_number_before_the_data(op: str, tmp_path: Path) -> None:
    nodes = [node(op, ["half", "x"], ["a"]), node("Cast", ["a"], ["y"], to=1)]
    model = read_onnx(file(tmp_path / "n.onnx", nodes, {"half": np.array(0.5, np.float32)}))
    expected = {"Less": [0, 0, 1], "LessOrEqual": [0, 1, 1], "Greater": [1, 0, 0], "GreaterOrEqual": [1, 1, 0]}
    row = torch.tensor(expected.get(op, [0, 1, 0]) * 2, dtype=torch.float32)
    torch.testing.assert_close(model(torch.tensor([[0.0, 0.5, 1.0] * 2])), row[None])


@pytest.mark.parametrize(("op", "expected"), [("Sqrt", 6**0.5), ("Pow", 36.0), ("Floor", 1.0), ("Ceil", 2.0)])
def test_arithmetic_on_a_size(op: str, expected: float, tmp_path: Path) -> None:
    """Of the six columns, or of a quarter of them."""
    nodes = [
        node("Shape", ["x"], ["both"]),
        node("Gather", ["both", "one"], ["s"]),
        node("Cast", ["s"], ["f"], to=1),
        node("Div", ["f", "four"], ["h"]),
        node(op, ["h" if op in ("Floor", "Ceil") else "f", *(["two"] if op == "Pow" else [])], ["r"]),
        node("Mul", ["x", "r"], ["y"]),
    ]
    weights = {"one": np.array(1), "four": np.array(4, np.float32), "two": np.array(2, np.float32)}
    model = read_onnx(file(tmp_path / "s.onnx", nodes, weights, opset=15))
    torch.testing.assert_close(model(torch.ones(2, 6)), torch.full((2, 6), expected))


@pytest.mark.parametrize("shape", [(0, 6), (-1, 6), None])
def test_sizes_that_the_file_leaves_open(shape: Any, tmp_path: Path) -> None:
    x = torch.randn(3, 6)
    assert torch.equal(read_onnx(file(tmp_path / "net.onnx", RELU, {}, shape=shape))(x), x.relu())


def test_a_constant_of_the_batchs_shape_leaves_the_batch_free(tmp_path: Path) -> None:
    seven = onnx.numpy_helper.from_array(np.array([7.0], np.float32))
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["c"], value=seven),
        node("Add", ["x", "c"], ["y"]),
    ]
    model, x = read_onnx(file(tmp_path / "c.onnx", nodes, {})), torch.randn(3, 6)
    assert torch.equal(model(x), x + 7)
    traced = torch.export.export(model, (x,), dynamic_shapes=(({0: torch.export.Dim("batch")},),)).module()
    more = torch.randn(5, 6)
    assert torch.equal(traced(more), more + 7)


@pytest.mark.parametrize(("mode", "how"), [("reflect", "reflect"), ("edge", "replicate")])
def test_padding_of_one_axis(mode: str, how: str, tmp_path: Path) -> None:
    nodes = [node("Pad", ["x", "pads"], ["y"], mode=mode)]
    pads = {"pads": np.array([0, 0, 0, 1, 0, 0, 0, 2])}
    model, x = read_onnx(file(tmp_path / "p.onnx", nodes, pads, shape=("N", 1, 5, 5))), torch.randn(2, 1, 5, 5)
    assert torch.equal(model(x), F.pad(x, (1, 2, 0, 0), how))


def test_a_max_pool_padded_beyond_half_its_kernel(tmp_path: Path) -> None:
    nodes = [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 4], pads=[2, 1, 2, 1])]
    model, x = read_onnx(file(tmp_path / "m.onnx", nodes, {}, shape=("N", 1, 5, 5))), torch.randn(2, 1, 5, 5)
    assert torch.equal(model(x), F.max_pool2d(F.pad(x, (1, 1, 2, 2), value=-torch.inf), (3, 4), 1))


RELU = [node("Relu", ["x"], ["y"])]


@pytest.mark.parametrize(
    ("nodes", "settings", "message"),
    [
        ([node("GridSample", ["x", "x"], ["y"])], {}, "ops GridSample are not read; give the model itself"),
        ([node("Relu", ["x"], ["y"], domain="mine")], {}, "op Relu of mine is not ONNX's own"),
        (RELU, {"opset": 6}, "opset 6 is too old"),
        ([node("Add", ["x", "nothing"], ["y"])], {}, "op Add reads 'nothing', which nothing before it makes"),
        (RELU, {"weights": {"w": np.array(["a"])}}, "constant 'w' has the type"),
    ],
)
def test_what_is_not_read(nodes: list[Any], settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        read_onnx(file(tmp_path / "net.onnx", nodes, **{"weights": {}, **settings}))
    assert "\n" not in str(caught.value)


def test_bad_files(tmp_path: Path, monkeypatch) -> None:
    path = file(tmp_path / "net.onnx", RELU, {"w": W})
    with pytest.raises(DataError, match="there is no file"):
        open_model(f"onnx:{tmp_path / 'none.onnx'}")
    with pytest.raises(ConfigError, match="is as it is; leave num_classes out"):
        open_model(f"onnx:{path}", options={"num_classes": 3})
    with pytest.raises(DataError, match=r"input 'x' has shape \(2, 5\), in the file \(free, 6\)"):
        read_onnx(path)(torch.rand(2, 5))
    (tmp_path / "cut.onnx").write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="cannot be read as ONNX") as caught:
        read_onnx(tmp_path / "cut.onnx")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr("spikecast.sources.onnx_file.LARGEST", 10)
    with pytest.raises(DataError, match="larger than 2 GB"):
        read_onnx(path)


@pytest.mark.parametrize(
    ("location", "length", "message"),
    [
        ("../secret", 96, "which is no file of its folder"),
        ("link", 96, "which is no file of its folder"),
        ("", 96, "which is no file of its folder"),
        ("w.bin", 97, "lie beyond the end of w.bin"),
        ("w.bin", 92, "cannot be read as ONNX"),
    ],
)
def test_weights_stay_inside_the_folder(location: str, length: int, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(W.tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "w.bin").write_bytes(W.tobytes())
    path = file(folder / "net.onnx", [node("MatMul", ["x", "w"], ["y"])], {"w": np.ascontiguousarray(W.T)})
    model = onnx.load(str(path))
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], location, 0, length)
    model.graph.initializer[0].ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(DataError, match=message):
        read_onnx(path)
