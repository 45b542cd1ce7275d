"""Networks in whole numbers: synapses that add and shift, levels off the leading bits, registers of bounded width."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from spikecast import Config, convert
from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.hardware.integer.fixed_point import _keeping_sums
from spikecast.hardware.integer.network import IntegerNetwork
from spikecast.hardware.integer.neuron import IntegerNeurons, gain, grown
from spikecast.hardware.integer.widths import Widths
from spikecast.network.plan import SILENT
from spikecast.theory.firing import fire_argmin, fire_burst, level_value
from spikecast.theory.neuron import Neuron, encode
from tests.nets import relative

BURSTS = pytest.mark.parametrize("burst", [1, 3])
BOUNDARIES = pytest.mark.parametrize("boundary", [0.75, 1.0])


class Residual(nn.Module):
    """A shortcut, a shortcut with a pad, an average, and a mean before the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.c, self.d = nn.Conv2d(4, 6, 3, padding=1, stride=2), nn.Linear(6, 5)

    def forward(self, x):
        x = self.a(x).relu()
        x = (x + self.b(x)).relu()
        x = (self.c(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))).relu()
        return self.d(F.avg_pool2d(x, 2).relu().mean((2, 3)))


def residual(burst=1, **settings):
    torch.manual_seed(1)
    model, x = Residual().eval().double(), torch.randn(8, 3, 8, 8).double()
    return convert(model, [x], Config(num_steps=6, num_levels=4, burst=burst, **settings)), x


@pytest.mark.parametrize("coding", ["differential", "rate"])
@pytest.mark.parametrize("granularity", ["channel", "layer"])
@pytest.mark.parametrize("bursts", [{}, {"burst": 3}, {"overrides": {"relu#2": {"burst": 2}}}], ids=str)
def test_wide_weights_are_the_float_network(coding, granularity, bursts) -> None:
    snn, x = residual(coding=coding, granularity=granularity, **bursts)
    net = IntegerNetwork(snn, weight_bits=16, membrane_bits=40)
    (why,) = net.report.host.values()
    assert why == "weights on values, not on spikes; convert with Config(encode_input=True) to send the input as spikes"
    assert relative(net.run(x), snn.run(x)) < 0.01
    eight = IntegerNetwork(snn)
    assert relative(eight.run(x), snn.run(x)) < 0.1
    assert relative(eight.run(x)[-1], snn.analog(x)) < 0.15


def test_weights_fit_and_have_one_exponent_per_channel() -> None:
    snn, _ = residual()
    net = IntegerNetwork(snn, weight_bits=8)
    found = [s for r in net.receivers.values() for s in r.synapses]
    assert sum(s.node is None for s in found) == 3  # two shortcuts, an average
    for s in found:
        assert torch.equal(s.weight, s.weight.round())
        assert 64 <= s.weight.abs().max() <= 127
        if s.node is not None and s.node.op == "aten.conv2d":
            used = s.exponent.flatten(2)
            assert torch.equal(used.amax(2), used.amin(2))


def test_normalisation_makes_every_threshold_one() -> None:
    snn, _ = residual()
    net = IntegerNetwork(snn, weight_bits=12)
    second = next(r for r in net.receivers.values() if len(r.synapses) == 2)
    conv = next(s for s in second.synapses if s.node is not None)
    weight = snn.execution(snn.plan.program).tensors[conv.node.inputs[1]]
    theta = snn.threshold(conv.path.source.site).flatten()
    by_filter = torch.stack([theta[:2], theta[:2], theta[2:], theta[2:]])[:, :, None, None]
    expected = weight * by_filter / second.threshold.reshape(-1, 1, 1, 1)
    scale = 2.0 ** conv.exponent[0, :, 0, 0].reshape(-1, 1, 1, 1)
    assert (conv.weight - expected * scale).abs().max() < 1
    sums = (conv.weight - expected * scale).sum((1, 2, 3))
    assert sums.abs().max() <= 0.5001  # a filter's errors do not add up


