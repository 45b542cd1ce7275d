"""One count of products: the report's, for one sample, is the meter's; where nobody counts, nobody gives a ratio."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import spikecast
from spikecast import Config, measure
from spikecast.errors import ConfigError, ModelError
from spikecast.experiments.compare import compare
from spikecast.experiments.sweep import sweep_of
from spikecast.measure import Energy, evaluate
from spikecast.network.counting.tally import Tally
from spikecast.network.report import Report
from spikecast.page import ReportData, build

SETTINGS = Config(num_steps=2, num_levels=2, thresholds="quantile")
BATCH, LENGTH, WIDTH = 3, 5, 8


class MergedBlock(nn.Module):
    """A block as GPT-2 has it: the batch is merged with the places for addmm, and split again."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(WIDTH, 12)), nn.Parameter(torch.randn(12, WIDTH))
        self.bias = nn.Parameter(torch.randn(12))

    def forward(self, x: Tensor) -> Tensor:
        flat = functional.layer_norm(x, (WIDTH,)).view(-1, WIDTH)
        hidden = functional.gelu(torch.addmm(self.bias, flat, self.up)).view(*x.shape[:2], 12)
        q = hidden.view(*x.shape[:2], 2, 6).transpose(1, 2)
        mixed = (torch.softmax(q @ q.transpose(-1, -2), -1) @ q).transpose(1, 2).reshape(-1, 12)
        return x + (mixed @ self.down).view(x.shape)


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        heads = torch.einsum("bnd,dhk->bhnk", functional.gelu(x), self.weight)
        return torch.einsum("bhik,bhjk->bij", heads, functional.silu(heads))


class Recurrent(nn.Module):
    """A recurrent layer and a head on all its outputs."""

    def __init__(self, inner: nn.RNNBase, out: int) -> None:
        super().__init__()
        self.inner, self.head = inner, nn.Linear(out, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0])


def encoder(batch_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=batch_first)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


ENCODER = LENGTH * WIDTH * (3 * WIDTH + 2 * LENGTH + WIDTH + 2 * 16)
# At the first place of a sequence there is no state yet, and nothing to multiply.
LSTM = sum(2 * (LENGTH * 24 * inputs + (LENGTH - 1) * 24 * 2 + LENGTH * 2 * 6) for inputs in (WIDTH, 4))
GRU = LENGTH * 18 * WIDTH + (LENGTH - 1) * 18 * 6
# The network, the sizes of its input with its batch axis, and its products of one sample by hand.
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "borders": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, stride=2, padding=1)),
        (BATCH, 2, 6, 6),
        2 * 4 * (6 * 3 - 2) ** 2 + 4 * 3 * (3 * 3 - 1) ** 2,
    ),
    "encoder": (lambda: encoder(True), (BATCH, LENGTH, WIDTH), ENCODER),
    "encoder, batch second": (lambda: encoder(False), (LENGTH, BATCH, WIDTH), ENCODER),
    "merged batch": (MergedBlock, (BATCH, LENGTH, WIDTH), LENGTH * (2 * WIDTH * 12 + 2 * LENGTH * 12)),
    "einsum": (Einsum, (BATCH, LENGTH, WIDTH), LENGTH * WIDTH * 6 + LENGTH * LENGTH * 6),
    "LSTM": (
        lambda: Recurrent(nn.LSTM(WIDTH, 6, 2, bidirectional=True, proj_size=2, batch_first=True), 4),
        (BATCH, LENGTH, WIDTH),
        LSTM + LENGTH * 4 * 3,
    ),
    "GRU, batch second": (lambda: Recurrent(nn.GRU(WIDTH, 6), 6), (LENGTH, BATCH, WIDTH), GRU + LENGTH * 6 * 3),
    "transposed": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 1), nn.ReLU(), nn.ConvTranspose2d(4, 3, 2, stride=2, padding=1)),
        (BATCH, 2, 4, 4),
        2 * 4 * 16 + 4 * 3 * 6**2,  # 8 rows of outputs and as many of products, of which a border row falls away twice
    ),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")  # torch's own, of the model
@pytest.mark.parametrize("name", NETS)
def test_report_and_meter_count_the_same_products(name: str) -> None:
    build_net, shape, by_hand = NETS[name]
    x = torch.randn(shape)
    snn = spikecast.convert(build_net().eval(), [x], SETTINGS)
    assert snn.report.total_macs == by_hand
    assert measure.energy(snn, [x]).macs == BATCH * by_hand
    rows = {row.op: row.macs for row in snn.report.rows if row.macs}
    assert rows == dict(snn.plan.program.flow.macs)  # neurons change no product


