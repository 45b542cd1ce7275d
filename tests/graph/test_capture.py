"""The captured graph is the model, bit for bit, for every size it says it can take."""

from __future__ import annotations

import copy
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.errors import CaptureError, DataError
from spikecast.graph.calls import call_leaves, misfit
from spikecast.graph.capture.clean import clean
from spikecast.graph.capture.export import capture
from spikecast.graph.capture.simplify import simplify
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.execute.run import Execution
from spikecast.graph.structure import flatten, unflatten
from tests.nets import never, relative

SMALL = Config(num_steps=2, burst=1, thresholds="quantile")


@torch.no_grad()
def answer(program, *args, **kwargs):
    """What a program without neurons answers; it must say itself that it can take the call."""
    tensors, structure = call_leaves(args, kwargs)
    assert misfit(program, tensors, structure) is None
    execution = Execution(program, program.tensors)
    execution.start(tensors)
    return unflatten(program.output_structure, execution.advance(Neurons(never)))


def assert_same(found, expected) -> None:
    """Equal in form, type, and to the bit."""
    ours, form = flatten(found)
    theirs, expected_form = flatten(expected)
    assert form == expected_form
    assert type(found) is type(expected)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, Tensor):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
        else:
            assert a == b


class InPlace(nn.Module):
    """Ops that write into what they are given, and into views of it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.relu(self.conv(x))
        x += 0.5
        x[:, 0] = 0.25
        x[:, 1].mul_(2)
        middle = x.view(x.shape[0], 4, -1)
        middle[:, 2, ::2] -= 1
        y = x.clone()
        y.add_(1)
        return F.relu_(x.sub_(0.1)) + y


class InPlaceOnly(nn.Module):
    """Writes into fresh tensors, which are read before and after, under both names, and answered."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        y = self.a(x)
        before = y * 2
        after = y.relu_()
        z = self.b(before)
        z += y
        last = F.hardtanh_(z.mul_(3), -1, 4)
        return last + z + after, y, z


class Dropouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.drops = nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout(0.5), nn.FeatureAlphaDropout())

    def forward(self, x):
        x = self.drops(self.conv(x))
        return F.dropout(x, 0.3, self.training, inplace=True).relu()


class Shared(nn.Module):
    """One conv, one norm and one ReLU module, each called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x)))
        return self.relu(self.norm(self.conv(x))) + x


@dataclass
class Answer:
    logits: Tensor
    hidden: tuple[Tensor, ...]
    loss: Tensor | None = None
    name: str = "answer"


Pair = namedtuple("Pair", "first second")


class Forms(nn.Module):
    """Answers in the form it was made with."""

    def __init__(self, form) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)
        self.form = form

    def forward(self, x):
        y = self.linear(x.flatten(1)[:, :6]).relu()
        return self.form(y, y * 2)


class Tokens(nn.Module):
    """Integers in, a mask by keyword, a switch by keyword, attention inside."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.position = nn.Parameter(torch.randn(1, 32, 8))
        self.query, self.out = nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, ids, *, mask=None, double=False):
        x = self.embed(ids) + self.position[:, : ids.shape[1]]
        q, k, v = self.query(x).chunk(3, -1)
        keep = None if mask is None else mask[:, None, :].bool()
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = F.gelu(x) * (2 if double else 1)
        return {"logits": self.out(x.mean(1)), "states": [x, None], "pad": -100}


MODELS = {
    "in-place": InPlace(),
    "in-place only": InPlaceOnly(),
    "dropout": Dropouts(),
    "shared": Shared(),
    "tensor": Forms(lambda a, b: a - b),
    "tuple": Forms(lambda a, b: (a, (b, a), [])),
    "list": Forms(lambda a, b: [a, b, None, 3, "text", 2.5]),
    "dict": Forms(lambda a, b: {"out": a, "aux": {"b": b, 0: None}}),
    "ordered": Forms(lambda a, b: OrderedDict(out=a, aux=b)),
    "namedtuple": Forms(lambda a, b: Pair(a, [b])),
    "dataclass": Forms(lambda a, b: Answer(a, (a, b))),
    "same twice": Forms(lambda a, b: (a, a, b, b)),
}


