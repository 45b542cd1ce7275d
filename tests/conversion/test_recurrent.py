"""Recurrent networks as spiking ones: as good as the ANN, counted, kept in files; what cannot be is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import spikecast
from spikecast import Config, convert, measure
from spikecast.errors import CaptureError, DataError
from tests.nets import relative

CLASSES, FEATURES, HIDDEN, LENGTH = 4, 6, 16, 8
# In one sample: all of W_ih x, W_hh h but for the first place, where h is nothing, and the head.
PRODUCTS = LENGTH * 4 * HIDDEN * FEATURES + (LENGTH - 1) * 4 * HIDDEN * HIDDEN + HIDDEN * CLASSES


class Classifier(nn.Module):
    """Which class was shown at the first place, when noise followed."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(FEATURES, HIDDEN, batch_first=True), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def task(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.randint(CLASSES, (count,), generator=generator)
    x = 0.6 * torch.randn(count, LENGTH, FEATURES, generator=generator)
    x[torch.arange(count), 0, labels] += 2
    return x, labels


@pytest.fixture(scope="module")
def trained() -> tuple[Classifier, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    generator, model = torch.Generator().manual_seed(1), Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):  # far enough on any processor
        x, labels = task(128, generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return model.eval().requires_grad_(False), task(128, generator), task(1000, generator)


def test_trained_lstm_keeps_its_accuracy(trained, tmp_path: Path) -> None:
    model, calibration, (x, labels) = trained
    before = {name: value.clone() for name, value in model.state_dict().items()}
    snn = convert(model, [calibration], Config(num_steps=4), strict=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    ann = float((model(x).argmax(1) == labels).float().mean())
    answer = snn.run(x)
    assert ann > 0.9  # it has learned something that can be lost
    assert abs(float((answer[-1].argmax(1) == labels).float().mean()) - ann) <= 0.01
    assert list(snn.sites) == [f"lstm.hidden_l0.{t}.input" for t in range(1, LENGTH)] + ["head.input"]
    snn.save(tmp_path / "lstm.snn")
    assert torch.equal(spikecast.load(tmp_path / "lstm.snn").run(x), answer)
    assert snn.report.total_macs == PRODUCTS
    assert snn.report.spiking_share == pytest.approx(1 - LENGTH * 4 * HIDDEN * FEATURES / PRODUCTS)
    energy = measure.energy(snn, [x[:10]])
    assert energy.macs == 10 * PRODUCTS
    assert energy.ratio is not None
    twin = snn.twin()
    torch.testing.assert_close(twin.run(x[:3], num_steps=2), snn.run(x[:3], num_steps=2), rtol=1e-3, atol=1e-3)


class Last(nn.Module):
    """A recurrent layer, read at its last place and by its states; both go through a head."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.head = inner, nn.Linear(HIDDEN, 3)

    def forward(self, x: Tensor, *state: Any) -> tuple[Tensor, ...]:
        out, last = self.inner(x, *state)
        last = last if isinstance(last, tuple) else (last,)
        return self.head(out[:, -1] if self.inner.batch_first else out[-1]), *last


class Loop(nn.Module):
    """A cell in a loop of the model's own."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(HIDDEN, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


NETS: dict[str, Any] = {
    "GRU": lambda: Last(nn.GRU(FEATURES, HIDDEN, 2, batch_first=True)),
    "RNN": lambda: Last(nn.RNN(FEATURES, HIDDEN, batch_first=True)),
    "RNN with relu": lambda: Last(nn.RNN(FEATURES, HIDDEN, 2, nonlinearity="relu", batch_first=True)),
    "LSTM cell": lambda: Loop(nn.LSTMCell(FEATURES, HIDDEN)),
    "GRU cell": lambda: Loop(nn.GRUCell(FEATURES, HIDDEN)),
    "RNN cell": lambda: Loop(nn.RNNCell(FEATURES, HIDDEN)),
}


@pytest.mark.parametrize("name", NETS)
@torch.no_grad()
def test_error_falls_with_time(name) -> None:
    torch.manual_seed(0)
    model, x = NETS[name]().eval(), torch.randn(16, 4, FEATURES)
    snn = convert(model, [x], Config(num_levels=4, burst=1), strict=True)
    assert snn.foldable
    expected, found = model(x), snn.run(x, num_steps=32)
    at = found if isinstance(expected, tuple) else (found,)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    errors = [relative([part[t - 1] for part in at], list(wanted)) for t in (1, 4, 32)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.02
    assert snn.report.spiking_share is not None
    assert measure.energy(snn, [x]).ratio is not None


def test_relu_of_an_rnn_is_its_neuron() -> None:
    """What it sends goes to its own next place and to the next layer alike, and no other neuron stands between."""
    torch.manual_seed(0)
    model, x = NETS["RNN with relu"]().eval(), torch.randn(16, 4, FEATURES)
    snn = convert(model, [x], Config(thresholds="quantile"))
    assert list(snn.sites) == [f"inner.l{layer}.{t}.relu" for layer in (0, 1) for t in range(4)]


@torch.no_grad()
def test_given_states_and_batch_second() -> None:
    torch.manual_seed(0)
    x, state = torch.randn(5, 4, FEATURES), tuple(torch.randn(2, 4, HIDDEN) for _ in "hc")
    for axis, batch_first in ((0, True), (1, False)):
        model = Last(nn.LSTM(FEATURES, HIDDEN, 2, batch_first=batch_first)).eval()
        call = (x.transpose(0, 1) if batch_first else x, state)
        snn = convert(model, [call], Config(num_steps=2), inputs=lambda batch: batch)
        assert (snn.foldable, snn.batch_axis) == (True, axis)
        half = call[0].narrow(axis, 1, 2), tuple(part[:, 1:3] for part in state)
        assert relative(snn.analog(*half), model(*half)) <= 1e-5
        found, expected = snn.run(*half), model(*half)
        assert relative(tuple(part[-1] for part in found), expected) < 0.02


def test_another_length_needs_another_conversion() -> None:
    x = torch.randn(2, 3, FEATURES)
    snn = convert(Last(nn.RNN(FEATURES, HIDDEN, batch_first=True)).eval(), [x], Config(thresholds="quantile"))
    with pytest.raises(
        DataError, match=r"which neurons there are \(the input has shape \(2, 2, 6\).*convert with a batch of"
    ):
        snn.run(x[:, :2])


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(FEATURES, HIDDEN, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        out, _ = self.inner(pack_padded_sequence(x, lengths, batch_first=True))
        return pad_packed_sequence(out, batch_first=True)[0]


def test_packed_sequences_are_refused() -> None:
    x, lengths = torch.randn(2, 3, FEATURES), torch.tensor([3, 2])
    with pytest.raises(CaptureError, match=r"^GRU is called with a PackedSequence, .*; give it the padded tensor"):
        convert(Packed().eval(), [(x, lengths)])
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    with pytest.raises(DataError, match=r"^a batch is a PackedSequence; yield the padded tensor"):
        convert(nn.GRU(FEATURES, HIDDEN).eval(), [packed])
    assert nn.GRU(FEATURES, HIDDEN)(packed)[1].shape == (1, 2, HIDDEN)  # outside of a conversion nothing is refused
