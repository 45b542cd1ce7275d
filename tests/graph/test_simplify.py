"""BatchNorm goes into the weights before it, attention into its two products; the function stays the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spikecast.errors import CaptureError
from spikecast.graph.capture.clean import clean
from spikecast.graph.capture.export import capture
from spikecast.graph.capture.simplify import fold_affine, simplify
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.execute.run import Execution
from tests.nets import never, relative

NORMS = {3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d, 2: nn.BatchNorm1d}


def answers(program, *tensors):
    execution = Execution(program, program.tensors)
    execution.start(tensors)
    return execution.advance(Neurons(never))


def assert_close(found, expected) -> None:
    assert relative(found, expected) <= 1e-5
    assert found.dtype == expected.dtype


def ops(program) -> list[str]:
    return [n.op.removeprefix("aten.") for n in program.nodes if n.meta is not None]


def norm(rank, channels, **settings):
    """A norm that has seen something."""
    made = NORMS[rank](channels, **settings)
    made.running_mean.normal_()
    made.running_var.uniform_(0.2, 3)
    if made.affine:
        nn.init.normal_(made.weight, 1, 0.5)
        nn.init.normal_(made.bias)
    return made.eval()


FOLDS = {
    "conv1d": (nn.Conv1d(4, 6, 3), (4, 8)),
    "conv2d": (nn.Conv2d(4, 6, 3, padding=1, bias=False), (4, 8, 8)),
    "conv2d stride": (nn.Conv2d(4, 6, 3, stride=2, dilation=2), (4, 8, 8)),
    "conv2d groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 8, 8)),
    "conv2d depthwise": (nn.Conv2d(4, 8, 3, groups=4), (4, 8, 8)),
    "conv3d": (nn.Conv3d(2, 3, 2), (2, 3, 4, 4)),
    "transpose1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), (4, 8)),
    "transpose2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, bias=False), (4, 8, 8)),
    "transpose2d groups": (nn.ConvTranspose2d(4, 6, 3, groups=2), (4, 8, 8)),
    "transpose3d groups": (nn.ConvTranspose3d(4, 2, 2, groups=2, bias=False), (4, 3, 3, 3)),
    "linear": (nn.Linear(4, 6), (4,)),
    "linear no bias": (nn.Linear(4, 6, bias=False), (4,)),
}


class Side(nn.Module):
    """Many models side by side, captured at one go."""

    def __init__(self, models) -> None:
        super().__init__()
        self.models = nn.ModuleList(models.values())

    def forward(self, calls):
        return [model(*call) for model, call in zip(self.models, calls, strict=True)]


def with_norm(name):
    layer, shape = FOLDS[name]
    channels = getattr(layer, "out_channels", None) or layer.out_features
    plain = "groups" in name  # now and then without scale and shift of its own
    return nn.Sequential(layer, norm(len(shape) + 1, channels, affine=not plain, eps=1e-2)).eval()


@pytest.fixture(scope="module")
def folded():
    """Each model that folds: its answer, and the answer and ops of the folded graph."""
    torch.manual_seed(0)
    models = {name: with_norm(name) for name in FOLDS}
    calls = [(torch.randn(3, *shape),) for _, shape in FOLDS.values()]
    program = fold_affine(clean(capture(Side(models).eval(), (calls,))))
    found = answers(program, *(x for (x,) in calls))
    last = {out.name: node for out in program.outputs for node in program.nodes if node.name == out.name}
    with torch.no_grad():
        return {
            name: (model(*call), value, last[out.name], program)
            for (name, model), call, value, out in zip(models.items(), calls, found, program.outputs, strict=True)
        }


@pytest.mark.parametrize("name", FOLDS)
def test_batch_norm_folds(name, folded) -> None:
    expected, found, node, program = folded[name]
    assert node.op != "aten.batch_norm"
    assert node.inputs[0] in {i.name for i in program.inputs}  # one op between input and answer
    assert_close(found, expected)


class OneConvTwoNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.first, self.second = norm(4, 4), norm(4, 4)

    def forward(self, x):
        return self.first(self.conv(x)).relu(), self.second(self.conv(x + 1)).relu(), self.conv(x - 1)


@torch.no_grad()
def test_shared_conv_gets_weights_for_each_norm() -> None:
    model = OneConvTwoNorms().eval()
    x = torch.randn(3, 3, 8, 8)
    folded = fold_affine(clean(capture(model, (x,))))
    assert "batch_norm" not in ops(folded)
    assert ops(folded).count("conv2d") == 3
    for found, expected in zip(answers(folded, x), model(x), strict=True):
        assert_close(found, expected)


class Unfoldable(nn.Module):
    """A conv that is read twice; a conv that is an answer; a norm behind nothing, and one behind a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
        self.norms = nn.ModuleList([norm(4, 3) for _ in range(4)])

    def forward(self, x):
        x = self.norms[0](x)
        y = self.a(x)
        z = self.b(y.relu())
        return self.norms[1](y) + y.sum(), self.norms[2](z), z, self.norms[3](y.relu())


