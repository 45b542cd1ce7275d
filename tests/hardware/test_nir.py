"""NIR files: what a profile writes computes what the network does, and what it cannot say it refuses by name."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import nir
import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config, SpikingNetwork
from spikecast.errors import ArtifactError, ConfigError, DataError, MissingExtraError, ModelError
from spikecast.hardware import check_nir, export_nir, load_nir
from spikecast.hardware.nir import NirExport
from spikecast.hardware.nir.interpret import Interpreter, Reading
from spikecast.theory.firing import level_value

# Thresholds off the largest activation: a channel that is its bias alone would sit on its threshold at every step.
PLAIN = Config(
    coding="rate",
    num_levels=1,
    burst=1,
    signed=False,
    firing_boundary=1.0,
    num_steps=8,
    thresholds="quantile",
    threshold_scale=1.0371,
)
STEPS = 12
NO_BURSTS = "where a stock neuron sends one; convert with burst=1, or export profile='extended'"


class LeNet(nn.Module):
    def __init__(self, pool: type[nn.Module] = nn.AvgPool2d) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.pool1, self.pool2 = pool(2), pool(2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 3 * 3, 30), nn.Linear(30, 20), nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(torch.relu(self.conv1(x)))
        x = self.pool2(torch.relu(self.conv2(x))).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class Residual(nn.Module):
    """Everything the portable profile knows: strides, groups, a slice-and-pad shortcut, a concat, means, BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.down, self.deep = nn.Conv2d(4, 8, 3, 2, 1, groups=2), nn.Conv2d(8, 8, (3, 1), padding=(1, 0))
        self.wide, self.head = nn.Conv2d(16, 6, 1), nn.Linear(6, 3)
        self.late = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        short = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 3))
        y = torch.relu(self.deep(torch.relu(self.down(x))) - 0.5 * short)
        z = self.late(y) + y + y  # read twice, and an affine op that nothing takes in
        both = torch.cat([torch.relu(z), y], 1)
        return self.head(torch.relu(self.wide(both)).mean((2, 3)))


def converted(model: nn.Module, x: Tensor, config: Config) -> SpikingNetwork:
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return spikecast.convert(model.eval(), [x], config)


def images(size: int = 20, channels: int = 1) -> Tensor:
    return torch.rand(4, channels, size, size, generator=torch.Generator().manual_seed(0))


def differing(snn: SpikingNetwork, done: NirExport, x: Tensor) -> tuple[float, float]:
    """The largest share of spikes, and the largest output, by which the written graph and the network differ."""
    out, sent = Interpreter(nir.read(done.path)).run(x, STEPS)
    recorded = snn.record(x, num_steps=STEPS)
    assert set(done.neurons.values()) == set(snn.sites)
    fired = {site: level_value(own.levels).sum(1) for site, own in recorded.items()}
    shares = [(sent[n] != fired[site]).float().mean() for n, site in done.neurons.items()]
    answers = out.cumsum(0) / torch.arange(1, STEPS + 1).reshape(-1, 1, 1)
    return float(max(shares)), float((answers - snn.run(x, num_steps=STEPS)).abs().max())


