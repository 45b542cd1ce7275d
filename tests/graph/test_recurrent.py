"""LSTM, GRU and RNN are opened into their linear maps and gates; the function stays the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from spikecast.errors import CaptureError
from spikecast.graph.capture import recurrent
from spikecast.graph.capture.clean import clean
from spikecast.graph.capture.export import capture
from spikecast.graph.capture.recurrent import open_recurrent
from spikecast.graph.capture.simplify import simplify
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import GETITEM, Input, Meta, Node, Program, Ref
from spikecast.graph.structure import flatten
from tests.nets import never
from tests.strategies import SEEDS

BATCH, LENGTH, FEATURES, HIDDEN = 3, 5, 4, 6
ALLOWED = {"linear", "select", "slice", "add", "sub", "mul", "sigmoid", "tanh", "relu", "stack", "cat", "zeros"}


def answers(program: Program, *tensors: Tensor) -> list[Any]:
    execution = Execution(program, program.tensors)
    execution.start(tensors)
    return execution.advance(Neurons(never))


def assert_alike(found: list[Any], expected: list[Any]) -> None:
    """Up to the last bits of float64, and with the metas that were foretold."""
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def assert_metas_hold(program: Program, *tensors: Tensor) -> None:
    values: dict[str, Any] = dict(program.tensors) | dict(zip((i.name for i in program.inputs), tensors, strict=True))
    for node in program.nodes:
        values[node.name] = node.call(lambda ref: values[ref.name])
        if isinstance(node.meta, Meta):
            assert (node.meta.shape, node.meta.dtype) == (tuple(values[node.name].shape), values[node.name].dtype)
            assert node.meta.batch_axis is None or values[node.name].shape[node.meta.batch_axis] == BATCH


def one_op(kind: str, module: nn.RNNBase, x: Tensor, state: tuple[Tensor, ...]) -> Program:
    """A program that is one recurrent op, as torch.export has it, and its results."""
    batch = 0 if module.batch_first else 1
    given = {"x": x, **{f"state{i}": s for i, s in enumerate(state)}}
    axes = {name: batch if name == "x" else 1 for name in given}
    inputs = tuple(Input(n, tuple(v.shape), Meta(tuple(v.shape), v.dtype, axes[n])) for n, v in given.items())
    tensors = {name: value.detach() for name, value in module.named_parameters()}
    start: Any = tuple(Ref(name) for name in given if name != "x")
    both, first = module.bidirectional, module.batch_first
    data = (Ref("x"), start if kind == "lstm" else start[0], tuple(map(Ref, tensors)))
    args = (*data, module.bias, module.num_layers, 0.5, False, both, first)
    count = 1 + len(state)
    out = Node("it", f"aten.{kind}.input", args, {}, "layer", tuple(None for _ in range(count)))
    parts = [Node(f"part{i}", GETITEM, (Ref("it"), i), {}, "layer", None) for i in range(count)]
    outputs = tuple(Ref(part.name) for part in parts)
    return Program(inputs, (out, *parts), outputs, tensors, {}, {})


@given(
    kind=st.sampled_from(["lstm", "gru", "rnn_tanh", "rnn_relu"]),
    layers=st.integers(1, 3),
    length=st.integers(1, 5),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    projected=st.booleans(),
    seed=SEEDS,
)
@torch.no_grad()
def test_every_option_answers_as_torch_does(kind, layers, length, flags, projected, seed) -> None:
    torch.manual_seed(seed)
    both, bias, batch_first = flags
    settings: dict[str, Any] = {"bidirectional": both, "bias": bias, "batch_first": batch_first, "num_layers": layers}
    if kind == "lstm":
        settings["proj_size"] = 2 * projected
    kinds = {"lstm": nn.LSTM, "gru": nn.GRU}
    if kind not in kinds:
        settings["nonlinearity"] = kind.removeprefix("rnn_")
    module = kinds.get(kind, nn.RNN)(FEATURES, HIDDEN, **settings).double().eval()
    sizes = [2 if kind == "lstm" and projected else HIDDEN, HIDDEN][: 1 + (kind == "lstm")]
    state = tuple(torch.randn(layers * (1 + both), BATCH, size).double() for size in sizes)
    x = torch.randn((BATCH, length, FEATURES) if batch_first else (length, BATCH, FEATURES)).double()
    whole = one_op(kind, module, x, state)
    opened = open_recurrent(whole)
    assert {n.op.removeprefix("aten.") for n in opened.nodes} <= ALLOWED
    found = answers(opened, x, *state)
    assert_alike(found, answers(whole, x, *state))
    assert_alike(found, flatten(module(x, state if kind == "lstm" else state[0]))[0])
    assert_metas_hold(opened, x, *state)
    assert all(opened.tensors[name] is tensor for name, tensor in whole.tensors.items())  # no weight is copied


class Loop(nn.Module):
    """A cell in a loop of the model's own."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> list[Tensor]:
        state, found = self.cell(x[:, 0]), []
        for t in range(1, x.shape[1]):
            state = self.cell(x[:, t], state)
            found.append(state[0] if isinstance(state, tuple) else state)
        return found