@torch.no_grad()
def test_norm_stays_where_it_cannot_go() -> None:
    model = Unfoldable().eval()
    x = torch.randn(3, 3, 8, 8)
    program = clean(capture(model, (x,)))
    folded = fold_affine(program)
    assert ops(folded).count("batch_norm") == 4
    for found, expected in zip(answers(folded, x), model(x), strict=True):
        assert torch.equal(found, expected)


class Frozen(nn.Module):
    """FrozenBatchNorm, LayerScale and the like: multiplied and added by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear, self.up = nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.ConvTranspose2d(4, 4, 2)
        self.weight: torch.Tensor
        self.bias: torch.Tensor
        self.mean: torch.Tensor
        self.var: torch.Tensor
        for name in ("weight", "bias", "mean"):
            self.register_buffer(name, torch.randn(4))
        self.register_buffer("var", torch.rand(4) + 0.5)
        self.gamma = nn.Parameter(torch.randn(4))
        self.plane = nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        scale = self.weight * (self.var + 1e-5).rsqrt()
        shift = self.bias - self.mean * scale
        x = self.conv(x) * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)
        y = self.gamma * self.linear(x.movedim(1, -1)) - self.bias
        z = self.bias[:, None, None] - self.up(x)  # subtracted the other way round: not an affine we fold
        flat = self.conv(x[:, :3]) * self.plane[:4, :4]  # varies along the image, not the channels
        alpha = torch.add(self.up(x), self.bias[:, None, None], alpha=2.0)
        return y, z, flat, alpha


@torch.no_grad()
def test_scales_and_shifts_by_hand() -> None:
    model = Frozen().eval()
    x = torch.randn(3, 3, 8, 8)
    folded = fold_affine(clean(capture(model, (x,))))
    for found, expected in zip(answers(folded, x), model(x), strict=True):
        assert_close(found, expected)
    first = next(n for n in folded.nodes if n.op == "aten.conv2d")
    assert first.args[1].name.endswith(".folded")
    assert ops(folded).count("mul") == 1  # the plane


@torch.no_grad()
def test_folding_is_rounded_once() -> None:
    """A norm of nearly no variance scales by 1e5; float64 until the end keeps every bit there is."""
    conv, bn = nn.Conv2d(3, 4, 1), norm(4, 4, eps=1e-10)
    bn.running_var.fill_(1e-10)
    bn.running_mean.copy_(conv.bias)
    folded = fold_affine(clean(capture(nn.Sequential(conv, bn).eval(), (torch.randn(2, 3, 8, 8),))))
    scale = bn.weight.double() / (bn.running_var.double() + bn.eps).sqrt()
    node = next(n for n in folded.nodes if n.op == "aten.conv2d")
    weight, bias = (folded.tensors[node.args[i].name] for i in (1, 2))
    assert torch.equal(weight, (conv.weight.double() * scale[:, None, None, None]).float())
    assert torch.equal(bias, bn.bias)


class Attention(nn.Module):
    def __init__(self, **settings) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.settings)


def qkv(heads=2, kv_heads=2, length=5, keys=6):
    return torch.randn(3, heads, length, 4), torch.randn(3, kv_heads, keys, 4), torch.randn(3, kv_heads, keys, 4)


def bool_mask():
    mask = torch.rand(3, 1, 5, 6) < 0.6
    mask[1, :, 2] = False  # a row that sees nothing
    return mask


ATTENTION: dict[str, tuple[dict[str, Any], tuple[torch.Tensor, ...], torch.Tensor | None]] = {
    "plain": ({}, qkv(), None),
    "three axes": ({}, tuple(t[:, 0] for t in qkv()), None),
    "scale": ({"scale": 0.3}, qkv(), None),
    "float mask": ({}, qkv(), torch.randn(3, 1, 5, 6)),
    "shared mask": ({"scale": 2.0}, qkv(), torch.randn(5, 6)),
    "infinite mask": ({}, qkv(), torch.zeros(3, 1, 5, 6).masked_fill(~bool_mask(), -math.inf)),
    "bool mask": ({}, qkv(), bool_mask()),
    "causal": ({"is_causal": True}, qkv(), None),
    "causal long": ({"is_causal": True, "scale": 0.5}, qkv(length=7, keys=4), None),
    "grouped heads": ({"enable_gqa": True}, qkv(heads=6, kv_heads=2), None),
    "grouped and masked": ({"enable_gqa": True}, qkv(heads=4, kv_heads=1), bool_mask()),
}


@pytest.fixture(scope="module")
def opened():
    """Each attention: its answer, that of the captured graph, and that of the graph with attention opened."""
    models = {name: Attention(**settings) for name, (settings, _, _) in ATTENTION.items()}
    calls = [tensors if mask is None else (*tensors, mask) for _, tensors, mask in ATTENTION.values()]
    program = clean(capture(Side(models).eval(), (calls,)))
    flat = [t for call in calls for t in call]
    products = simplify(program)
    assert ops(program).count("scaled_dot_product_attention") == len(ATTENTION)
    assert ops(products).count("matmul") == 2 * len(ATTENTION)
    assert not any("scaled_dot_product" in o for o in ops(products))
    expected = [model(*call) for model, call in zip(models.values(), calls, strict=True)]
    found = zip(expected, answers(program, *flat), answers(products, *flat), strict=True)
    return dict(zip(ATTENTION, found, strict=True))


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_opened(name, opened) -> None:
    expected, captured, found = opened[name]
    assert torch.equal(captured, expected)
    assert_close(found, expected)
    if "bool" in name:
        assert not found[1, :, 2].any()


@torch.no_grad()
def test_grouped_values_with_their_own_number_of_heads() -> None:
    """Keys as wide as the queries, values grouped: each is repeated as often as it needs."""
    model = Attention(enable_gqa=True).eval()
    q, k, _ = qkv(heads=4, kv_heads=4)
    v = torch.randn(3, 2, 6, 4)
    expected = torch.softmax(q @ k.mT / 2, -1) @ v.repeat_interleave(2, 1)
    assert_close(model(q, k, v), expected)
    assert_close(answers(simplify(clean(capture(model, (q, k, v)))), q, k, v)[0], expected)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Attention(dropout_p=0.1)

    def forward(self, q, k, v):
        return self.inner(q, k, v)


def test_attention_that_drops_out_is_refused() -> None:
    program = clean(capture(Layer().eval(), qkv()))
    with pytest.raises(CaptureError, match=r"attention in 'inner' drops out.*dropout") as error:
        simplify(program)
    assert "\n" not in str(error.value)
