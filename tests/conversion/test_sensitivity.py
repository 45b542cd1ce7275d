"""What an error of a channel does to the answer: gradients against what really happens to the answer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import spikecast
from spikecast import Config
from spikecast.conversion.sensitivity import Sensitivities, divergence, drawn_score, together
from spikecast.graph.execute.observer import Neurons

QUICK = Config(num_steps=1, thresholds="quantile")


def network(samples=4000, classes=5):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, classes)).double().eval()
    x = torch.randn(samples, 6).double()
    return model, spikecast.convert(model, [x[:50]], QUICK), x


def test_of_scores_it_is_the_information_of_fisher() -> None:
    """E over classes of (∂ log p / ∂a)² = Σ_y p_y·(W_y - Σ p·W)²: one draw for each of many samples comes near."""
    model, snn, x = network()
    found = Sensitivities.of_network(snn, ((x,), {}), "logits").by_site["1"]
    with torch.no_grad():
        p, weight = model(x).softmax(-1), model[2].weight
        exact = torch.einsum("by,byc->bc", p, (weight - (p @ weight).unsqueeze(1)).square()).mean(0)
    assert found.shape == (8,)
    assert ((found - exact).abs() <= 0.1 * exact.max()).all()


@pytest.mark.parametrize("answer", ["logits", "values"])
def test_it_foretells_the_divergence(answer) -> None:
    """½·Σ w·error² against what noise in the activations does to the answers."""
    model, snn, x = network()
    weights = Sensitivities.of_network(snn, ((x,), {}), answer).by_site["1"]
    noise = 0.05 * torch.randn(len(x), 8).double() * torch.tensor([1, 2, 0.5, 1, 3, 1, 0.1, 1]).double()
    answers = snn.analog_with(((x,), {}), Neurons(lambda site, steps: snn.exact(site, steps) + noise))
    foretold = 0.5 * float((weights * noise.square().mean(0)).sum())
    assert divergence([answers], [model(x)], answer) == pytest.approx(foretold, rel=0.1)


def test_errors_that_go_together_count_as_they_do() -> None:
    torch.manual_seed(0)
    assert together(torch.full((32, 6, 5), 0.1), 32, 0) == pytest.approx(30)  # all in one direction
    assert together(torch.randn(4000, 50), 4000, 0) == pytest.approx(1, abs=0.1)
    assert together(torch.full((10, 32), 0.1), 32, 1) == pytest.approx(10)  # the batch second
    assert together(torch.full((96, 5), 0.1), 32, 0) == pytest.approx(15)  # three heads of each sample


def test_errors_count_one_by_one_unless_they_surely_go_together() -> None:
    assert together(torch.tensor([1.0, -1.0]).repeat(32, 5), 32, 0) == 1  # they cancel here, perhaps not elsewhere
    once = torch.zeros(32, 10)
    once[0] = 1  # in one sample of 32 only
    once[1:, 0] = 1
    assert together(once, 32, 0) == 1
    assert together(torch.full((32, 100), 0.1), 32, 0) == 50
    assert together(torch.ones(1, 5), 1, 0) == together(torch.zeros(4, 5), 4, 0) == 1
    assert together(torch.ones(5, 5), 4, 0) == 1  # rows that belong to no sample


def test_a_shift_of_all_activations_is_foretold_only_together() -> None:
    model, snn, x = network()
    found = Sensitivities.of_network(snn, ((x,), {}), "values")
    site = snn.sites["1"]
    with torch.no_grad():
        gradient = found.gradients["1"].double()
    shift = 0.02 * gradient.mean(0).sign().expand(len(x), 8)  # each channel the same way in all samples
    answers = snn.analog_with(((x,), {}), Neurons(lambda name, steps: snn.exact(name, steps) + shift))
    true = divergence([answers], [model(x)], "values")
    alone = 0.5 * float((found.by_site["1"] * shift[0].square()).sum())
    found.weigh(site, shift)
    foretold = 0.5 * float((found.by_site["1"] * shift[0].square()).sum())
    assert abs(foretold - true) < abs(alone - true)
    assert "1" not in found.gradients  # they are not kept longer than needed


def test_rows_of_a_sample_are_averaged() -> None:
    """Scores for every token: the divergence is that of a row, and so is what is foretold."""
    torch.manual_seed(0)
    scores = torch.randn(2000, 3, 5, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(drawn_score([scores], "logits", 2000, seed=0), scores)
    noise = 0.1 * torch.randn_like(scores)
    foretold = 0.5 * float((gradient.square().mean(0) * noise.square().mean(0)).sum())
    assert divergence([scores + noise], [scores], "logits") == pytest.approx(foretold, rel=0.15)


def test_divergence_by_hand() -> None:
    same, other = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, torch.log(torch.tensor(3.0))]])
    assert divergence([same], [same], "logits") == 0
    # from (1/2, 1/2) to (1/4, 3/4): ½·ln 2 + ½·ln ⅔
    assert divergence([other], [same], "logits") == pytest.approx(0.5 * (torch.log(torch.tensor(4 / 3)).item()))
    assert divergence([torch.tensor([3.0, 4.5])], [torch.tensor([3.0, 4.0])], "values") == pytest.approx(0.01)


def test_nothing_of_the_network_is_changed() -> None:
    model, snn, x = network(samples=20)
    before = {name: value.clone() for name, value in snn.state_dict().items()}
    answer = snn.run(x)
    Sensitivities.of_network(snn, ((x,), {}), "logits")
    assert all(torch.equal(value, before[name]) for name, value in snn.state_dict().items())
    assert torch.equal(snn.run(x), answer)
    assert not snn.run(x).requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


class Stepped(nn.Module):
    """Its rounding has a gradient of 0, so its first layer seems harmless."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)).round())


def test_a_gradient_of_zero_is_no_error() -> None:
    torch.manual_seed(0)
    x = torch.randn(20, 6)
    snn = spikecast.convert(Stepped().eval(), [x], QUICK)
    found = Sensitivities.of_network(snn, ((x,), {}), "values").by_site
    assert [bool(w.any()) for w in found.values()] == [False, True]


def test_without_gradients_errors_are_relative() -> None:
    torch.manual_seed(0)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x):
            return self.body(x)

    x = torch.randn(20, 6)
    snn = spikecast.convert(Two().eval(), [x], QUICK, regions=["body"])
    weights = Sensitivities.of_network(snn, ((x,), {}), "values")
    assert weights.by_site == {}
    assert any("errors of all layers count alike" in note for note in snn.report.notes)
    sent = torch.rand(20, 8)
    relative = 0.5 * weights.of("body.1", sent, 8) * 0.01 * (sent.square().sum() / 20)  # an error of 10 % of the layer
    assert relative.tolist() == pytest.approx([0.01] * 8)
