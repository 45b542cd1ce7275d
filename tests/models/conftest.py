"""What every converted model must show, whatever it is."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.coverage.examine import settle
from spikecast import Config, SpikingNetwork, convert
from spikecast.graph.structure import flatten
from spikecast.network.report import Report
from tests.nets import relative

EARLY, LATE = 2, 16
Examine = Callable[..., SpikingNetwork]


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """All of a model that a conversion could change: tensors, flags, hooks, attributes."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    found: dict[str, Any] = {
        f"tensor {name}": (id(t), t._version, t.requires_grad, t.grad is None, float(t.detach().double().abs().sum()))
        for name, t in tensors.items()
    }
    for name, module in model.named_modules():
        hooks = {key: list(value) for key, value in vars(module).items() if "hook" in key and value}
        found[f"module {name}"] = (id(module), module.training, sorted(vars(module)), hooks)
    return found


def tensors(answer: Any) -> list[Tensor]:
    """The tensors of an answer; those of a run have time in front."""
    return [leaf for leaf in flatten(answer)[0] if isinstance(leaf, Tensor)]


def by_sample(found: Sequence[Tensor], expected: Sequence[Tensor], axis: int) -> Tensor:
    """Relative L2 distance of each sample, all leaves of its answer together."""

    def rows(leaves: Sequence[Tensor]) -> Tensor:
        return torch.cat([leaf.movedim(axis, 0).flatten(1).double() for leaf in leaves], 1)

    ours, theirs = rows(found), rows(expected)
    return (ours - theirs).norm(dim=1) / theirs.norm(dim=1)


def rounding(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], expected: Any) -> float:
    """How far float32 carries the model from itself: a random, deep net amplifies the last bit."""

    def doubled(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    twin = copy.deepcopy(model).double()
    exact = twin(*map(doubled, args), **{k: doubled(v) for k, v in kwargs.items()})
    return relative(expected, exact)


def check_report(report: Report, first_layers: int) -> None:
    """Every op is known, and only the first layers read something else than spikes."""
    assert report.unknown == []
    weighted = [row for row in report.rows if row.macs]
    analog = [row for row in weighted if row.status != "spiking"]
    assert [row.why for row in analog] == ["analog input"] * first_layers
    assert all(row.status in ("spiking", "graded", "affine", "shape") for row in report.rows if row not in analog)
    assert len(weighted) > len(analog)


def run_and_steps(snn: SpikingNetwork, args: Sequence[Any], kwargs: Mapping[str, Any], axis: int) -> Tensor:
    """How far `run` and `steps` are apart in the median sample, after each of three steps.

    oneDNN may round a convolution otherwise when steps lie in its batch. That tips a spike once in a while, and one
    spike can change all that follows in a random net: so oneDNN is off here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the build lacks
        with torch.backends.mkldnn.flags(enabled=False):
            answers = tensors(snn.run(*args, num_steps=3, **kwargs))
            found = list(snn.steps(*args, num_steps=3, **kwargs))
    assert [t for t, _ in found] == [1, 2, 3]
    apart = [by_sample([leaf[t - 1] for leaf in answers], tensors(answer), axis) for t, answer in found]
    return torch.stack(apart).median(1).values


@torch.no_grad()
def _examine(
    model: nn.Module,
    batches: Sequence[Any],
    *args: Any,
    config: Config | None = None,
    first_layers: int = 1,
    batch_axis: int = 0,
    foldable: bool | None = True,
    exact_steps: bool = True,
    named: Mapping[str, Any] | None = None,
) -> SpikingNetwork:
    """Convert a model and hold the outcome against it; `args` and `named` are a call it was not calibrated on."""
    kwargs = dict(named or {})
    expected = model(*args, **kwargs)
    before = fingerprint(model)
    config = Config(num_steps=LATE, burst=1, thresholds="quantile") if config is None else config
    snn = convert(model, batches, config, strict=True)
    assert fingerprint(model) == before
    check_report(snn.report, first_layers)
    assert foldable is None or snn.foldable is foldable
    exact = snn.analog(*args, **kwargs)
    assert type(exact) is type(expected)
    assert relative(exact, expected) <= max(1e-5, 3 * rounding(model, args, kwargs, expected))

    answers = snn.run(*args, num_steps=LATE, **kwargs)
    assert flatten(answers)[1] == flatten(expected)[1]
    own = [
        by_sample([leaf[t] for leaf in tensors(answers)], tensors(expected), batch_axis).median() for t in range(LATE)
    ]
    apart = run_and_steps(snn, args, kwargs, batch_axis)
    # Matrix products round by the number of their rows, too. With very many neurons that is bound to tip a spike, and
    # in a random net one spike moves all that follow; test_shapes.py compares in float64, where nothing tips.
    assert not exact_steps or bool((apart <= 1e-5).all()), apart
    early, late = float(own[EARLY - 1]), float(own[LATE - 1])
    print(f"relative L2 error {early:.4f} at T={EARLY}, {late:.4f} at T={LATE}")
    assert late < early / 2
    assert early < 1, "at T = 2 the answer should have something of the model's"
    return snn


@pytest.fixture
def examine() -> Examine:
    """The examination; tests call it with a model, calibration batches, and the arguments of another call."""
    return _examine


@pytest.fixture
def snapshot() -> Callable[[nn.Module], dict[str, Any]]:
    """All of a model that a conversion could change, to be compared before and after."""
    return fingerprint


@pytest.fixture
def settled() -> Callable[..., nn.Module]:
    """A random model whose BatchNorm statistics fit its own activations, ready to be converted."""
    return settle