@pytest.mark.parametrize("granularity", ["layer", "channel"])
@pytest.mark.parametrize(("model", "channels"), [(LeNet, 1), (Residual, 2)])
def test_portable_computes_what_the_network_does(model, channels, granularity, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = images(20, channels)
    snn = converted(model(), x, dataclasses.replace(PLAIN, granularity=granularity))
    done = export_nir(snn, tmp_path / "net.nir")
    share, error = differing(snn, done, x)
    assert share < 1e-3
    assert error < (1e-5 if share == 0 else 0.1)
    graph = nir.read(done.path)
    assert {type(n).__name__ for n in graph.nodes.values()} <= {"Input", "Output", "Affine", "Conv2d", "Flatten", "IF"}
    for node in graph.nodes.values():
        if type(node).__name__ == "IF":
            assert (node.v_threshold == 1).all()
            assert (node.r == 1).all()
            assert node.metadata["spikecast.site"] in snn.sites


@pytest.mark.parametrize(
    "config",
    [
        {"num_levels": 4},
        {"num_levels": 1},
        {"num_levels": 2, "firing_boundary": 0.72, "initial_potential": 0.25},
        {"num_levels": 1, "signed": False, "initial_potential": 0.5, "firing_boundary": 1.0},
    ],
)
def test_composite_computes_what_the_network_does(config, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = images()
    snn = converted(LeNet(), x, Config(coding="rate", num_steps=8, burst=1, **config))
    share, error = differing(snn, export_nir(snn, tmp_path / "net.nir", "composite"), x)
    assert share < 1e-3
    assert error < (1e-5 if share == 0 else 0.1)


def test_composite_keeps_an_identity_neuron_free(tmp_path: Path) -> None:
    """No rectifier before the second layer: its neuron must send negative values, too."""
    torch.manual_seed(0)
    x = torch.randn(8, 6)
    config = Config(coding="rate", num_steps=8, burst=1)
    snn = converted(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)), x, config)
    done = export_nir(snn, tmp_path / "net.nir", "composite")
    assert bool((snn.record(x)[next(iter(snn.sites))].levels < 0).any())
    assert differing(snn, done, x) == pytest.approx((0.0, 0.0), abs=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(num_steps=4, burst=1),
        Config(num_steps=4, burst=1, coding="rate"),
        PLAIN,
        Config(num_steps=2, burst=3, overrides={"relu#2": {"burst": 2}}),
        Config(num_steps=4, leak=0.1),
    ],
)
@pytest.mark.parametrize("pool", [nn.AvgPool2d, nn.MaxPool2d])
def test_extended_restores_the_network_to_the_bit(pool, config: Config, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = images()
    snn = converted(LeNet(pool), x, config)
    done = export_nir(snn, tmp_path / "net.nir", "extended")
    back = load_nir(done.path)
    assert torch.equal(back.run(x), snn.run(x))
    assert back.config == snn.config
    assert [op.name for op in done.host_ops] == (["pool1", "pool2"] if pool is nn.MaxPool2d else [])
    graph = nir.read(done.path)
    nested = [node for node in graph.nodes.values() if type(node).__name__ == "NIRGraph"]
    assert len(nested) == len(snn.sites)
    settings = [json.loads(node.metadata["spikecast.neuron"]) for node in nested]
    assert {own["site"]: own["burst"] for own in settings} == {s: n.burst for s, n in snn.neurons.items()}
    assert back.neurons == snn.neurons


class WithNothing(nn.Module):
    """It holds a tensor without elements."""

    nothing: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 6), nn.Linear(6, 3)
        self.register_buffer("nothing", torch.zeros(2, 0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.fc2(torch.relu(self.fc1(x))), self.nothing.expand(x.shape[0], 2, 0).flatten(1)], 1)


