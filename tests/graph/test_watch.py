"""Programs that came from a file: what they may take is known before they take it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast.errors import ConfigError, ModelError
from spikecast.graph.execute import run, watch
from spikecast.graph.extent import extent, named
from spikecast.graph.faults import fault, is_by_value
from spikecast.graph.program import Meta, Node, inside, resolve

F = torch.float32
X, ROW = torch.ones(2, 3, 8, 8), torch.ones(5)
INDEX = torch.tensor([0, 1, 1])
CALLS: list[tuple[str, list[Any], dict[str, Any], float]] = [
    # the op, its arguments, and how much larger than the result the bound may be
    ("aten.relu.default", [X], {}, 1),
    ("aten.add.Tensor", [torch.ones(9, 1), torch.ones(1, 7)], {}, 1),
    ("aten.sum.dim_IntList", [torch.ones(4, 0), [1]], {}, 1),
    ("aten.full.default", [[3, 4], 1.0], {}, 1),
    ("aten.expand.default", [ROW, [4, -1]], {}, 1),
    ("aten.repeat.default", [ROW, [3, 2]], {}, 1),
    ("aten.tile.default", [ROW, [3, 2]], {}, 1),
    ("aten.repeat_interleave.self_int", [ROW, 3], {}, 1),
    ("aten.repeat_interleave.self_Tensor", [torch.ones(3), torch.tensor([1, 5, 2])], {}, 2),
    ("aten.arange.start_step", [3, 90, 2], {}, 2),
    ("aten.linspace.default", [0, 1, 9], {}, 1),
    ("aten.eye.m", [3, 4], {}, 1),
    ("aten.cat.default", [[ROW, ROW]], {}, 1),
    ("aten.meshgrid.indexing", [[ROW, ROW]], {"indexing": "ij"}, 1),
    ("aten.diff.default", [ROW, 1, -1, ROW], {}, 2),
    ("aten.constant_pad_nd.default", [X, [1, 2, 3, -1]], {}, 2),
    ("aten.pad.default", [X, [1, 2, 3, 1], "circular"], {}, 2),
    ("aten.reflection_pad2d.default", [X, [1, 2, 3, 4]], {}, 1),
    ("aten.upsample_nearest2d.vec", [X, None, [2.0, 3.0]], {}, 1),
    ("aten.upsample_bilinear2d.default", [X, [16, 4], False, 2.0, 0.5], {}, 2),
    ("aten.adaptive_avg_pool2d.default", [X, [20, 20]], {}, 1),
    ("aten.max_pool2d.default", [X, [3, 3], [1, 1], [1, 1]], {}, 4),
    ("aten.index.Tensor", [X, [None, INDEX, torch.tensor([[0], [1]])]], {}, 1),
    ("aten.index.Tensor", [X, [torch.tensor([True, True])]], {}, 1),
    ("aten.index_select.default", [X, 1, INDEX], {}, 1),
    ("aten.embedding.default", [torch.ones(4, 6), INDEX], {}, 1),
    ("aten.nonzero.default", [X], {}, 1),
    ("aten.unfold.default", [X, 2, 3, 1], {}, 2),
    ("aten.im2col.default", [X, [3, 2], [1, 1], [1, 0], [2, 1]], {}, 1),
    ("aten.col2im.default", [torch.ones(1, 12, 49), [8, 8], [2, 2], [1, 1], [0, 0], [1, 1]], {}, 5),
    ("aten.grid_sampler_2d.default", [X, torch.ones(2, 9, 9, 2), 0, 0, False], {}, 2),
    ("aten.linear.default", [torch.ones(2, 4, 6), torch.ones(5, 6), ROW], {}, 1),
    ("aten.matmul.default", [torch.ones(7, 2, 3), torch.ones(3, 9)], {}, 1),
    ("aten.matmul.default", [torch.ones(4, 1, 2, 2), torch.ones(5, 2, 9)], {}, 3),
    ("aten.mv.default", [torch.ones(4, 5), ROW], {}, 1),
    ("aten.addmm.default", [torch.ones(9), torch.ones(4, 5), torch.ones(5, 9)], {}, 1),
    ("aten.einsum.default", ["...ij,jk->...ik", [torch.ones(2, 3, 4), torch.ones(4, 5)]], {}, 3),
    ("aten.einsum.default", ["i,j,k->ijk", [ROW, ROW, ROW]], {}, 1),
    ("aten.tensordot.default", [torch.ones(4, 5), torch.ones(5, 9), [1], [0]], {}, 4),
    ("aten.bilinear.default", [torch.ones(2, 3), torch.ones(2, 4), torch.ones(5, 3, 4)], {}, 12),
    ("aten.conv2d.default", [X, torch.ones(6, 3, 3, 3), None, [2, 2], [1, 1]], {}, 1),
    ("aten.conv2d.padding", [X, torch.ones(6, 3, 3, 3), None, [1, 1], "same"], {}, 1),
    ("aten.conv_transpose2d.input", [X, torch.ones(3, 2, 3, 3), None, [2, 2], [1, 1], [1, 1]], {}, 2),
]


@pytest.mark.parametrize(("target", "args", "kwargs", "slack"), CALLS)
def test_the_bound_is_one_and_close(target: str, args: list[Any], kwargs: dict[str, Any], slack: float) -> None:
    node = Node("n", target, tuple(args), kwargs)
    bound = extent(node, named(node, args, kwargs))
    made = sum(t.numel() for t in inside(resolve(target)(*args, **kwargs), torch.Tensor))
    made = made // 2 if "meshgrid" in target else made
    assert made <= bound.elements <= slack * made
    assert bound.work >= made


def test_what_a_turned_convolution_is_told_to_add_is_counted() -> None:
    args = [X, torch.ones(3, 2, 3, 3), None, [2, 2], [1, 1], [2**40, 0]]
    node = Node("n", "aten.conv_transpose2d.input", tuple(args))
    assert extent(node, named(node, args, {})).elements > 2**40


def test_products_are_counted() -> None:
    node = Node("n", "aten.mm.default", (torch.ones(7, 8), torch.ones(8, 9)))
    assert extent(node, named(node, node.args, {})).work == 7 * 8 * 9 + 7 * 8 + 8 * 9
    conv = Node("n", "aten.conv2d.default", (X, torch.ones(6, 3, 3, 3)))
    assert extent(conv, named(conv, conv.args, {})).work >= 2 * 6 * 36 * 27


@pytest.mark.parametrize(
    ("target", "args", "parts", "wrong"),
    [
        ("aten.chunk.default", [ROW, 4], 3, False),  # 2, 2 and 1
        ("aten.chunk.default", [ROW, 4], 2, True),
        ("aten.split.Tensor", [ROW, 2], 3, False),
        ("aten.split.Tensor", [ROW, 1], 3, True),
        ("aten.unbind.int", [X, 1], 3, False),
        ("aten.unbind.int", [X.expand(2, 3, 8, 8), 2], 3, True),
        ("aten.tensor_split.sections", [ROW, 2**40], 5, True),
        ("aten.tensor_split.indices", [ROW, [1, 2]], 3, False),
    ],
)
def test_parts_are_counted_before_they_are_made(target: str, args: list[Any], parts: int, wrong: bool) -> None:
    node = Node("n", target, tuple(args), meta=(Meta((1,), F, None),) * parts)
    assert (fault(node, named(node, args, {})) is not None) == wrong


class Divides(nn.Module):
    """Whole numbers by whole numbers, both from the input; and a mask, which makes any number of rows."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) + torch.div(x.long(), (x * 2).long(), rounding_mode="floor")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3)).eval()
    place: Path = tmp_path_factory.mktemp("watch") / "net.spikecast"
    spikecast.convert(model, [torch.rand(2, 4)], spikecast.Config(num_steps=3, thresholds="quantile")).save(place)
    return place