@pytest.mark.parametrize("name", MODELS)
def test_graph_is_the_model_to_the_bit(name) -> None:
    model = MODELS[name].eval()
    x = torch.randn(7, 3, 8, 8)
    before = x.clone()
    program = clean(capture(model, (x[:3],)))
    for batch in (x[:3], x[:1], x):
        with torch.no_grad():
            assert_same(answer(program, batch), model(batch.clone()))
    assert torch.equal(x, before)
    assert not any("_." in n.target for n in program.nodes)  # nothing writes in place
    assert not any("dropout" in n.target or "rand" in n.target for n in program.nodes)
    for a, b in zip(*(flatten(v)[0] for v in (answer(simplify(program), x), answer(program, x))), strict=True):
        assert relative(a, b) <= 1e-5 if isinstance(a, Tensor) else a == b


@pytest.mark.parametrize("keywords", [{}, {"mask": True}, {"mask": True, "double": True}], ids=str)
def test_integers_and_keywords(keywords) -> None:
    model = Tokens().eval()
    ids = torch.randint(11, (7, 6))
    mask = (torch.arange(6) < torch.tensor([[6], [2], [3], [1], [5], [4], [6]])).long()

    def named(size, length=6):
        return {k: mask[:size, :length] if k == "mask" else v for k, v in keywords.items()}

    program = clean(capture(model, (ids[:3],), named(3)))
    with torch.no_grad():
        for size, length in ((3, 6), (1, 6), (7, 6), (2, 4)):
            found = answer(program, ids[:size, :length], **named(size, length))
            assert_same(found, model(ids[:size, :length], **named(size, length)))
    opened = answer(simplify(program), ids, **named(7))
    assert relative(opened["logits"], model(ids, **named(7))["logits"]) <= 1e-5


def test_keywords_are_part_of_the_call() -> None:
    model, ids = Tokens().eval(), torch.randint(11, (3, 6))
    program = clean(capture(model, (ids,), {"double": True}))
    for args, kwargs in (((ids,), {}), ((ids,), {"double": False}), ((), {"ids": ids, "double": True})):
        assert "other arguments" in misfit(program, *call_leaves(args, kwargs))
    assert misfit(program, *call_leaves((ids,), {"double": True})) is None


def test_encoder_layer_is_captured_without_its_fused_path() -> None:
    # torch multiplies matrices in another order where a weight wants a gradient
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().requires_grad_(False)
    x = torch.randn(3, 5, 8)
    program = clean(capture(model, (x,)))
    assert any("scaled_dot_product_attention" in n.target for n in program.nodes)
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            assert_same(answer(program, x), model(x))
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def test_height_and_width_are_free() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(4, 4, 3, 1, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    ).eval()  # fmt: skip
    program = clean(capture(model, (torch.randn(2, 3, 8, 8),)))
    with torch.no_grad():
        for height, width in ((8, 8), (12, 10), (9, 16), (32, 7)):
            x = torch.randn(3, 3, height, width)
            assert_same(answer(program, x), model(x))


class Branches(nn.Module):
    """Takes another path for odd widths, and yet another for large ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 2)

    def forward(self, x):
        if x.shape[-1] % 2:
            x = x[..., 1:] * 3
        if x.shape[-2] > 12:
            x = F.avg_pool2d(x, 2)
        return self.out(self.conv(x).relu().mean((2, 3)))


def test_a_broken_guard_means_another_capture() -> None:
    model = Branches().eval()
    x = torch.randn(2, 3, 8, 8)
    program = clean(capture(model, (x,)))
    for height, width, fits in ((8, 8, True), (10, 6, True), (8, 9, False), (14, 8, False), (14, 9, False)):
        call = call_leaves((torch.randn(2, 3, height, width),), {})
        reason = misfit(program, *call)
        assert reason is None if fits else "another path" in reason
    snn = convert(model, [x], SMALL)
    for height, width in ((8, 8), (8, 9), (14, 8), (15, 11), (8, 9)):
        y = torch.randn(3, 3, height, width)
        with torch.no_grad():
            assert relative(snn.analog(y), model(y)) <= 1e-5
        assert relative(snn.run(y, num_steps=32)[-1], model(y)) < 0.05


class Table(nn.Module):
    """Makes a table of its own for each width, which capture takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.seed, self.out = nn.Parameter(torch.randn(1, 1, 4)), nn.Linear(8, 2)

    def forward(self, x):
        assert x.shape[-1] in (8, 16)
        table = F.interpolate(self.seed, size=int(x.shape[-1]), mode="linear")[0]
        return self.out(F.adaptive_avg_pool1d((x + table).relu(), 8))