def test_pinned_batch_counts_one_sample() -> None:
    class Pinned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(functional.gelu(x)).reshape(BATCH, 5)

    x = torch.randn(BATCH, 4)
    snn = spikecast.convert(Pinned().eval(), [x], SETTINGS)
    assert not snn.plan.program.batch_symbols
    assert snn.report.total_macs == 20
    assert measure.energy(snn, [x]).macs == BATCH * 20


class Distances(nn.Module):
    """An op with weights that the table of roles does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.out = nn.Parameter(torch.randn(6, 4)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cdist(x, self.points)[:, -1])


class OwnKernel(nn.Module):
    """A convolution whose kernel is made of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        kernel = functional.gelu(x).mean(0).reshape(1, 5, 4)[:, :, :2]
        return self.out(functional.conv1d(x, kernel)).squeeze(1)


UNCOUNTED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "distances": (Distances, "aten.cdist"),
    "kernel": (OwnKernel, "aten.conv1d"),
}


@pytest.fixture(params=UNCOUNTED)
def uncounted(request: pytest.FixtureRequest) -> tuple[nn.Module, spikecast.SpikingNetwork, Tensor, str]:
    make, op = UNCOUNTED[request.param]
    model, x = make().eval(), torch.randn(BATCH, LENGTH, 4)
    return model, spikecast.convert(model, [x], SETTINGS), x, op


def test_no_share_where_products_are_not_counted(uncounted) -> None:
    _, snn, _, op = uncounted
    report = snn.report
    (name,) = snn.plan.program.flow.uncounted
    assert snn.plan.program.flow.by_name[name].op == op
    assert report.spiking_share is None
    assert f"those of {op}, which are not counted" in report.summary()
    assert "%" not in report.summary()
    assert any(note.startswith(f"the products of {op} are not counted") for note in report.notes)
    table, _, _ = str(report).partition("\n\n")
    (row,) = (line for line in table.splitlines() if "not counted" in line)
    assert row.startswith(op.removeprefix("aten."))
    again = Report.from_json(json.loads(json.dumps(report.to_json())))
    assert again == report
    assert again.to_json()["spiking_share"] is None


def test_no_ratio_where_products_are_not_counted(uncounted) -> None:
    _, snn, x, op = uncounted
    with pytest.warns(UserWarning, match=f"products of {op} are not counted, so there is no ratio.*; write") as caught:
        found = measure.energy(snn, [x, x])
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert caught[0].filename == __file__
    assert found.ratio is None
    assert found.under("full").ratio is None
    assert found.macs == 2 * BATCH * snn.report.total_macs > 0  # the rest is counted
    text = found.table(ops=True)
    assert f"the products of {op} are not counted" in text
    assert "not counted" in text.splitlines()[1]
    assert "ANN 0" not in text
    merged = Tally(2)
    merged.merge(Tally.from_json(json.loads(json.dumps(found.tally.to_json()))))
    assert Energy(merged, found.costs, "paper", [1, 2]).ratio is None
    assert found.to_json()["ratio"] is None
    assert [row["macs"] for row in found.rows() if row["target"].startswith(op)] == [None]


def test_everybody_copes_without_a_ratio() -> None:
    torch.manual_seed(0)
    model, batches = Distances().eval(), [(torch.randn(4, LENGTH, 4), torch.tensor([0, 1, 2, 0]))]
    snn = spikecast.convert(model, batches, SETTINGS)
    text = evaluate(snn, batches, model=model).table()
    assert "not counted" in text.splitlines()[1]
    assert "not counted" in text.splitlines()[3]  # the ANN's own
    compared = compare(model, lambda: batches, lambda: batches, {"one": SETTINGS})
    assert "not counted" in compared.table()
    with pytest.raises(ConfigError, match=r"over the ANN's: the products of aten\.cdist are not counted"):
        sweep_of(compared)
    page = build(model, {"one": snn}, batches)
    assert page.networks[0].energy["paper"]["ratio"] is None
    assert page.networks[0].spiking_share is None
    assert "(the ANN’s energy is not counted)" in page.html()
    again = ReportData.from_json(json.loads(json.dumps(page.to_json())))
    assert [layer.macs for layer in again.networks[0].layers if layer.op == "cdist"] == [None]


def test_nothing_to_multiply_has_no_ratio() -> None:
    snn = spikecast.convert(nn.ReLU().eval(), [torch.randn(2, 3)], SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert measure.energy(snn, [torch.randn(2, 3)]).ratio is None


def test_three_activations_are_refused() -> None:
    class Three(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("bi,bi,bi->b", x.relu(), x.sigmoid(), x.tanh())

    x = torch.randn(2, 4)
    snn = spikecast.convert(Three().eval(), [x], SETTINGS)
    assert snn.report.total_macs == 4
    with pytest.raises(ModelError, match="multiplies three activations"):
        measure.energy(snn, [x])