def test_a_form_of_input_is_watched_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Counted(watch.Watch):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self.form)

    monkeypatch.setattr(run, "Watch", Counted)
    network = spikecast.load(path)
    division = Node("n", "aten.div.Tensor", (X, X))
    assert not is_by_value(division, named(division, division.args, {}))  # of real numbers: as safe as their shapes
    answers = [network.run(torch.ones(2, 4)) for _ in range(3)]
    assert len(made) == 2  # what settles, and the steps
    assert all(torch.equal(answers[0], other) for other in answers)
    network.run(torch.ones(3, 4))
    assert len(made) == 4


def test_values_are_looked_at_each_time(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = spikecast.convert(Divides().eval(), [torch.rand(4, 6) + 1], spikecast.Config(thresholds="quantile"))
    network.save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    good = torch.full((4, 6), 3.0)
    assert torch.equal(loaded.run(good), network.run(good))
    for bad in (0.1, -0.6):
        with pytest.raises(ModelError, match="a division of whole numbers by 0 or -1"):
            loaded.run(torch.full((4, 6), bad))
    assert torch.equal(loaded.run(good), network.run(good))


def test_the_limit_can_be_lifted(path: Path) -> None:
    x = torch.ones(2, 4)
    with pytest.raises(
        ModelError, match=r"may take 512 bytes beside .*, and max_memory is 600; run fewer .* max_memory="
    ):
        spikecast.load(path, max_memory=600).run(x)
    free, narrow = spikecast.load(path, max_memory=None), spikecast.load(path, max_memory="2MB")
    assert torch.equal(free.run(x), narrow.run(x))
    with pytest.raises(
        ModelError, match="the answers after all steps take 4,800,000 bytes, and max_memory is 2,000,000"
    ):
        narrow.run(torch.ones(400, 4), num_steps=1000)
    assert free.run(torch.ones(400, 4), num_steps=1000).shape == (1000, 400, 3)
    with pytest.raises(ConfigError, match="max_memory='lots' must be"):
        spikecast.load(path, max_memory="lots")


def test_all_ways_to_run_are_those_of_the_converted_network(path: Path) -> None:
    network, free = spikecast.load(path), spikecast.load(path, max_memory=None)
    x = torch.rand(5, 4)
    for way in (
        lambda snn: snn(x),
        lambda snn: snn.run(x, max_batch=1),
        lambda snn: snn.run(x, max_memory="50kB"),
        lambda snn: torch.stack([answer for _, answer in snn.steps(x)]),
        lambda snn: snn.anytime(x, confidence=0.6)[0],
        lambda snn: snn.record(x)[next(iter(snn.sites))].estimates,
    ):
        assert torch.equal(way(network), way(free))
