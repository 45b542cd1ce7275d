"""Wrapped models are taken as the model inside; what cannot be converted is refused in one line with the remedy."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.utils import parametrizations, parametrize

import spikecast
from spikecast import Config, convert
from spikecast.conversion.accepted import accepted
from spikecast.errors import CaptureError, DataError, ModelError
from tests.nets import relative

QUICK = Config(num_steps=2, num_levels=2, thresholds="quantile")
X = torch.randn(4, 3, 6, 6)
ROWS = [("conv2d", "0.0"), ("relu", "0.1"), ("flatten", "1"), ("linear", "2")]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
    return nn.Sequential(body, nn.Flatten(), nn.Linear(144, 5)).eval()


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A group of processes that is this one alone."""
    place = tmp_path_factory.mktemp("group") / "meeting"
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def compiled(model: nn.Module) -> Any:
    return torch.compile(model)


def in_place() -> nn.Module:
    model = net()
    model.compile()
    return model


def in_part() -> Any:
    model = net()
    model[0] = compiled(model[0])
    model[0]._orig_mod[0].compile()  # type: ignore[index, union-attr]
    model.compile()
    return model


def compiled_forward() -> nn.Module:
    model = net()
    model.forward = compiled(model.forward)  # type: ignore[arg-type, method-assign]
    model[0].forward = compiled(model[0].forward)  # type: ignore[arg-type]
    return model


