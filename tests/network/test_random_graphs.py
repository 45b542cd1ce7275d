"""Random small networks: with its neurons off the network is the model, and with them on it comes ever closer."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.graph.program import NEURON

WIDTH = 4
# What passes spikes on: it moves or averages them.
MOVES = ("cat", "avg_pool", "mean", "reshape", "transpose", "permute", "slice", "select", "expand", "split", "flatten")
WEIGHTED = ("conv", "linear", "matmul", "bmm", "einsum")


class Attend(nn.Module):
    """Pixels attend to pixels, in two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        tokens = x.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).unflatten(2, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.out(y).transpose(1, 2).reshape(x.shape)


class Gate(nn.Module):
    """Channels weighted by what the whole image says."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x * self.line(x.mean((2, 3))).sigmoid()[:, :, None, None]


class Last(nn.Module):
    """A linear layer and a LayerNorm over the channels, as in ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.line = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.line(self.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


BLOCKS = {
    "conv": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
    "grouped": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=2, bias=False),
    "norm": lambda: nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 1), nn.BatchNorm2d(WIDTH)),
    "up": lambda: nn.ConvTranspose2d(WIDTH, WIDTH, 3, padding=1),
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "clamp": lambda: nn.Hardtanh(-1, 2),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky": nn.LeakyReLU,
    "group norm": lambda: nn.GroupNorm(2, WIDTH),
    "max pool": lambda: nn.MaxPool2d(3, 1, 1),
    "average": lambda: nn.AvgPool2d(3, 1, 1),
    "attend": Attend,
    "gate": Gate,
    "last": Last,
}
JOINS = ("add", "concat", "product")


class Net(nn.Module):
    """Blocks in a row; a join takes an earlier value along."""

    def __init__(self, recipe) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.recipe = recipe
        made = [BLOCKS[r]() if isinstance(r, str) else nn.Conv2d(2 * WIDTH, WIDTH, 1) for r in recipe]
        self.blocks = nn.ModuleList(made)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x):
        values = [self.stem(x)]
        for step, block in zip(self.recipe, self.blocks, strict=True):
            now = values[-1]
            if isinstance(step, str):
                values.append(block(now))
                continue
            join, back = step
            other = values[back % len(values)]
            if join == "add":
                values.append(now + other)
            elif join == "product":
                values.append(now * torch.tanh(other))
            else:
                values.append(block(torch.cat([other, now], 1)))
        return self.head(values[-1].mean((2, 3)))


# A bend, something between, and something weighted or a join: what decides where neurons go is their order.
BENDS = ("relu", "relu", "relu6", "clamp", "gelu", "silu", "leaky", None)
BETWEEN = ("group norm", "max pool", "average", "gate", None, None)
WEIGHTS = ("conv", "grouped", "norm", "up", "attend", "last")
STEPS = st.tuples(
    st.sampled_from(BENDS),
    st.sampled_from(BETWEEN),
    st.one_of(st.sampled_from(WEIGHTS), st.tuples(st.sampled_from(JOINS), st.integers(0, 7))),
)
RECIPES = st.lists(STEPS, min_size=1, max_size=3).map(lambda steps: [b for step in steps for b in step if b])
CONFIGS = st.builds(
    Config,
    num_steps=st.just(4),
    num_levels=st.sampled_from([3, 8]),
    coding=st.sampled_from(["differential", "differential", "rate"]),
    thresholds=st.sampled_from(["auto", "quantile"]),
    granularity=st.sampled_from(["channel", "layer", "neuron"]),
    encode_input=st.booleans(),
)


def assert_fed_by_spikes(snn) -> None:
    """By a walk of its own: behind every weighted op lie neurons, or the image itself."""
    program = snn.plan.program
    nodes = {n.name: n for n in program.nodes}
    image = {i.name for i in program.inputs} if not snn.config.encode_input else set()

    def sent(name) -> bool:
        node = nodes.get(name)
        if node is None:
            return name in image
        if node.target == NEURON:
            return True
        sources = [r for r in node.inputs if r not in program.tensors and nodes.get(r, node).meta is not None]
        moves = node.target == "getitem" or any(m in node.op for m in MOVES)
        return moves and all(sent(r) for r in sources)

    weighted = [n for n in nodes.values() if any(w in n.op for w in WEIGHTED)]
    assert weighted
    for node in weighted:
        for name in node.inputs:
            if name not in program.tensors:
                assert sent(name), f"{node.op} in {node.scope} reads {name}"


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=RECIPES, config=CONFIGS, seed=st.integers(0, 2**31))
@torch.no_grad()
def test_random_networks(recipe, config, seed) -> None:
    torch.manual_seed(seed)
    model = Net(recipe).eval().double()  # in float64 no spike hangs on the last bit
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    x = torch.randn(6, 3, 6, 6).double()
    expected = model(x)
    snn = convert(model, [x], config, strict=True)

    def error(answer):
        return float(((answer - expected).norm(dim=1) / expected.norm(dim=1)).median())

    assert error(snn.analog(x)) <= 1e-5
    folded = snn.run(x, num_steps=32)
    stepwise = torch.stack([y for _, y in snn.steps(x, num_steps=4)])
    assert snn.foldable
    assert torch.allclose(folded[:4], stepwise, atol=1e-8)
    assert torch.allclose(snn.run(x, max_batch=8), stepwise, atol=1e-8)
    assert error(folded[31]) < max(error(folded[1]), 0.02)  # where all but the biases is small, T = 2 may be lucky
    assert_fed_by_spikes(snn)