def test_a_synapse_adds_subtracts_and_shifts() -> None:
    """The same currents from Python's integers, event by event, without a product."""
    snn, _ = residual()
    net = IntegerNetwork(snn)
    conv = next(s for r in net.receivers.values() for s in r.synapses if s.node is not None and "conv" in s.node.op)
    n, weight = conv.num_levels, conv.weight.long()
    shape = (1, *net.circuit.blank(conv.path.source.value).shape[1:])
    shifts, signs = torch.randint(0, n, shape), torch.randint(-1, 2, shape)
    currents = conv.currents(signs << (n - 1 - shifts), 1)
    filters, inputs, size = weight.shape[0], weight.shape[1], weight.shape[2]
    groups, pad = shape[1] // inputs, 1
    total: dict[tuple[int, int, int], int] = {}
    for _, c, y, z in (signs != 0).nonzero().tolist():
        for f in range(filters):
            if f // (filters // groups) != c // inputs:
                continue
            for i in range(size):
                for j in range(size):
                    place = (f, y + pad - i, z + pad - j)
                    part = int(weight[f, c % inputs, i, j]) << (n - 1 - int(shifts[0, c, y, z]))
                    total[place] = total.get(place, 0) + (part if signs[0, c, y, z] > 0 else -part)
    assert total
    for (f, y, z), value in total.items():
        if 0 <= y < currents.shape[2] and 0 <= z < currents.shape[3]:
            assert int(currents[0, f, y, z]) == value


@BURSTS
@BOUNDARIES
@pytest.mark.parametrize("num_levels", [1, 4, 8])
def test_levels_are_those_of_the_definition(num_levels, burst, boundary) -> None:
    neuron, fraction = Neuron(num_levels=num_levels, burst=burst, firing_boundary=boundary), 12
    potential = torch.arange(-3 << fraction, 3 << fraction)
    neurons = IntegerNeurons("s", neuron, torch.ones(1), torch.full((1,), fraction), "divide")
    pulses = neurons.step(potential, 1, Widths(32))
    levels = fire_burst(fire_argmin, potential.double() / 2**fraction * 0.75 / boundary, num_levels, burst, boundary)
    expected = level_value(levels, torch.float64)
    assert torch.equal(pulses.double() / 2 ** (num_levels - 1), expected)
    assert torch.equal(neurons.membrane, potential - (expected.sum(0) * 2**fraction).long())


@pytest.mark.parametrize("interval", [(-float("inf"), float("inf")), (0.0, float("inf")), (0.0, 1.5), (-0.5, 1.0)])
@pytest.mark.parametrize(("coding", "signed"), [("differential", True), ("rate", True), ("rate", False)])
@BURSTS
@BOUNDARIES
def test_a_neuron_over_time(coding, interval, burst, boundary, signed) -> None:
    """Against the value view: inputs are multiples of 2**-20, so that only the division by t can round."""
    lower, upper = interval
    neuron = Neuron(
        coding=coding, num_levels=4, burst=burst, lower=lower, upper=upper, firing_boundary=boundary, signed=signed
    )
    inputs = (torch.randn(8, 400) * 2**20).round().double() / 2**20
    encoded = encode(inputs, torch.ones(400).double(), neuron, want_levels=True)
    neurons = IntegerNeurons("s", neuron, torch.ones(400), torch.full((400,), 30), "divide")
    before, differ, widths = torch.zeros(400).double(), 0, Widths(48)
    for t in range(1, 9):
        now = inputs[t - 1]
        signal = t * now - (t - 1) * before if coding == "rate" else t * (now - before)
        pulses = neurons.step((signal * 2**30).round().long(), t, widths)
        assert pulses.shape == (burst, 400)
        differ += int((pulses.double() / 8 != level_value(encoded.levels[t - 1], torch.float64)).any(0).sum())
        before = now
    assert differ <= 4
    assert 30 < widths.used["s membrane"] < 40
    bounded = upper < float("inf") or (signed and lower > -float("inf"))
    assert ("s estimate" in widths.used) == bounded


def test_gains() -> None:
    assert [gain(t, "shift") for t in range(1, 9)] == [1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125]
    u = torch.tensor([-7, -3, 0, 3, 8])
    assert grown(u, 1, "differential", "divide").tolist() == u.tolist()
    assert grown(u, 2, "differential", "divide").tolist() == (2 * u).tolist()
    assert grown(u, 5, "differential", "divide").tolist() == [-9, -4, 0, 4, 10]  # u + u/4, halves upwards
    assert grown(u, 3, "differential", "shift").tolist() == u.tolist()
    assert grown(u, 4, "differential", "shift").tolist() == (2 * u).tolist()
    assert grown(u, 4, "rate", "divide").tolist() == u.tolist()


def test_without_division_it_still_converges() -> None:
    snn, x = residual()
    errors = [relative(y, snn.analog(x)) for y in IntegerNetwork(snn, weight_bits=12, division="shift").run(x)]
    assert errors[-1] < 0.1
    assert errors[-1] < errors[0] / 2


