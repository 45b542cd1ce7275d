"""A file says what neurons each site has, whatever the configuration says; loading costs no more than reading."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast.errors import ArtifactError
from spikecast.graph import roles
from spikecast.storage import artifact, codec, ops, schema
from spikecast.storage.tensors import TensorStore

X = torch.rand(5, 3)


def converted(*layers: nn.Module) -> spikecast.SpikingNetwork:
    torch.manual_seed(0)
    config = spikecast.Config(num_steps=3, num_levels=4, burst=1, thresholds="quantile")
    return spikecast.convert(nn.Sequential(*layers).eval(), [X], config)


def network() -> spikecast.SpikingNetwork:
    return converted(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))


def test_settings_of_one_site_come_back(tmp_path: Path) -> None:
    net = network()
    plain, first = net.run(X), next(iter(net.neurons))
    settings: dict[str, Any] = {"num_levels": 1, "firing_boundary": 0.6, "initial_potential": 0.25, "leak": 0.25}
    other = dataclasses.replace(net.neurons[first], **settings)
    changed = spikecast.SpikingNetwork(net.plan, net.config, {**net.neurons, first: other}, net.thresholds, net.report)
    changed.save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    assert loaded.neurons == changed.neurons
    assert loaded.neurons[first] == other
    assert torch.equal(loaded.run(X), changed.run(X))
    assert not torch.equal(loaded.run(X), plain)


def test_a_threshold_in_any_order_of_memory(tmp_path: Path) -> None:
    """Axes of size 1 may have any stride; such a tensor counts as contiguous, but not as plain."""
    net = converted(nn.Unflatten(1, (3, 1, 1)), nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))
    thresholds = {name: value.to(memory_format=torch.channels_last) for name, value in net.thresholds.items()}
    assert any(value.stride() != (4, 1, 1, 1) for value in thresholds.values() if value.dim() == 4)
    net.set_thresholds(thresholds)
    net.save(tmp_path / "net")
    assert torch.equal(spikecast.load(tmp_path / "net").run(X), net.run(X))


class Masked(nn.Module):
    """Masks with the smallest number there is, as Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.inner(x))
        return self.head(y.masked_fill(y > 1, torch.finfo(torch.float32).min).softmax(-1))


def test_large_numbers_are_saved(tmp_path: Path) -> None:
    net = converted(Masked())
    net.save(tmp_path / "net")
    assert torch.equal(spikecast.load(tmp_path / "net").run(X), net.run(X))


def test_whole_numbers_beyond_64_bits_are_floats_in_a_file() -> None:
    lowest = int(torch.finfo(torch.float32).min)
    assert type(codec.encode(lowest)) is float
    assert codec.encode(lowest) == lowest
    assert codec.encode(2**63 - 1) == 2**63 - 1
    assert type(codec.encode(-(2**63))) is int
    with pytest.raises(ArtifactError, match=r"beyond 64 bits|JSON cannot"):
        schema.decoded(schema.encoded(codec.encode((2**64 + 1,))), schema.Tuple)


class Taught(nn.Module):
    """Has an op that the table of roles does not know."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.hypot(x, x)


def test_ops_that_a_user_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file names them with their roles; the process that loads decides whether it may."""
    monkeypatch.setitem(roles.ROLES, "aten.hypot", roles.Role.NONLINEAR)
    with pytest.warns(UserWarning, match=r"save\(\) will refuse it"):
        net = converted(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), Taught(), nn.Linear(4, 2))
    with pytest.raises(ArtifactError, match=r"'aten\.hypot\.default' is not on the list"):
        net.save(tmp_path / "net")
    with monkeypatch.context() as patch:
        patch.setattr(ops, "SAVABLE", {*roles.SAVABLE, "aten.hypot"})
        net.save(tmp_path / "net")
        assert torch.equal(spikecast.load(tmp_path / "net").run(X), net.run(X))
        patch.setitem(roles.ROLES, "aten.hypot", roles.Role.SUM)
        with pytest.raises(ArtifactError, match=r"register_op gave 'aten\.hypot' other roles than here"):
            spikecast.load(tmp_path / "net")
    with pytest.raises(ArtifactError, match=r"'aten\.hypot\.default' is not on the list"):
        spikecast.load(tmp_path / "net")


@pytest.fixture
def document() -> tuple[Any, dict[str, Tensor]]:
    store = TensorStore()
    record = artifact.network_to_record(network(), store)
    return json.loads(schema.encoded(record)), store.tensors


def restored(document: Any, tensors: dict[str, Tensor]) -> spikecast.SpikingNetwork:
    return artifact.network_from_record(schema.decoded(json.dumps(document), schema.Network), tensors)


def test_graphs_that_repeat_one_number_are_not_compared(
    document: tuple[Any, dict[str, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two graphs that differ in a tensor of many repeats: comparing them would take longer than the file is."""
    data, tensors = document
    first = data["plans"][0]
    second = json.loads(json.dumps(first))
    for plan, key in ((first, "weights/0.weight"), (second, "weights/2.weight")):
        plan["program"]["tensors"]["0.bias"] = {"key": key, "shape": [2**28], "strides": [0]}
    data["plans"] = [first, second]
    tensors["weights/2.weight"] = (
        tensors["weights/2.weight"].clone().flatten().fill_(float(tensors["weights/0.weight"][0, 0]))
    )
    monkeypatch.setattr(torch, "equal", None)
    assert len(restored(data, tensors).plans) == 2
    first["program"]["tensors"]["0.bias"]["shape"] = [2**28 + 1]
    with pytest.raises(ArtifactError, match="strides that do not fit it"):
        restored(data, tensors)


def test_what_plans_share_is_shared_again(document: tuple[Any, dict[str, Tensor]]) -> None:
    data, tensors = document
    data["plans"] *= 2
    data["plans"][0]["program"]["tensors"]["0.bias"] = {"key": "weights/0.bias", "shape": [6], "strides": [1]}
    first, second = restored(data, tensors).plans
    assert all(value is second.program.tensors[name] for name, value in first.program.tensors.items())


def test_saving_builds_no_second_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    monkeypatch.setattr(spikecast.SpikingNetwork, "__init__", None)
    net.save(tmp_path / "net")
    assert (tmp_path / "net").exists()


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    net = network()
    first, sound = next(iter(net.neurons.items()))
    for change, words in (
        ({"num_levels": 99}, "num_levels=99 must be"),
        ({"coding": "morse"}, "Invalid enum value 'morse'"),
        ({"firing_boundary": "x"}, "Expected `float`, got `str`"),
    ):
        neuron = dataclasses.replace(sound)
        for name, value in change.items():
            object.__setattr__(neuron, name, value)
        cast(dict[str, Any], net.neurons)[first] = neuron
        with pytest.raises(ArtifactError, match=words):
            net.save(tmp_path / "net")
    assert not list(tmp_path.iterdir())