def test_extended_restores_a_tensor_without_elements(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    snn = spikecast.convert(WithNothing().eval(), [x], Config(num_steps=2, thresholds="quantile"))
    export_nir(snn, tmp_path / "net.nir", "extended")
    assert torch.equal(load_nir(tmp_path / "net.nir").run(x), snn.run(x))


def test_extended_takes_any_network(tmp_path: Path) -> None:
    """Attention, softmax and LayerNorm have no NIR words: they stay on the host, and load all the same."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu").eval()
    x = torch.randn(3, 5, 16)
    snn = spikecast.convert(layer, [x], Config(num_steps=3))
    done = export_nir(snn, tmp_path / "net.nir", "extended")
    assert torch.equal(load_nir(done.path).run(x), snn.run(x))
    assert nir.read(done.path)
    assert any("softmax" in op.reason for op in done.host_ops)


def test_weights_are_written_once(tmp_path: Path) -> None:
    snn = converted(nn.Sequential(nn.Linear(400, 500), nn.ReLU(), nn.Linear(500, 400)), torch.rand(2, 400), Config())
    done = export_nir(snn, tmp_path / "net.nir", "extended")
    snn.save(tmp_path / "net.spikecast")
    assert Path(done.path).stat().st_size < 1.2 * (tmp_path / "net.spikecast").stat().st_size


@pytest.mark.parametrize(
    ("profile", "config", "words"),
    [
        ("portable", Config(burst=1), "differential coding needs a gain of 1/t"),
        ("composite", Config(burst=1), "differential coding needs a gain of 1/t"),
        ("portable", dataclasses.replace(PLAIN, burst=3), f"bursts of up to 3 spikes a step, {NO_BURSTS}"),
        ("composite", Config(coding="rate", burst=2), f"bursts of up to 2 spikes a step, {NO_BURSTS}"),
        ("portable", dataclasses.replace(PLAIN, leak=0.1), "leak=0.1, where a stock neuron"),
        ("composite", Config(coding="rate", burst=1, leak=0.1), "convert with leak=0.0, or export profile='extended'"),
        ("portable", dataclasses.replace(PLAIN, num_levels=2), "no plain IF"),
        ("portable", dataclasses.replace(PLAIN, signed=True), "a signed neuron"),
        ("portable", dataclasses.replace(PLAIN, firing_boundary=0.75), "it fires from 0.75·θ on"),
    ],
)
def test_what_a_profile_cannot_say_is_refused_by_name(profile, config, words, tmp_path: Path) -> None:
    snn = converted(LeNet(), images(), config)
    with pytest.raises(ModelError, match="cannot say 4 of the network's ops") as error:
        export_nir(snn, tmp_path / "net.nir", profile)
    assert f"{', '.join(snn.sites)}: " in str(error.value)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "net.nir").exists()
    with pytest.raises(ModelError, match="nothing of the network would spike"):
        export_nir(snn, tmp_path / "net.nir", profile, split=True)


@pytest.mark.parametrize("profile", ["portable", "composite"])
def test_only_the_sites_with_bursts_are_refused(profile, tmp_path: Path) -> None:
    snn = converted(LeNet(), images(), dataclasses.replace(PLAIN, overrides={"relu#2": {"burst": 2}}))
    with pytest.raises(ModelError, match=r"cannot say 1 of the network's ops \(relu#2: bursts of up to 2"):
        export_nir(snn, tmp_path / "net.nir", profile)
    done = export_nir(snn, tmp_path / "net.nir", profile, split=True)
    assert [op.name for op in done.host_ops] == ["relu#2"]


def test_importers_are_not_held_against_bursts(tmp_path: Path) -> None:
    snn = converted(LeNet(), images(), PLAIN)
    export_nir(snn, tmp_path / "net.nir")
    bursts = converted(LeNet(), images(), dataclasses.replace(PLAIN, overrides={"relu#3": {"burst": 2}}))
    with pytest.raises(DataError, match=r"^relu#3: bursts of several spikes a step, .* converted with burst=1$"):
        check_nir(tmp_path / "net.nir", "sinabs", images(), network=bursts, python=sys.executable)


@pytest.mark.parametrize("profile", ["composite", "extended"])
def test_importers_are_not_given_nested_graphs(profile, tmp_path: Path) -> None:
    export_nir(converted(LeNet(), images(), PLAIN), tmp_path / "net.nir", profile)
    said = (
        rf"net.nir has profile '{profile}', whose neurons .* sinabs does not read; export it with profile='portable'$"
    )
    with pytest.raises(ConfigError, match=said):
        check_nir(tmp_path / "net.nir", "sinabs", images(), python=sys.executable)


def test_thresholds_of_single_places_are_refused(tmp_path: Path) -> None:
    snn = converted(LeNet(), images(), dataclasses.replace(PLAIN, granularity="neuron"))
    with pytest.raises(ModelError, match=r"cannot say 2 .*\(relu, relu#2: .*granularity='channel'"):
        export_nir(snn, tmp_path / "net.nir")


def test_max_pooling_is_refused_or_left_to_the_host(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = images()
    snn = converted(LeNet(nn.MaxPool2d), x, PLAIN)
    with pytest.raises(ModelError, match=r"cannot say 2 .*pool1, pool2: a maximum is not linear"):
        export_nir(snn, tmp_path / "net.nir")
    done = export_nir(snn, tmp_path / "net.nir", split=True)
    assert [op.name for op in done.host_ops] == ["pool1", "pool2"]
    graph = nir.read(done.path)
    for op in done.host_ops:
        assert {*op.reads, *op.writes} <= set(graph.nodes)
        assert graph.nodes[op.reads[0]].metadata["spikecast.host_op"] == op.name
    with pytest.raises(DataError, match="host ops in between"):
        Interpreter(graph).run(x, 2)
    assert "pool1" in str(done)


def test_clamps_are_refused_where_their_bound_could_bind(tmp_path: Path) -> None:
    x = torch.rand(4, 6)
    model = nn.Sequential(nn.Linear(6, 5), nn.Hardtanh(0.0, 0.5), nn.Linear(5, 4))
    snn = converted(model, x, PLAIN)
    snn.set_thresholds({name: torch.full_like(t, 0.7) for name, t in snn.thresholds.items()})
    with pytest.raises(ModelError, match=r"its bound 0.5 lies below its threshold"):
        export_nir(snn, tmp_path / "net.nir")
    snn.set_thresholds({name: torch.full_like(t, 0.4) for name, t in snn.thresholds.items()})
    assert differing(snn, export_nir(snn, tmp_path / "net.nir"), x)[0] == 0
    with pytest.raises(ModelError, match=r"interval \[0, 0.5\]"):
        export_nir(snn, tmp_path / "net.nir", "composite")


def test_arguments_are_checked(tmp_path: Path) -> None:
    snn = converted(LeNet(), images(), PLAIN)
    with pytest.raises(ConfigError, match="profile='best' must be one of"):
        export_nir(snn, tmp_path / "net.nir", "best")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="was given LeNet"):
        export_nir(LeNet(), tmp_path / "net.nir")  # type: ignore[arg-type]
    (tmp_path / "folder.nir").mkdir()
    with pytest.raises(ArtifactError, match="is a folder"):
        export_nir(snn, tmp_path / "folder.nir")
    (tmp_path / "folder.nir").rmdir()
    for name in ("net", "net.npz", "net.h5"):
        with pytest.raises(ConfigError, match=rf"{name}: the name must end in .nir; give such a name$"):
            export_nir(snn, tmp_path / name)
    with pytest.raises(ArtifactError, match="is not written"):
        export_nir(snn, tmp_path / "no" / "such" / "net.nir")
    export_nir(snn, tmp_path / "net.nir")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.nir"]
    with pytest.raises(ConfigError, match="importer='lava' must be one of"):
        check_nir(tmp_path / "net.nir", "lava", images())  # type: ignore[arg-type]
    with pytest.raises(MissingExtraError, match="make importers"):
        check_nir(tmp_path / "net.nir", "sinabs", images(), python=tmp_path / "no-python")


def test_reference_interpreter_reads_as_told() -> None:
    """Each way in which importers differ changes the spikes of one neuron as it should."""
    one = torch.ones(1).numpy()
    graph = nir.NIRGraph.from_list(nir.IF(r=one, v_threshold=one))

    def spikes(steps: list[float], **reading: object) -> list[float]:
        run = Interpreter(graph, Reading(**reading))  # type: ignore[arg-type]
        states: dict[str, Tensor] = {}
        return [float(run._step(torch.tensor([[v]]), states)["if"]) for v in steps]

    assert spikes([0.5, 0.5, 0.75, 0.75]) == [0, 1, 0, 1]
    assert spikes([0.5, 0.5, 0.75, 0.75], strict=True) == [0, 0, 1, 1]
    assert spikes([0.75] * 3) == [0, 1, 1]
    assert spikes([0.75] * 3, soft_reset=False) == [0, 1, 0]
    assert spikes([2.5], many_spikes=True) == [2]
    assert spikes([0.26] * 4, leak=0.9) == [0, 0, 0, 0]
    assert spikes([-3.0, 3.5], floor=-1.0) == [0, 1]


def test_a_cycle_needs_a_delay() -> None:
    one = torch.ones(1).numpy()
    nodes = {"input": nir.Input([1]), "a": nir.Scale(one), "b": nir.Scale(one), "output": nir.Output([1])}
    edges = [("input", "a"), ("a", "b"), ("b", "a"), ("b", "output")]
    with pytest.raises(DataError, match="a cycle without a Delay"):
        Interpreter(nir.NIRGraph(nodes, edges))