def test_constants_of_another_capture_are_its_own() -> None:
    model = Table().eval()
    snn = convert(model, [torch.randn(2, 3, 8)], SMALL)
    for width in (16, 8):
        y = torch.randn(2, 3, width)
        assert relative(snn.analog(y), model(y)) <= 1e-5


class Pinned(nn.Module):
    """Works for two samples only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

    def forward(self, x):
        first, second = x.unbind(0)
        x = self.conv(torch.stack([first, second + 1])).relu()
        return self.out(x.mean((2, 3)).reshape(2, 4))


def test_pinned_batch() -> None:
    model = Pinned().eval()
    x = torch.randn(2, 3, 8, 8)
    program = clean(capture(model, (x,)))
    assert program.batch_symbols == ()
    assert_same(answer(program, x), model(x).detach())
    snn = convert(model, [x], SMALL)
    assert not snn.foldable
    assert any("batch size is pinned" in note for note in snn.report.notes)
    assert relative(snn.run(x, num_steps=64)[-1], model(x)) < 0.02
    with pytest.raises(DataError):
        snn(torch.randn(3, 3, 8, 8))


class SizeInAnswer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu(), x.shape[0], {"length": x.shape[1]}


def test_sizes_in_the_answer_are_those_of_the_call() -> None:
    model = SizeInAnswer().eval()
    x = torch.randn(5, 6, 4)
    snn = convert(model, [torch.randn(2, 3, 4)], SMALL)
    for found in (snn(x), snn.run(x), snn.run(x, max_batch=2), list(snn.steps(x))[-1][1], snn.analog(x)):
        assert found[1:] == (5, {"length": 6})


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        while x.norm() < 10:  # depends on the data
            x = self.linear(x) + 1 + x
        return x


class Noise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu() + torch.randn_like(x)


@pytest.mark.parametrize(("model", "words"), [(Loop(), "regions="), (Noise(), "random")], ids=["loop", "noise"])
def test_what_cannot_be_captured(model, words) -> None:
    with pytest.raises(CaptureError, match=words) as error:
        convert(model.eval(), [torch.randn(2, 4)], SMALL)
    assert "\n" not in str(error.value)
    assert type(model).__name__ in str(error.value) or words == "random"


def test_no_tensor() -> None:
    with pytest.raises(DataError, match="tensor"):
        capture(nn.Identity().eval(), (1,))


class Keeps(nn.Module):
    """Writes to its buffers, one of which is called as torch calls an op."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.mean.mul_(0.5)
        return self.linear(x - self.mean) + x.mean() * 0


def test_buffers_that_are_written_to_are_named() -> None:
    model, x = Keeps().eval(), torch.randn(2, 4)
    snn = convert(model, [x], Config(num_steps=2))
    assert any(note.endswith("a network keeps as they were at conversion: count, mean") for note in snn.report.notes)
    assert model.count == 0  # nor are the model's own changed
    for _ in range(2):
        assert relative(snn.analog(x), Keeps.forward(copy.deepcopy(model), x)) < 1e-6


def test_capture_leaves_the_model_alone() -> None:
    model = MODELS["shared"].eval()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    program = simplify(clean(capture(model, (torch.randn(2, 3, 8, 8),))))
    for tensor in program.tensors.values():
        tensor.zero_()
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert not any(m.training for m in model.modules())