def sharded(**settings: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it is old
        return FullyShardedDataParallel(net(), device_id=torch.device("cpu"), **settings)


def sharded_anew() -> Any:
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    model = net()
    fully_shard(model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh)


WRAPPED: dict[str, Callable[[], nn.Module]] = {
    "compile": lambda: compiled(net()),
    "compiled in place": in_place,
    "compiled in part": in_part,
    "compiled forward": compiled_forward,
    "DataParallel": lambda: DataParallel(net()),
    "DDP": lambda: DistributedDataParallel(net()),
    "compile of DDP": lambda: compiled(DistributedDataParallel(net())),
    "FSDP": sharded,
    "FSDP of parts": lambda: sharded(auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), use_orig_params=True),
    "fully_shard": sharded_anew,
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_models(name: str, one_process) -> None:
    model = WRAPPED[name]()
    before = [(name, type(m), dict(m._parameters)) for name, m in model.named_modules()]
    snn = convert(model, [X], QUICK)
    assert [(row.op, row.scope) for row in snn.report.rows] == ROWS
    assert relative(snn.analog(X), net()(X)) < 1e-6
    after = [(name, type(m), dict(m._parameters)) for name, m in model.named_modules()]
    assert [(name, kind, list(own)) for name, kind, own in after] == [
        (name, kind, list(own)) for name, kind, own in before
    ]
    assert all(a[2][name] is b[2][name] for a, b in zip(after, before, strict=True) for name in a[2])


def test_a_forward_with_a_compiled_function_is_not_compiled() -> None:
    seen = []

    def backend(graph: torch.fx.GraphModule, example: Any) -> Any:
        seen.append(graph)
        return graph

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = net()
            self.fast = torch.compile(torch.relu, backend=backend)

        def forward(self, x: Tensor) -> Tensor:
            return self.fast(self.layers(x))

    model = Net().eval()
    snn = convert(model, [X], QUICK)
    assert seen == []
    assert relative(snn.analog(X), net()(X).relu()) < 1e-6


def test_names_are_those_of_the_model_inside(tmp_path) -> None:
    model = compiled(DataParallel(net()))
    assert convert(model, [X], Config(num_steps=2, overrides={"0.1": None})).sites.keys() == {"2.input"}
    parts = convert(model, [X], QUICK, regions=["0", "2"])
    assert list(parts.networks) == ["0", "2"]
    parts.save(tmp_path / "parts.spikecast")
    again = spikecast.load(tmp_path / "parts.spikecast", model=model)
    assert torch.equal(again(X), parts(X))


def test_regions_of_a_model_with_a_compiled_forward() -> None:
    """A copy of the model, in which they stand, must not call the forward of the model itself."""
    model = compiled_forward()
    assert relative(convert(model, [X], QUICK, regions=["0", "2"]).analog(X), net()(X)) < 1e-6
    assert "forward" in vars(model)


def test_a_plain_model_is_taken_as_it_is() -> None:
    model = net()
    assert accepted(model) is model
    wrapped = in_part()
    plain: Any = accepted(wrapped)
    assert plain[2] is wrapped[2]
    assert plain[0][0].weight is wrapped[0]._orig_mod[0].weight


class Tied(nn.Module):
    """Two wrapped layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu())


def test_tied_weights() -> None:
    with torch.inference_mode():  # so that every weight is copied
        model = Tied().eval()
    plain: Any = accepted(model)
    assert plain.a.weight is plain.b.weight is not model.a.weight
    x = torch.randn(4, 6)
    assert relative(convert(model, [x], QUICK).analog(x), model(x)) < 1e-6


def weight_normed(layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(layer)


class LowRank(nn.Module):
    """What an adapter does once it is merged: W + B·A."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(2, layer.in_features) / 10)
        self.b = nn.Parameter(torch.randn(layer.out_features, 2) / 10)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.b @ self.a


PARAMETRIZED: dict[str, Callable[[Any], Any]] = {
    "weight_norm, old": weight_normed,
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm, old": nn.utils.spectral_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "low rank": lambda layer: parametrize.register_parametrization(layer, "weight", LowRank(layer)),
}


@pytest.mark.parametrize("name", PARAMETRIZED)
def test_parametrized_weights_are_constants(name: str) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
    PARAMETRIZED[name](model[2])
    model.eval()
    x = torch.randn(4, 6)
    before = copy.deepcopy(model.state_dict())
    snn = convert(model, [x], QUICK)
    assert [(row.target, row.scope, row.status) for row in snn.report.rows] == [
        ("aten.linear.default", "0", "analog"),
        ("aten.relu.default", "1", "spiking"),
        ("aten.linear.default", "2", "spiking"),
    ]
    assert relative(snn.analog(x), model(x)) < 1e-6
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_where_the_caller_is_does_not_matter() -> None:
    expected = convert(net(), [X], QUICK)
    with torch.inference_mode():
        model, x = net(), X.clone()
        inside = convert(model, [x], QUICK)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = convert(net(), [X], QUICK)
        assert torch.is_autocast_enabled("cpu")
    for snn in (inside, cast, convert(model, [x], QUICK)):
        assert torch.equal(snn(X), expected(X))
    goal = Config(num_steps=1, energy_budget=0.5)
    assert convert(net(), [x], goal).report.notes == ()  # gradients are found
    with torch.inference_mode():
        assert inside(X[..., :4].repeat_interleave(2, -1)[..., 1:7]).shape == (4, 5)


class Decides(nn.Module):
    """Goes another way by what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 3), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        return self.b(x * 2 if x.sum() > 0 else x)


class Whole(nn.Module):
    """Has one part that decides."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.stem, self.parts, self.act = nn.Linear(6, 6), nn.ModuleList([nn.Linear(6, 6), part]), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for part in self.parts:
            x = self.act(part(x))
        return x


class Leaves(Decides):
    """Leaves torch on its way."""

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.from_numpy(self.a(x).numpy()))


