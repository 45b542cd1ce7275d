"""The comparison with the ANN, layer by layer, against the recorded estimates themselves."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.errors import DataError, ModelError
from spikecast.measure import agreement

T = 5


@pytest.fixture
def model() -> nn.Module:
    layers = (nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(54, 4))
    return nn.Sequential(*layers).eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(6, 2, 7, 7)


def convert(model: nn.Module, x: Tensor, **settings: Any) -> spikecast.SpikingNetwork:
    return spikecast.convert(model, [x], Config(**{"num_steps": T, "thresholds": "quantile", **settings}))


@pytest.mark.parametrize("burst", [1, 3])
@pytest.mark.parametrize("coding", ["differential", "rate"])
@torch.no_grad()
def test_figures_are_those_of_the_estimates(model, x, coding, burst) -> None:
    snn = convert(model, x, coding=coding, num_levels=3, burst=burst)
    found = agreement(model, snn, [x[:4], (x[4:], torch.zeros(2))])
    assert found.samples == 6
    activations, inputs = {}, {}
    hooks = []
    for name, module in model.named_children():
        if isinstance(module, nn.ReLU):
            hooks.append(module.register_forward_hook(lambda _m, _a, y, n=name: activations.update({n: y.detach()})))
    answer = model(x)
    for hook in hooks:
        hook.remove()
    recorded = snn.record(x)
    inputs["1"] = model[0](x).expand(T, -1, -1, -1, -1)
    inputs["3"] = torch.stack([model[2](r) for r in recorded["1"].estimates])
    for site in found.sites:
        a, r = activations[site.site], recorded[site.site]
        assert site.neurons == a.numel()
        for t in range(T):
            e = r.estimates[t]
            assert site.error[t] == pytest.approx(float((e - a).norm() / a.norm()), rel=1e-4)
            exact = inputs[site.site][t].relu()
            assert site.own[t] == pytest.approx(float((e - exact).norm() / a.norm()), rel=1e-3, abs=1e-6)
            assert site.firing[t] == pytest.approx(float((r.levels[t, 0] != 0).double().mean()))
            most = burst * (1 if coding == "rate" else sum(1 / k for k in range(1, t + 2)))
            reach = snn.thresholds[site.site] * most
            assert site.clipped[t] == pytest.approx(float((a > reach * 1.00001).double().mean()), abs=1e-9)
            assert site.silent[t] == pytest.approx(float((e[a > 0] == 0).double().mean()))
            lost = (e - exact).square()
            assert site.of_clipped[t] == pytest.approx(float(lost[a > reach * 1.00001].sum() / lost.sum()), rel=1e-3)
            assert site.of_silent[t] == pytest.approx(float(lost[(e == 0) & (a > 0)].sum() / lost.sum()), rel=1e-3)
    ys = snn.run(x)
    assert found.output_error == pytest.approx([float((y - answer).norm() / answer.norm()) for y in ys], rel=1e-4)
    assert found.same_class == pytest.approx([float((y.argmax(1) == answer.argmax(1)).double().mean()) for y in ys])


def test_explain_names_the_site_and_the_remedy(model, x) -> None:
    snn = convert(model, x, num_levels=8)
    thetas = snn.thresholds
    snn.set_thresholds({**thetas, "3": thetas["3"] / 100})
    (first, *_) = agreement(model, snn, [x]).explain()
    assert first.startswith("3 loses")
    assert "larger threshold" in first
    snn.set_thresholds({**thetas, "1": thetas["1"] * 3000})
    (first, *_) = agreement(model, snn, [x]).explain()
    assert first.startswith("1 loses")
    assert "more levels" in first
    snn.set_thresholds(thetas)
    for burst in (1, 3):  # at one step too: what is lost there is not lost by silence
        found = agreement(model, convert(model, x, num_levels=10, num_steps=1, burst=burst), [x])
        (only,) = found.explain()  # each advice once
        assert "more spikes a step" in only
        assert only.count(" loses ") == len(found.sites)


def test_table_and_json(model, x) -> None:
    found = agreement(model, convert(model, x), [x])
    assert [line.split()[0] for line in found.table().splitlines()[:3]] == ["site", "1", "3"]
    assert "6 samples; error of the answer at each step " in found.table(0)
    *_, errors, neurons = found.table().splitlines()
    for column in ("error", "own"):
        assert f"{column}: " in errors
    for column in ("clipped", "silent", "firing"):
        assert f"{column}: " in neurons
    one = agreement(model, convert(model, x), [x[:1]], num_steps=1).table()
    assert "1 sample; error of the answer " in one
    assert "at each step" not in one
    assert json.loads(json.dumps(found.to_json()))["sites"][0]["site"] == "1"


def test_answers_that_are_no_scores(x) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 3)

        def forward(self, x: Tensor) -> dict[str, object]:
            y = self.a(x).relu()
            return {"map": self.b(y), "feature": y, "size": x.shape[-1]}

    model = Pair().eval()
    found = agreement(model, convert(model, x), [x])
    assert found.same_class is None
    assert found.output_error[-1] < found.output_error[0]


def test_models_and_networks_that_do_not_belong_together(model, x) -> None:
    snn = convert(model, x)
    with pytest.raises(ModelError, match=r"^a Sequential is no converted network \(the two are swapped\); give agree"):
        agreement(snn, cast(Any, model), [x])
    with pytest.raises(ModelError, match=r"^a Sequential is no converted network; give agreement\(model, network, "):
        agreement(model, cast(Any, model), [x])
    with pytest.raises(
        DataError, match=r"^Conv2d fails on what the network takes; give the model .* \(RuntimeError: Given groups=1"
    ):
        agreement(nn.Conv2d(3, 4, 3), snn, [x])
    with pytest.raises(ModelError, match=r"^the model answers with a tensor \(6, 5\) and the network \(6, 4\); give "):
        agreement(nn.Sequential(*model, nn.Linear(4, 5)), snn, [x])

    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    with pytest.raises(ModelError, match="the model answers with 2 values and the network with 1; give the model that"):
        agreement(Two(), snn, [x])


def test_regions_are_refused_with_a_remedy(model, x) -> None:
    snn = spikecast.convert(nn.Sequential(model).eval(), [x], Config(), regions=["0"])
    with pytest.raises(ModelError, match=r"snn.networks\['0'\]"):
        agreement(model, cast(Any, snn), [x])