def test_overflow_is_reported() -> None:
    snn, x = residual()
    wide = IntegerNetwork(snn, membrane_bits=40)
    wide.run(x)
    most = max(wide.report.used.values())
    with pytest.raises(
        ConfigError, match=rf"needs {most} bits .*membrane_bits=9 is too few; give membrane_bits={most} or"
    ):
        IntegerNetwork(snn, membrane_bits=9).run(x)
    IntegerNetwork(snn, membrane_bits=most).run(x)
    net = IntegerNetwork(snn, membrane_bits=9, overflow="saturate")
    assert net.run(x).isfinite().all()
    assert sum(net.report.overflows.values()) > 0
    assert max(net.report.used.values()) > 9


def test_memory_is_what_a_chip_stores() -> None:
    """Residual: a 3 -> 4 from the host, b 4 -> 4 in two groups, c 4 -> 6, d 6 -> 5, on images of 8 x 8."""
    snn, _ = residual()
    memory = IntegerNetwork(snn, weight_bits=4, membrane_bits=20).memory()
    neurons = [layer.neurons for layer in memory.layers.values()]
    assert neurons == [4 * 8 * 8, 4 * 8 * 8, 6 * 4 * 4, 6 * 2 * 2, 5]
    assert [layer.registers for layer in memory.layers.values()] == [2, 2, 2, 2, 1]
    names = list(memory.layers)
    assert memory.layers[names[0]].weights == 0  # the host multiplies the image
    assert memory.layers[names[-1]].weights == 6 * 5
    for name, stored in memory.layers.items():
        layer = IntegerNetwork(snn).weights()[name]
        assert stored.weights == sum(s.weight.numel() for s in layer.synapses)
        assert stored.biases == (0 if layer.bias is None else layer.bias.numel())
    matrices = 4 * 2 * 9 + 6 * 4 * 9 + 6 * 5
    assert matrices <= memory.synapse_bits / 4 <= matrices + 3 * 6  # and a shortcut's, at most one for each channel
    assert memory.state_bits == 20 * (2 * sum(neurons[:-1]) + 5)
    assert memory.table().splitlines()[-1].startswith("registers of 20 bits: ")
    assert len(memory.table().splitlines()) == 1 + len(names) + 1


def test_fewer_weight_bits_are_advised_where_they_help() -> None:
    widths = Widths(12)
    widths.fit("a membrane", torch.tensor([2**11, 5]))
    widths.fit("b membrane", torch.tensor([-(2**13)]))
    text = "^b membrane needs 15 bits for these inputs, 1 more register over 12: membrane_bits=12 is too few; "
    text += "give membrane_bits=15 or fewer weight_bits "
    with pytest.raises(ConfigError, match=text + r".about 5. or overflow='saturate'$"):
        widths.check(8)
    with pytest.raises(ConfigError, match=r"give membrane_bits=15 or overflow='saturate'$"):
        widths.check(4)  # three less would leave one
    widths.fit("a estimate", torch.tensor([2**12]), follows_weights=False)
    with pytest.raises(
        ConfigError, match=r"2 more registers .*=15 or fewer num_levels at conversion or overflow=.satu"
    ):
        widths.check(8)
    fine = Widths(12)
    fine.fit("a membrane", torch.tensor([2**11 - 1]))
    fine.check(8)
    assert fine.used == {"a membrane": 12}


def test_what_cannot_be_folded_is_left_to_the_host() -> None:
    snn, x = residual(granularity="neuron")
    net = IntegerNetwork(snn, weight_bits=16, membrane_bits=40)
    assert any("granularity='channel'" in why for why in net.report.host.values())
    assert relative(net.run(x), snn.run(x)) < 0.01


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.mix, self.out = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        x = self.norm(x + F.gelu(self.inner(x)))
        return self.out(x + self.mix(x, x, x, need_weights=False)[0]), x.mean(1)


@BURSTS
@pytest.mark.parametrize("coding", ["differential", "rate"])
def test_graded_units_stay_on_the_host(coding, burst) -> None:
    model, x = Tokens().eval().double(), torch.randn(3, 4, 6).double()
    snn = convert(model, [x], Config(num_steps=5, num_levels=6, burst=burst, coding=coding))
    ours, theirs = IntegerNetwork(snn, weight_bits=16, membrane_bits=40).run(x), snn.run(x)
    assert [y.shape for y in ours] == [y.shape for y in theirs]
    assert {"softmax is not linear", "gelu is not linear"} <= set(IntegerNetwork(snn).report.host.values())
    assert all(relative(a, b) < 0.02 for a, b in zip(ours, theirs, strict=True))


