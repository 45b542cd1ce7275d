"""The spike view and the value view are one network: on random graphs, step by step, wire by wire.

In float64 they differ by rounding. A spike may differ where a potential lies on an edge to within rounding (values such
as k/t times a threshold do so by right); all that follows from it in that sample is left out, and nothing else is.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spikecast import convert
from spikecast.graph.execute.observer import Observer
from spikecast.graph.program import NEURON
from spikecast.hardware import twin
from spikecast.theory.coding import prediction
from spikecast.theory.firing import level_value
from tests.nets import Blocks, stir_norms
from tests.strategies import RECIPES, configs


def at_edge(value, predicted, sent, t, threshold, neuron, tolerance):
    """Whether a potential t·(r_in - p) - sent, or the room left by a bound, lies on an edge to within a tolerance.

    `sent` are the pulses of the burst so far.
    """
    potential = t * (value - predicted) - sent + neuron.initial_potential * threshold
    powers = 2.0 ** -torch.arange(neuron.num_levels, dtype=value.dtype)

    def near(x, edges):
        return ((x.abs() / threshold).unsqueeze(-1) - edges).abs().amin(-1) <= tolerance

    found = near(potential, neuron.firing_boundary * powers)
    for bound in (neuron.lower, neuron.upper):
        if math.isfinite(bound):
            found |= near(t * (bound - predicted) - sent, powers - neuron.tolerance)
    return found


def ties(differs, levels, value, predicted, t, threshold, neuron, tolerance):
    """Where the first pulse of a burst that differs lies on an edge; levels and differs are [burst, ...]."""
    found, same, sent = torch.zeros_like(differs[0]), torch.ones_like(differs[0]), torch.zeros_like(value)
    for differ, level in zip(differs, levels, strict=True):
        found |= same & differ & at_edge(value, predicted, sent, t, threshold, neuron, tolerance)
        same &= ~differ
        sent = sent + level_value(level, value.dtype) * threshold
    return found


def samples_off(snn, trace, recorded, tolerance=1e-9):
    """The samples in which some spike differs, from the first step on in which one does; that one must be a tie."""
    sources = {n.kwargs["site"]: (n.args[0].name, n.name) for n in snn.plan.program.nodes if n.target == NEURON}
    values = {site: (trace.estimates(a), trace.estimates(b)) for site, (a, b) in sources.items()}
    total, _, batch = next(iter(trace.levels.values())).shape[:3]
    off = torch.full((batch,), total)
    for t in range(1, total + 1):
        for site in snn.sites:  # in the order of the graph
            differs = trace.levels[site][t - 1] != recorded[site].levels[t - 1]
            fresh = differs.any(0).flatten(1).any(1) & (off == total)
            if not fresh.any():
                continue
            inputs, outputs = values[site]
            before = outputs[t - 2] if t > 1 else torch.zeros_like(outputs[0])
            neuron, threshold = snn.neurons[site], snn.threshold(site)
            predicted = prediction(before, t, neuron.coding)
            levels = recorded[site].levels[t - 1]
            tie = ties(differs, levels, inputs[t - 1], predicted, t, threshold, neuron, tolerance)
            assert tie[fresh][differs.any(0)[fresh]].all(), f"{site} at step {t}"
            off[fresh] = t - 1
    return off


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=RECIPES, config=configs(4, (3, 8), bursts=(1, 3)), seed=st.integers(0, 2**31))
@torch.no_grad()
def test_random_networks(recipe, config, seed) -> None:
    torch.manual_seed(seed)
    model = stir_norms(Blocks(recipe).eval().double())
    x = torch.randn(4, 3, 6, 6).double()
    snn = convert(model, [x], config)
    trace, recorded, answer = twin(snn).trace(x), snn.record(x), snn.run(x)
    off = samples_off(snn, trace, recorded)
    assert (off < config.num_steps).sum() <= 2  # ties are rare
    valid = torch.arange(config.num_steps)[:, None] < off
    torch.testing.assert_close(trace.answer[valid], answer[valid], rtol=1e-10, atol=1e-10)
    neurons = {n.kwargs["site"]: n.name for n in snn.plan.program.nodes if n.target == NEURON}
    for site, name in neurons.items():
        ours, theirs = trace.estimates(name), recorded[site].estimates
        torch.testing.assert_close(ours[valid], theirs[valid], rtol=1e-10, atol=1e-10)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    recipe=RECIPES, config=configs(5, (1, 4, 8), bursts=(1, 3)), leak=st.floats(0.01, 0.9), seed=st.integers(0, 2**31)
)
@torch.no_grad()
def test_random_networks_with_a_leak(recipe, config, leak, seed) -> None:
    torch.manual_seed(seed)
    model = stir_norms(Blocks(recipe).eval().double())
    x = torch.randn(4, 3, 6, 6).double()
    snn = convert(model, [x], dataclasses.replace(config, leak=leak, thresholds="quantile"))
    trace, recorded = twin(snn).trace(x), snn.record(x)
    same = torch.ones(4, dtype=torch.bool)
    for site, own in recorded.items():
        same &= (trace.levels[site] == own.levels).transpose(0, 2).flatten(1).all(1)
    assert same.sum() >= 3  # ties are rare
    torch.testing.assert_close(trace.answer[:, same], snn.run(x)[:, same], rtol=1e-9, atol=1e-9)


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=RECIPES, config=configs(4, (3, 8), bursts=(1, 3)), seed=st.integers(0, 2**31))
@torch.no_grad()
def test_every_wire_stands_for_the_op_on_what_its_inputs_stand_for(recipe, config, seed) -> None:
    """r_out[t] = F(r_in[t]) with the ANN's own F, bias included: the one sentence of which the theorems are forms."""
    torch.manual_seed(seed)
    model, x = Blocks(recipe).eval().double(), torch.randn(2, 3, 6, 6).double()
    snn = convert(model, [x], config)
    spikes = twin(snn)
    trace = spikes.trace(x)
    assert len(trace.signals) > len(snn.sites)
    execution = snn.execution(snn.plan.program)
    execution.start([x])
    neurons = {n.kwargs["site"]: n.name for n in snn.plan.program.nodes if n.target == NEURON}
    for t in range(config.num_steps):
        seen: dict[str, Any] = {}

        class Watch(Observer):
            watched = frozenset(n.name for n in snn.plan.program.nodes)

            def fire(self, site, steps, *, may_overwrite, t=t):
                return trace.estimates(neurons[site])[t : t + 1]

            def see(self, node, value, look_up, seen=seen):
                seen[node.name] = value.clone() if isinstance(value, torch.Tensor) else value

        execution.advance(Watch())
        for name, value in seen.items():
            if name in trace.signals and isinstance(value, torch.Tensor):
                torch.testing.assert_close(trace.estimates(name)[t], value, rtol=1e-9, atol=1e-9)