X = torch.randn(BATCH, LENGTH, FEATURES, dtype=torch.float64)
MODULES: dict[str, tuple[nn.Module, tuple[Any, ...], int]] = {
    "LSTM": (nn.LSTM(FEATURES, HIDDEN, 2, batch_first=True, bidirectional=True), (X,), 0),
    "LSTM, batch second": (nn.LSTM(FEATURES, HIDDEN, proj_size=3), (X,), 1),
    "GRU with a state": (nn.GRU(FEATURES, HIDDEN, 2, batch_first=True, dropout=0.5),
                         (X, torch.randn(2, BATCH, HIDDEN, dtype=torch.float64)), 0),
    "LSTM cell": (Loop(nn.LSTMCell(FEATURES, HIDDEN)), (X,), 0),
    "GRU cell": (Loop(nn.GRUCell(FEATURES, HIDDEN, bias=False)), (X,), 0),
    "RNN cell": (Loop(nn.RNNCell(FEATURES, HIDDEN)), (X,), 0),
    "RNN cell with relu": (nn.RNNCell(FEATURES, HIDDEN, nonlinearity="relu"), (X[:, 0], X[:, 1:3, :3].flatten(1)), 0),
}  # fmt: skip


@cache
def opened_module(name: str) -> Program:
    module, args, axis = MODULES[name]
    return simplify(clean(capture(module.double().eval(), args, batch_axis=axis)))


@pytest.mark.parametrize("name", MODULES)
@torch.no_grad()
def test_captured_module_is_opened(name) -> None:
    module, args, axis = MODULES[name]
    before = {key: value.double().clone() for key, value in module.state_dict().items()}
    program = opened_module(name)
    assert program.batch_symbols
    assert {n.op.removeprefix("aten.") for n in program.nodes if n.meta is not None} <= ALLOWED
    assert_alike(answers(program, *args), flatten(module(*args))[0])
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    if "cell" not in name:
        length = program.inputs[0].dims[1 - axis]
        assert length == X.shape[1 - axis]  # fixed: the graph has that many places


def test_names_say_layer_direction_and_place() -> None:
    scopes = [n.scope for n in opened_module("LSTM").nodes if n.op == "aten.linear"]
    assert scopes[: 1 + LENGTH] == ["input_l0", *(f"hidden_l0.{t}" for t in range(LENGTH))]
    assert scopes[1 + LENGTH] == "input_l0_reverse"
    assert len(set(scopes)) == len(scopes) == 4 * (1 + LENGTH)


@torch.no_grad()
def test_long_sequences_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "LONGEST", LENGTH)
    x = torch.randn(LENGTH + 1, BATCH, FEATURES)
    module, state = nn.GRU(FEATURES, HIDDEN), torch.zeros(1, BATCH, HIDDEN)
    open_recurrent(one_op("gru", module, x[:-1], (state,)))
    with pytest.raises(CaptureError, match=r"^layer reads sequences of 6 places, and at most 5 can be unrolled; cut"):
        open_recurrent(one_op("gru", module, x, (state,)))