def test_what_the_host_computes_has_the_names_of_modules() -> None:
    snn, _ = residual()
    assert list(IntegerNetwork(snn).report.host) == ["input -> a"]
    assert not IntegerNetwork(residual(encode_input=True)[0]).report.host
    x = torch.randn(3, 4, 6)
    tokens = convert(Tokens().eval(), [x], Config(num_steps=2, burst=1))
    host = IntegerNetwork(tokens).report.host
    assert host["norm"] == "layer_norm is not linear"
    assert host["mix (attention)"] == "softmax is not linear"  # one of many ops of that module
    assert host["gelu"] == "gelu is not linear"  # of no module
    assert host["input -> add"].endswith("; convert with Config(encode_input=True) to send the input as spikes")
    assert sum("encode_input" in why for why in host.values()) == sum(way.startswith("input") for way in host) > 0
    two = convert(TwoInputs().eval(), [(x, x)], Config(num_steps=2, thresholds="quantile"))
    assert set(IntegerNetwork(two).report.host) == {"input_0 -> add", "input_1 -> add"}


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x, y):
        return self.out((self.a(x) + self.b(y)).relu())


def test_it_says_what_it_is() -> None:
    chip = IntegerNetwork(residual()[0], weight_bits=6)
    text = "IntegerNetwork(4 layers, weight_bits=6, membrane_bits=24, division='divide', overflow='raise')"
    assert repr(chip) == text


def test_mistakes() -> None:
    snn, _ = residual()
    for settings, text in (
        ({"weight_bits": 1}, "weight_bits=1"),
        ({"membrane_bits": 64}, "membrane_bits=64"),
        ({"division": "guess"}, "'guess'"),
        ({"overflow": "wrap"}, "'wrap'"),
    ):
        with pytest.raises(ConfigError, match=text):
            IntegerNetwork(snn, **settings)
    with pytest.raises(DataError):
        IntegerNetwork(snn).run(torch.randn(2, 3, 6, 6).double())
    with pytest.raises(ConfigError, match=r"^site 'relu.*' has firing_boundary=0.7: .* 0.75 and 1.0; convert with"):
        IntegerNetwork(residual(firing_boundary=0.7)[0])
    with pytest.raises(
        ModelError, match=r"^this takes a whole SpikingNetwork and was given Residual; give what convert"
    ):
        IntegerNetwork(Residual())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^site 'relu.*' has leak=0.1: .*; convert with leak=0.0$"):
        IntegerNetwork(residual(leak=0.1)[0])
    snn = residual()[0]
    site = next(iter(snn.sites))
    silent = snn.threshold(site).clone()
    silent.view(-1)[0] = SILENT
    snn.set_thresholds({**{name: snn.threshold(name) for name in snn.sites}, site: silent})
    with pytest.raises(ConfigError, match=rf"^site '{site}' has neurons that stay silent"):
        IntegerNetwork(snn)
    with pytest.raises(ConfigError, match="never divide"):
        IntegerNetwork(residual(coding="rate")[0], division="shift")


class Sequence(nn.Module):
    """Has its batch second: samples along the first axis see each other."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.a(x).relu().mean(0))


def test_a_batch_on_the_second_axis() -> None:
    snn = convert(Sequence().eval(), [torch.randn(6, 3, 4)], Config(num_steps=3, thresholds="quantile"))
    assert snn.batch_axis == 1
    integers, x = IntegerNetwork(snn), torch.randn(6, 7, 4)
    assert relative(integers.run(x), snn.run(x)) < 0.1
    with pytest.raises(DataError, match=r"^inputs of \[\(5, 4\)\] per sample: .* made for \[\(6, 4\)\]; give those$"):
        integers.run(x[:5])


def test_rounding_keeps_the_sums_of_filters() -> None:
    value = torch.randn(5, 3, 3, 3, dtype=torch.float64) * 40
    value[1] = value[1].round() + 0.3  # rounded one by one, all would go down
    found = _keeping_sums(value)
    assert torch.equal(found, found.round())
    assert ((found - value).abs() < 1).all()
    assert ((found - value).flatten(1).sum(1).abs() <= 0.5 + 1e-9).all()
    assert ((found - value).flatten(2).sum(2).abs() < 1).all()
