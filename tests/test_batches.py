"""What a loader yields becomes the model's arguments, and what does not belong to them is said."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from spikecast import Config, convert, measure
from spikecast.batches import Binder, Call, calls, first_samples, joined, one_sample, samples_in
from spikecast.errors import DataError
from spikecast.graph.calls import axis_of_batch

X, Y, LABEL = torch.randn(4, 3), torch.randn(4, 2), torch.tensor([0, 1, 0, 1])


def model(function):
    """A model whose forward has the signature of a function."""
    made = nn.Linear(3, 2)
    vars(made)["forward"] = function
    return made


ONE = model(lambda x: x)
TWO = model(lambda a, b: a)
OPTIONAL = model(lambda x, mask=None, *, scale=1.0: x)
NAMED = model(lambda x, *, mask: x)
OPEN = model(lambda *xs: xs[0])
ANY = model(lambda x, **more: x)
NONE = model(lambda ids=None, mask=None: ids)
ASKED = model(lambda x, labels: x)
LOSS = model(lambda ids=None, labels=None, **more: ids)
WORDS = torch.arange(12).reshape(4, 3)


def same(found, expected) -> None:
    args, kwargs = found
    assert [id(a) for a in args] == [id(a) for a in expected[0]]
    assert {k: id(v) for k, v in kwargs.items()} == {k: id(v) for k, v in expected[1].items()}


@pytest.mark.parametrize(
    ("made", "batch", "args", "kwargs"),
    [
        (ONE, X, (X,), {}),
        (ONE, (X,), (X,), {}),
        (ONE, [X], (X,), {}),
        (ONE, (X, LABEL), (X,), {}),
        (ONE, [X, LABEL], (X,), {}),
        (ONE, (X, {"boxes": LABEL}), (X,), {}),
        (ONE, {"x": X}, (), {"x": X}),
        (TWO, (X, Y), (X, Y), {}),
        (TWO, (X, Y, LABEL), (X, Y), {}),
        (TWO, {"b": Y, "a": X}, (), {"a": X, "b": Y}),
        (OPTIONAL, X, (X,), {}),
        (OPTIONAL, (X, LABEL), (X,), {}),  # one item more is the label, even where forward could take it
        (OPTIONAL, {"x": X, "mask": Y, "scale": 2.0}, (), {"x": X, "mask": Y, "scale": 2.0}),
        (NAMED, {"x": X, "mask": Y}, (), {"x": X, "mask": Y}),
        (OPEN, (X, Y, LABEL), (X, Y, LABEL), {}),
        (OPEN, X, (X,), {}),
        (ANY, {"x": X, "other": Y}, (), {"x": X, "other": Y}),
        (NONE, X, (X,), {}),
        (NONE, (X, LABEL), (X,), {}),  # where nothing is required, the first argument counts as required
        (NONE, OrderedDict(mask=Y, ids=X), (), {"ids": X, "mask": Y}),
        (ASKED, {"x": X, "labels": LABEL}, (), {"x": X, "labels": LABEL}),
    ],
)  # fmt: skip
def test_binding(made, batch, args, kwargs) -> None:
    binder = Binder.of_model(made)
    same(binder.bind(batch), (args, kwargs))
    assert binder.dropped == set()


@pytest.mark.parametrize(
    ("chosen", "args", "kwargs"),
    [(X, (X,), {}), ((X, Y), (X, Y), {}), ({"a": X, "b": Y}, (), {"a": X, "b": Y})],
    ids=["tensor", "tuple", "dict"],
)
def test_inputs_function(chosen, args, kwargs) -> None:
    seen = []

    def inputs(batch: object) -> object:
        seen.append(batch)
        return chosen

    binder = Binder.of_model(TWO, inputs)
    same(binder.bind("whatever the loader yields"), (args, kwargs))
    assert seen == ["whatever the loader yields"]


def test_inputs_function_may_give_a_list_as_one_argument() -> None:
    images = [X, X]
    args, kwargs = Binder.of_model(ONE, lambda batch: images).bind(None)
    assert args[0] is images
    assert kwargs == {}


@pytest.mark.parametrize(
    ("made", "batch", "wanted"),
    [
        (ONE, X, 2 * X),
        (ONE, [X, LABEL], [2 * X, LABEL]),
        (ONE, ({"x": X}, LABEL), ({"x": 2 * X}, LABEL)),
        (ONE, {"x": X, "label": LABEL}, {"x": 2 * X, "label": LABEL}),
        (TWO, (X, Y, LABEL), (2 * X, 2 * Y, LABEL)),
        (TWO, ((X, Y), LABEL), ((2 * X, 2 * Y), LABEL)),
        (OPTIONAL, {"x": X, "scale": 2.0, "other": Y}, {"x": 2 * X, "scale": 2.0, "other": Y}),
    ],
)
def test_a_batch_with_other_inputs_keeps_its_form(made, batch, wanted) -> None:
    def doubled(call: Call) -> Call:
        args, kwargs = call
        return tuple(2 * x for x in args), {k: 2 * v if torch.is_tensor(v) else v for k, v in kwargs.items()}

    found = Binder.of_model(made).changed(batch, doubled)
    assert type(found) is type(wanted)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_unknown_keys_are_dropped_and_reported() -> None:
    binder = Binder.of_model(ONE)
    same(binder.bind({"x": X, "label": LABEL, 7: "id"}), ((), {"x": X}))
    same(binder.bind({"x": X, "path": "a.png"}), ((), {"x": X}))
    assert binder.dropped == {"label", "7", "path"}
    snn = convert(Net().eval(), [{"x": X, "label": LABEL}], Config(num_steps=2, thresholds="quantile"))
    assert any("label" in note and "dropped" in note for note in snn.report.notes)
    assert "label" in str(snn.report)


def test_labels_that_are_not_required_are_dropped_and_reported() -> None:
    """A model that would make a loss of them is asked for its answer only."""
    binder = Binder.of_model(LOSS)
    same(binder.bind({"ids": X, "labels": LABEL, "target": LABEL, "other": Y}), ((), {"ids": X, "other": Y}))
    assert binder.dropped == {"labels", "target"}
    assert binder.labelled


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.a(x).relu())


@pytest.mark.parametrize(
    ("made", "batch", "words"),
    [
        (ONE, (X, Y, LABEL), r"3 items.*takes 1 \(x\).*inputs="),
        (ONE, (), r"0 items"),
        (TWO, X, r"1 items.*takes 2 \(a, b\)"),
        (TWO, (X,), r"1 items.*takes 2 \(a, b\)"),
        (TWO, {"a": X, "c": Y}, r"\['a', 'c'\] lacks b.*Linear.forward.*inputs="),
        (ONE, {"image": X}, r"lacks x"),
        (NAMED, X, r"mask by name only.*dicts"),
        (NAMED, (X, Y), r"mask by name only"),
        (NAMED, {"x": X}, r"lacks mask"),
        (NONE, (WORDS, (WORDS > 2).long()), r"2 items.*takes 1.*dicts"),  # is it a mask, or a label?
        (ONE, "text", r"a batch is a str.*inputs="),
        (ONE, 3, r"a batch is a int"),
        (ONE, None, r"a batch is a NoneType"),
        (ONE, np.zeros((2, 3), np.float32), r"a batch is a ndarray"),
        (ONE, ("text",), r"tuple holds no tensor"),
        (ONE, {"x": 3}, r"dict holds no tensor"),
    ],
)  # fmt: skip
def test_what_cannot_be_bound(made, batch, words) -> None:
    with pytest.raises(DataError, match=words) as error:
        Binder.of_model(made).bind(batch)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (torch.full((2, 3), torch.nan), r"\(2, 3\) holds NaN"),
        (torch.tensor([[1.0, torch.inf, 0.0]]), r"\(1, 3\) holds inf"),
        ({"x": [X, -X / 0]}, r"holds (NaN|inf)"),
        (X.double(), r"torch.float64 and the model torch.float32"),
        (X.half(), r"torch.float16 and the model"),
        (torch.zeros(0, 3), r"\(0, 3\) holds no samples"),
        (torch.zeros(2, 0), r"\(2, 0\) holds no samples"),
        (X.to("meta"), r"on meta and the model on cpu"),
    ],
)
def test_tensors_that_cannot_be_used(batch, words) -> None:
    with pytest.raises(DataError, match=words) as error:
        Binder.of_model(ONE).bind(batch)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("batch", [torch.zeros(0, 3), torch.zeros(2, 3, device="meta"), torch.full((1, 3), torch.nan)])
def test_models_without_weights_are_no_exception(batch) -> None:
    with pytest.raises(DataError):
        Binder.of_model(nn.ReLU()).bind(batch)


def test_integers_need_not_be_of_the_weights_type() -> None:
    args, _ = Binder.of_model(ONE).bind(LABEL)
    assert args[0] is LABEL


def test_calls() -> None:
    binder = Binder.of_model(ONE)
    assert [len(args) for args, _ in calls(iter([X, (X, LABEL)]), binder)] == [1, 1]
    (call,) = calls(X, binder)  # one tensor is one batch, not four samples
    assert call[0][0] is X
    with pytest.raises(DataError, match="yielded no batch"):
        list(calls(iter([]), binder))
    with pytest.raises(DataError, match="NoneType"):
        list(calls(None, binder))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, LABEL), batch_size=3)
    assert [args[0].shape for args, _ in calls(loader, binder)] == [(3, 3), (1, 3)]


def test_samples() -> None:
    call = ((X, torch.randn(4, 5), torch.randn(2)), {"more": {"a": torch.arange(4), "b": "text"}, "scale": 2.0})
    assert samples_in(call) == 4
    assert samples_in(call, 1) == 3
    args, kwargs = first_samples(call, 3)
    assert [len(a) for a in args] == [3, 3, 2]
    assert kwargs["more"]["a"].tolist() == [0, 1, 2]
    assert (kwargs["more"]["b"], kwargs["scale"]) == ("text", 2.0)
    assert torch.equal(args[0], X[:3])
    assert first_samples(call, 99)[0][0].shape == X.shape
    assert torch.equal(first_samples(call, 99, start=1)[0][0], X[1:])
    assert torch.equal(first_samples(call, 1, start=1)[0][0], X[1:2])
    second = first_samples(((torch.randn(5, 4, 2), torch.randn(4, 3)), {}), 2, axis=1)
    assert [tuple(a.shape) for a in second[0]] == [(5, 2, 2), (2, 3)]  # a mask has its batch in front


class Both(nn.Module):
    def forward(self, a, b):
        return torch.relu(a) @ torch.eye(2) + b


PAIR = (torch.randn(4, 2), torch.randn(4, 2))


@pytest.mark.parametrize(
    "batch",
    [
        (*PAIR, torch.arange(4)),
        (PAIR, torch.arange(4)),
        [list(PAIR), torch.arange(4)],
        ({"a": PAIR[0], "b": PAIR[1]}, torch.arange(4)),
        {"a": PAIR[0], "b": PAIR[1], "label": torch.arange(4)},
    ],
    ids=["flat", "tuple", "lists", "dict", "keys"],
)
def test_inputs_and_label(batch) -> None:
    """However the label stands beside the inputs, the model is called with the inputs."""
    args, kwargs = Binder.of_model(Both()).bind(batch)
    found = [*args, *kwargs.values()]
    assert len(found) == 2
    assert all(torch.equal(a, b) for a, b in zip(found, PAIR, strict=True))


def test_a_tuple_that_is_an_argument() -> None:
    """Two arguments of which the first is a pair: no label is seen where there is none."""
    args, _ = Binder.of_model(Both()).bind((PAIR, torch.randn(4, 2)))
    assert args[0] is PAIR


@pytest.mark.parametrize(
    ("model", "batch"),
    [(Both(), (PAIR, torch.rand(4))), (nn.Linear(2, 3), (PAIR[:1], torch.arange(4)))],
    ids=["floats", "one input"],
)
def test_a_label_that_is_not_seen_is_named(model, batch) -> None:
    with pytest.raises(DataError, match=r"not tuple; if there is a label, yield \(\(a, b\), label\) with integers"):
        convert(model.eval(), [batch])


@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_labels_beside_inputs_everywhere(form) -> None:
    """convert, evaluate and energy take the same batches without inputs=."""
    inputs = PAIR if form == "tuple" else {"a": PAIR[0], "b": PAIR[1]}
    batches = [(inputs, torch.tensor([0, 1, 0, 1]))]
    model = Both().eval()
    snn = convert(model, batches, Config(num_steps=3, thresholds="quantile"))
    found = measure.evaluate(snn, batches, model=model)
    assert found.samples == 4
    assert measure.energy(snn, batches).tally.samples == 4


def test_a_given_function_is_remembered() -> None:
    """What picks the input while converting picks it while measuring."""
    made = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    batch = {"x": PAIR[0], "y": torch.arange(4) % 2}
    snn = convert(made, [batch], Config(num_steps=2, thresholds="quantile"), inputs=lambda b: b["x"])
    found = measure.evaluate(snn, [batch], targets=lambda b: b["y"])
    assert found.samples == 4
    assert measure.energy(snn, [batch]).tally.samples == 4


def test_joined() -> None:
    first = ((torch.ones(5, 2, 3), torch.ones(2, 5)), {"scale": 2.0})
    second = ((torch.zeros(5, 2, 3), torch.zeros(2, 5)), {"scale": 2.0})
    args, kwargs = joined([first, second], 1)
    assert [tuple(a.shape) for a in args] == [(5, 4, 3), (4, 5)]
    assert kwargs == {"scale": 2.0}
    other = ((torch.zeros(6, 1, 3), torch.zeros(1, 6)), {"scale": 2.0})
    assert joined([first, other], 1) is first


def test_one_sample() -> None:
    call: Call = ((torch.arange(24).reshape(3, 4, 2),), {})
    assert one_sample(call, 2, 1)[0][0].tolist() == call[0][0][:, 2].tolist()
    pictures = [torch.zeros(3, 5, 5), torch.ones(3, 6, 4)]
    assert one_sample(((pictures,), {}), 1, None)[0][0] is pictures[1]
    assert samples_in(((pictures,), {}), None) == 2


@pytest.mark.parametrize("batch_first", [True, False])
def test_joules_of_one_sample_wherever_the_batch_is(batch_first) -> None:
    """A sequence of 5 with 2 samples costs what it costs, whichever axis holds the samples."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first, activation="gelu")
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 8) if batch_first else torch.randn(5, 2, 8)
    snn = convert(model, [x], Config(num_steps=2, thresholds="quantile"))
    found = measure.energy(snn, [x])
    assert found.tally.samples == 2
    assert found.ann == pytest.approx(4.6e-12 * found.macs / 2)


def test_the_second_of_three_axes_holds_a_batch_unless_it_is_a_mask() -> None:
    assert axis_of_batch(torch.zeros(2, 8, 5), 8, 0) == 1  # states of an LSTM
    assert axis_of_batch(torch.zeros(2, 8, 8), 8, 0) is None  # which of eight places sees which, for two heads


def test_an_inputs_function_that_fails_is_said_in_one_line() -> None:
    """It stays with the network, so that what it cannot take may come much later."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    config = Config(num_steps=2, thresholds="quantile")
    snn = convert(model, [{"x": torch.randn(2, 3)}], config, inputs=lambda b: b["x"])
    with pytest.raises(DataError, match=r"inputs=, which was given to convert, fails on a batch that is a dict \(KeyE"):
        measure.energy(snn, [{"y": torch.randn(2, 3)}])
