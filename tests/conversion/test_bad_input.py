"""Every mistake is one clear line that says what to do, and leaves the caller's things as they were."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from torch import nn

from spikecast import Config, convert
from spikecast.errors import ConfigError, DataError, ModelError, SpikecastError, StrictError

QUICK = Config(num_steps=2, num_levels=2, thresholds="quantile")
X = torch.randn(4, 3, 8, 8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 2)
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        x = self.norm(self.a(x)).relu()
        return self.head(self.drop(self.b(x).relu().mean((2, 3))))


def net(**weights):
    made = Net().eval()
    for name, value in weights.items():
        getattr(made, name).weight.data.view(-1)[0] = value
    return made


def train(part):
    made = net()
    (made if part is None else getattr(made, part)).train()
    return made


class Bad(list[torch.Tensor]):
    """A loader that breaks after its first batch."""

    def __iter__(self):
        yield X
        raise OSError("disk")


MISTAKES = {
    "empty loader": (lambda: convert(net(), [], QUICK), DataError, r"no batch; give"),
    "empty generator": (lambda: convert(net(), iter(()), QUICK), DataError, r"no batch"),
    "no loader": (lambda: convert(net(), None, QUICK), DataError, r"NoneType; give a loader"),
    "NaN image": (lambda: convert(net(), [X / 0 * 0], QUICK), DataError, r"holds NaN; clean"),
    "inf image": (lambda: convert(net(), [X, X / 0], QUICK), DataError, r"holds (inf|NaN); clean"),
    "NaN weight": (lambda: convert(net(b=torch.nan), [X], QUICK), ModelError, r"'b.weight' holds NaN.*checkpoint"),
    "inf weight": (lambda: convert(net(head=torch.inf), [X], QUICK), ModelError, r"'head.weight' holds"),
    "bytes": (lambda: convert(net(), [(X * 50).byte()], QUICK), DataError, r"cannot take the call: .*; give"),
    "double": (lambda: convert(net(), [X.double()], QUICK), DataError, r"float64 and the model torch.float32"),
    "channels": (lambda: convert(net(), [X[:, :2]], QUICK), DataError, r"cannot take the call: .*; give"),
    "too small": (lambda: convert(net(), [X[..., :3]], QUICK), DataError, r"cannot take the call: .*; give"),
    "empty batch": (lambda: convert(net(), [X[:0]], QUICK), DataError, r"\(0, 3, 8, 8\) holds no samples; drop"),
    "empty later": (lambda: convert(net(), [X, X[:0]], QUICK), DataError, r"holds no samples"),
    "no height": (lambda: convert(net(), [X[:, :, :0]], QUICK), DataError, r"\(4, 3, 0, 8\) holds no samples"),
    "later shape": (lambda: convert(net(), [X, X[:, :1]], QUICK), DataError, r"\(4, 1, 8, 8\)"),
    "key": (lambda: convert(net(), [{"image": X}], QUICK), DataError, r"\['image'\] lacks x.*rename"),
    "too many": (lambda: convert(net(), [(X, X, X)], QUICK), DataError, r"3 items.*inputs="),
    "array": (lambda: convert(net(), [X.numpy()], QUICK), DataError, r"ndarray; yield a tensor"),
    "batch elsewhere": (lambda: convert(net(), [X.to("meta")], QUICK), DataError, r"on meta and the model on cpu"),
    "model elsewhere": (lambda: convert(net().to("meta"), [X], QUICK), ModelError, r"'a.weight' is on the meta"),
    "training": (lambda: convert(train(None), [X], QUICK), ModelError, r"Net .*it is in training.*model.eval\(\)"),
    "training norm": (lambda: convert(train("norm"), [X], QUICK), ModelError, r"module 'norm' is in training"),
    "training drop": (lambda: convert(train("drop"), [X], QUICK), ModelError, r"module 'drop' is in training"),
    "no model": (lambda: convert(net().forward, [X], QUICK), ModelError, r"not a torch.nn.Module"),
    "settings": (lambda: convert(net(), [X], cast(Any, {"num_steps": 2})), ConfigError, r"config is a dict"),
    "T = 0": (lambda: Config(num_steps=0), ConfigError, r"num_steps=0 must be"),
    "n = 0": (lambda: Config(num_levels=0), ConfigError, r"num_levels=0 must be"),
    "field": (lambda: Config.from_json({"steps": 3}), ConfigError, r"unknown setting 'steps' .*; the settings are"),
    "pattern": (
        lambda: convert(net(), [X], Config(thresholds="quantile", overrides={"relo": None})),
        ConfigError, r"no site is called 'relo'; sites are",
    ),
    "strict": (
        lambda: convert(net(), [X], Config(overrides={"relu": None, "b.input": None}), strict=True),
        StrictError, r"not fed by spikes; remove the override",
    ),
    "no region": (lambda: convert(net(), [X], QUICK, regions=["c"]), ModelError, r"no submodule 'c'; it has a, norm"),
    "regions twice": (lambda: convert(net(), [X], QUICK, regions=["a", "a"]), ModelError, r"'a' and 'a' overlap"),
    "region string": (lambda: convert(net(), [X], QUICK, regions="a"), ModelError, r"must be a list"),
    "no regions": (lambda: convert(net(), [X], QUICK, regions=[]), ModelError, r"must be a list"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_one_clear_line(name) -> None:
    function, kind, words = MISTAKES[name]
    with pytest.raises(kind, match=words) as error:
        function()
    assert isinstance(error.value, SpikecastError)
    message = str(error.value)
    assert "\n" not in message
    assert 20 < len(message) < 400
    assert message[-1] != "."


@pytest.fixture(scope="module")
def snn():
    torch.manual_seed(0)
    return convert(net(), [X], QUICK)


RUNS = {
    "nothing": ((), {}, r"without a tensor"),
    "text": (("image",), {}, r"without a tensor"),
    "NaN": ((X * torch.nan,), {}, r"\(4, 3, 8, 8\) holds NaN"),
    "inf": ((X + torch.inf,), {}, r"holds inf"),
    "channels": ((X[:, :2],), {}, r"\(4, 2, 8, 8\).*cannot take the call: "),
    "too small": ((X[..., :4],), {}, r"cannot take the call"),
    "rank": ((X.unsqueeze(0),), {}, r"\(1, 4, 3, 8, 8\)"),
    "double": ((X.double(),), {}, r"float64, not torch.float32"),
    "integers": ((X.long(),), {}, r"int64, not torch.float32"),
    "elsewhere": ((X.to("meta"),), {}, r"on meta, the network on cpu; move"),
    "two": ((X, X), {}, r"other arguments.*2 positional arguments but 3|other arguments"),
    "keyword": ((X,), {"mask": X}, r"other arguments.*mask"),
}


@pytest.mark.parametrize("name", RUNS)
def test_calls_that_do_not_fit(name, snn) -> None:
    args, kwargs, words = RUNS[name]
    for call in (snn, snn.run, snn.analog, snn.record, snn.anytime, lambda *a, **k: next(snn.steps(*a, **k))):
        with pytest.raises(DataError, match=words) as error:
            call(*args, **kwargs)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 400
    assert snn(X).shape == (4, 2)  # and it still works


def test_thresholds_of_each_neuron_fit_one_size_only() -> None:
    snn = convert(net(), [X], Config(num_steps=2, thresholds="quantile", granularity="neuron"))
    with pytest.raises(DataError, match=r"site 'relu' has thresholds of shape \(1, 4, 6, 6\).*\(4, 4, 8, 8\).*channel"):
        snn(torch.randn(4, 3, 10, 10))


class Odd(Net):
    """Takes another path where the width is odd."""

    def forward(self, x):
        return super().forward(x[..., 1:] if x.shape[-1] % 2 else x)


def doubled(model: nn.Module) -> None:
    model.a.weight.data.mul_(2)  # which torch does not count as a change


def swapped(model: nn.Module) -> None:
    model.a.weight.data = model.a.weight.data.flip(0)  # the same numbers elsewhere


def replaced(model: nn.Module) -> None:
    model.norm = nn.Identity().eval()


def another(model: nn.Module) -> None:
    model.a.weight = nn.Parameter(model.a.weight.detach() + 1)


def moved(model: nn.Module) -> None:
    model.norm.running_mean.add_(1)


CHANGES: dict[Any, str] = {
    doubled: r"changed since conversion \(weight 'a.weight' is not as it was\).*; convert it again$",
    swapped: r"\(weight 'a.weight' is",
    replaced: r"\(module 'norm' is",
    another: r"\(weight 'a.weight' is",
    moved: r"\(weight 'norm.running_mean' is",
    nn.Module.train: "training mode",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_changed_is_not_captured_again(change) -> None:
    model = Odd().eval()
    snn = convert(model, [X], QUICK)
    change(model)
    assert snn(X).shape == (4, 2)  # what was captured stays
    with pytest.raises(ModelError, match=CHANGES[change]) as error:
        snn(torch.randn(4, 3, 8, 9))
    assert "\n" not in str(error.value)


def test_a_model_that_is_as_it_was_is_captured_again() -> None:
    model = Odd().eval()
    snn = convert(model, [X], QUICK)
    model.a.weight.data.mul_(2)
    model.a.weight.data.div_(2)
    model.norm = copy.deepcopy(model.norm)
    assert snn(torch.randn(4, 3, 8, 9)).shape == (4, 2)


def state(model):
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        [m.training for m in model.modules()],
        dict(vars(model)),
    )


def assert_untouched(model, before) -> None:
    tensors, flags, attributes = before
    assert all(torch.equal(v, tensors[k]) for k, v in model.state_dict().items())
    assert [m.training for m in model.modules()] == flags
    assert vars(model).keys() == attributes.keys()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())
    assert all(p.grad is None for p in model.parameters())


FAILS: dict[str, tuple[Any, dict[str, Any]]] = {
    "success": ([X, X], {}),
    "late NaN": ([X, X * torch.nan], {}),
    "broken loader": (Bad(), {}),
    "regions": ([X], {"regions": ["a", "head"]}),
    "late in a region": ([X, X * torch.nan], {"regions": ["a", "head"]}),
    "never called": ([X], {"regions": ["a", "drop", "spare"]}),
    "strict": ([X], {"strict": True, "config": Config(overrides={"b.input": None, "relu": None})}),
}


@pytest.mark.parametrize("name", FAILS)
def test_the_model_is_untouched(name) -> None:
    batches, settings = FAILS[name]
    model = net()
    model.spare = nn.Linear(2, 2).eval()
    before, data = state(model), X.clone()
    kind = {"success": None, "regions": None, "broken loader": OSError}.get(name, SpikecastError)
    if kind is None:
        convert(model, batches, QUICK, **settings)
    else:
        with pytest.raises(kind):
            convert(model, batches, settings.pop("config", QUICK), **settings)
    assert_untouched(model, before)
    assert torch.equal(X, data)
    assert torch.is_grad_enabled()


class Writes(Net):
    """Counts its calls in a buffer, and centres its input where it lies."""

    def forward(self, x):
        self.calls += 1
        x.sub_(x.mean((2, 3), keepdim=True))
        return super().forward(x)


def test_a_model_that_writes() -> None:
    model = Writes().eval()
    data, twin = X.clone(), copy.deepcopy(model)
    before = state(model)
    snn = convert(model, [X], QUICK)
    assert_untouched(model, before)
    assert torch.equal(X, data)
    with torch.no_grad():
        assert torch.allclose(snn.analog(X), twin(X.clone()), atol=1e-5)
    assert torch.equal(X, data)


def test_weights_are_copies(snn) -> None:
    model = net()
    made = convert(model, [X], QUICK)
    expected = made(X)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    assert torch.equal(made(X), expected)