FLAT = torch.randn(4, 6)
LINE = Decides.forward.__code__.co_firstlineno + 2


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Decides(), rf"^Decides.forward decides .* at line {LINE} of {__file__}, .*; take torch.where there, or "
         r"convert the parts around it with regions='auto', or regions=\['a', 'b'\]$"),
        (Whole(Decides()), rf"^Whole.forward decides .* at line {LINE} of .*"
         r"regions='auto', or regions=\['stem', 'parts.0', 'parts.1.a', 'parts.1.b'\]$"),
        (Leaves(), r"^torch.export cannot capture Leaves.forward whole: .*numpy.* at line \d+ of .*"
         r"regions='auto', or regions=\['a', 'b'\]$"),
    ],
)  # fmt: skip
def test_what_cannot_be_captured(model: nn.Module, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CaptureError, match=words) as error:
        convert(model.eval(), [FLAT], QUICK)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def quantised(kind: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is to be removed, and says so
        from torch.ao import quantization as ao

        if kind == "dynamic":
            return ao.quantize_dynamic(net(), {nn.Linear})
        model = nn.Sequential(ao.QuantStub(), net(), ao.DeQuantStub()).eval()
        if kind == "float":
            return model
        model.qconfig = ao.get_default_qconfig("x86")
        ao.prepare(model, inplace=True)
        model(X)
        return model if kind == "prepared" else ao.convert(model)


def scripted(*, part: bool = False) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if part:
            model = net()
            model[0] = torch.jit.trace(model[0], X)
            return model
        return torch.jit.script(net())


def weighted(change: Callable[[Tensor], Tensor]) -> nn.Module:
    layer = nn.Linear(6, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some forms are in beta
        layer.weight = nn.Parameter(change(layer.weight.detach()))
    return nn.Sequential(layer).eval()


def nested() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([FLAT, FLAT[:2]])


LINEAR = nn.Sequential(nn.Linear(6, 5)).eval()
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "quantised": (lambda: convert(quantised("static"), [X], QUICK), ModelError,
                  r"^module '0' of Sequential is quantised.*convert the float model"),
    "quantised in part": (lambda: convert(quantised("dynamic"), [X], QUICK), ModelError,
                          r"^module '2' of Sequential is quantised.*dynamic.*convert the float model"),
    "observed": (lambda: convert(quantised("prepared"), [X], QUICK), ModelError,
                 r"prepared for it \(torch.ao.quantization.observer.*convert the float model"),
    "scripted": (lambda: convert(scripted(), [X], QUICK), ModelError,
                 r"^the model is TorchScript .*; convert the original module"),
    "traced in part": (lambda: convert(scripted(part=True), [X], QUICK), ModelError,
                       r"^module '0' of Sequential is TorchScript .*; convert the original module"),
    "sparse weight": (lambda: convert(weighted(Tensor.to_sparse_csr), [FLAT], QUICK), ModelError,
                      r"^weight '0.weight' is sparse \(torch.sparse_csr\), .*; give such a weight"),
    "complex weight": (lambda: convert(weighted(lambda w: w.to(torch.complex64)), [FLAT], QUICK), ModelError,
                       r"^weight '0.weight' is complex, .*; give such a weight"),
    "sparse input": (lambda: convert(LINEAR, [FLAT.to_sparse()], QUICK), DataError,
                     r"^an input is sparse \(torch.sparse_coo\), .*; give such a tensor"),
    "nested input": (lambda: convert(LINEAR, [nested()], QUICK), DataError, r"^an input is nested, .*; give"),
    "complex input": (lambda: convert(LINEAR, [FLAT.to(torch.complex64)], QUICK), DataError,
                      r"^an input is complex, .*; give"),
    "lazy weight": (lambda: convert(nn.Sequential(nn.LazyLinear(4)).eval(), [FLAT], QUICK), ModelError,
                    r"^weight '0.weight' has no size yet, as in nn.LazyLinear; call the model on a batch first$"),
    "lazy buffer": (lambda: convert(nn.Sequential(nn.LazyBatchNorm1d(affine=False)).eval(), [FLAT], QUICK), ModelError,
                    r"^weight '0.running_mean' has no size yet"),
    "complex run": (lambda: convert(LINEAR, [FLAT], QUICK)(FLAT.to(torch.complex64)), DataError,
                    r"^an input is complex, .*; give"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name: str) -> None:
    code, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words) as error:
        code()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_float_model_that_may_be_quantised_is_taken() -> None:
    assert list(convert(quantised("float"), [X], QUICK).sites) == ["1.0.1"]
