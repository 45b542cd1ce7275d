"""Numbers of elements, grids of positions, and bounds that are infinite."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from spikecast import Config, convert, load
from spikecast.errors import ModelError
from spikecast.graph.capture.clean import clean
from spikecast.graph.capture.export import capture
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Node, Ref
from tests.nets import never, relative

SMALL = Config(num_steps=2, burst=1, thresholds="quantile")


class Bounded(nn.Module):
    """Counts elements, makes a grid of positions, and has bounds that are infinite until someone sets them."""

    low: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("low", torch.tensor(-torch.inf))

    def forward(self, x):
        rows, columns = torch.meshgrid(torch.arange(x.shape[1]), torch.arange(x.shape[2]), indexing="ij")
        x = torch.maximum(self.linear(x), self.low).relu() + rows + columns
        return x / x.numel()


def test_numbers_of_elements_grids_and_infinite_bounds(tmp_path) -> None:
    model, x = Bounded().eval(), torch.randn(3, 5, 4)
    snn = convert(model, [x], SMALL)
    for asked in (x, torch.randn(2, 7, 4)):
        assert relative(snn.analog(asked), model(asked).detach()) < 1e-6
    assert len(snn.plans) == 1  # any size
    snn.save(tmp_path / "a.spikecast")
    assert torch.equal(load(tmp_path / "a.spikecast")(x), snn(x))


def test_statistics_that_are_infinite_are_refused() -> None:
    norm = nn.BatchNorm1d(4)
    norm.running_var = torch.tensor([torch.inf, 1.0, 1.0, 1.0])
    model = nn.Sequential(nn.Linear(4, 4), norm).eval()
    with pytest.raises(ModelError, match=r"weight '1\.running_var' holds NaN or inf"):
        convert(model, [torch.randn(2, 4)], SMALL)


def test_the_number_of_elements_becomes_a_product_of_sizes() -> None:
    """As torch.export writes it for some models, DINOv3 among them."""
    program = capture(nn.ReLU().eval(), (torch.randn(3, 5),))
    (x,) = program.inputs
    counted = Node("counted", "aten.sym_numel.default", (Ref(x.name),))
    scaled = Node("scaled", "aten.mul.Scalar", (Ref(x.name), Ref("counted")), {}, "", x.meta)
    made = clean(program.with_nodes([counted, scaled], tensors={}, outputs=(Ref("scaled"),)))
    assert {node.target for node in made.nodes} == {"aten.sym_size.int", "size.mul", "aten.mul.Scalar"}
    for shape in ((3, 5), (2, 7)):
        execution = Execution(made, made.tensors)
        execution.start([torch.ones(shape)])
        (found,) = execution.advance(Neurons(never))
        assert float(found[0, 0]) == shape[0] * shape[1]


class Positions(nn.Module):
    """Positions as one-hot codes times a table, as vision models of Gemma have them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(7, 4)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        index = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1) % 5
        codes = nn.functional.one_hot(index, num_classes=7)
        return self.head(torch.relu(x + codes.to(x.dtype) @ self.table)), codes


def test_one_hot_codes_are_opened(tmp_path) -> None:
    torch.manual_seed(0)
    model, x = Positions().eval(), torch.randn(2, 6, 4)
    snn = convert(model, [x], Config(num_steps=4, thresholds="quantile"))
    assert "aten.one_hot" not in {node.op for node in snn.plan.program.nodes}
    snn.save(tmp_path / "net")
    for network in (snn, load(tmp_path / "net")):
        assert torch.equal(network(x)[1], model(x)[1])
        assert torch.equal(network.analog(x)[0], model(x)[0])
    assert torch.equal(load(tmp_path / "net")(x)[0], snn(x)[0])
