"""Every place that names what a neuron is set to names all of it, so that a new setting is forgotten nowhere."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.nir.extended import neuron_with_settings
from spikecast.kernels import Encoded, encode
from spikecast.network import compiled
from spikecast.storage import schema
from spikecast.theory.neuron import Neuron

SETTINGS = {field.name for field in dataclasses.fields(Neuron)} - {"lower", "upper"}
# None is a default: a place that leaves one out would give the default back.
OTHER: dict[str, Any] = {
    "coding": "rate",
    "num_levels": 3,
    "burst": 2,
    "signed": False,
    "firing_boundary": 1.0,
    "initial_potential": 0.125,
    "leak": 0.25,
}
X = torch.rand(4, 3)


@pytest.fixture
def snn() -> spikecast.SpikingNetwork:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU6(), nn.Linear(5, 2)).eval()
    return spikecast.convert(model, [X], Config(num_steps=2, thresholds="quantile", **OTHER))


def test_every_setting_is_tried_here() -> None:
    assert OTHER.keys() == SETTINGS
    assert all(getattr(Neuron(), name) != value for name, value in OTHER.items())


def test_a_network_is_given_all_settings(snn) -> None:
    assert snn.neurons == {"1": Neuron(**OTHER, lower=0.0, upper=6.0)}


def test_a_file_names_all_settings() -> None:
    assert set(schema.Neuron.__struct_fields__) == SETTINGS | {"threshold"}


def test_a_compiled_run_is_given_all_settings(snn, monkeypatch) -> None:
    seen = []

    def noted(inputs: Tensor, threshold: Tensor, neuron: Neuron) -> Encoded:
        seen.append(neuron)
        return encode(inputs, threshold, neuron)

    monkeypatch.setattr(compiled, "encode", noted)
    compiled._compiled(snn, snn.plan.program, [X], 2)
    assert set(seen) == {snn.neurons["1"]}


def test_a_nir_file_names_all_settings(snn) -> None:
    pytest.importorskip("nir")
    said = json.loads(neuron_with_settings(Circuit(snn).layer("1")).metadata["spikecast.neuron"])
    assert said == {**OTHER, "site": "1", "interval": ["0.0", "6.0"]}
