"""What a report says against what the measurements say; pictures, lanes and files by hand."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import Config, measure
from spikecast.errors import DataError, SpikecastError
from spikecast.page import ReportData, build
from spikecast.page.drawing import _lanes
from spikecast.page.picture import LARGEST, picture, png
from spikecast.page.traces import MOST_NEURONS, _spread
from spikecast.storage.files import write_whole
from tests.nets import Branch, encoder

T = 4
Batches = list[tuple[Tensor, Tensor]]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Branch(4).eval()


@pytest.fixture(scope="module")
def batches() -> Batches:
    torch.manual_seed(1)
    return [(torch.randn(n, 3, 8, 8), torch.randint(0, 5, (n,))) for n in (6, 5)]


@pytest.fixture(scope="module")
def snns(model, batches) -> dict[str, spikecast.SpikingNetwork]:
    return {
        coding: spikecast.convert(
            model, batches, Config(num_steps=T, num_levels=2, coding=coding, thresholds="quantile")
        )
        for coding in ("differential", "rate")
    }


@pytest.fixture(scope="module")
def report(model, snns, batches) -> ReportData:
    return build(model, snns, iter(batches), title="t", command="c", layer_samples=4, traced=2)


def test_figures_are_those_of_the_measurements(report, model, snns, batches) -> None:
    assert [n.name for n in report.networks] == list(snns)
    assert (report.samples, report.layer_samples, report.metric) == (11, 4, "top1")
    for network, snn in zip(report.networks, snns.values(), strict=True):
        found = measure.evaluate(snn, batches, model=model)
        assert network.steps == found.steps
        assert network.agreement == found.agreement
        assert {**network.intervals, "ann": found.intervals["ann"]} == found.intervals
        assert network.less_ann == found.less_ann["top1"]
        assert report.ann_interval == found.intervals["ann"][0]
        assert report.ann == found.ann
        assert found.energy is not None
        for costs in ("paper", "honest", "full"):
            priced = found.energy.under(costs)
            assert network.energy[costs] == {"ann": priced.ann, "snn": priced.snn, "ratio": priced.ratio}
        assert network.spikes_per_neuron == found.energy.spikes_per_neuron
        assert network.slots == found.slots == [3, 6, 9, 12]
        assert network.calibrated == 11
        assert network.advice == measure.agreement(model, snn, [batches[0][0][:4]]).explain()
        assert network.advice


def test_layers_add_up_and_know_their_error(report, model, snns, batches) -> None:
    network = report.networks[0]
    for costs in ("paper", "honest", "full"):
        total = sum(sum(layer.joules[costs]) for layer in network.layers)
        assert total == pytest.approx(network.energy[costs]["snn"][-1])
    compared = measure.agreement(model, snns["differential"], [batches[0][0][:4]])
    errors = {layer.name: layer.error for layer in network.layers if layer.error is not None}
    assert errors == {site.site: site.error for site in compared.sites}
    assert {layer.kind for layer in network.layers} == {"analog", "spiking", "synapse", "graded"}
    for layer in network.layers:
        is_site = layer.name in snns["differential"].sites
        assert (layer.theta is not None) == (layer.firing is not None) == is_site
    stem = next(layer for layer in network.layers if layer.name == "stem")
    assert (stem.op, stem.kind, stem.neurons) == ("conv2d", "analog", None)
    assert stem.macs == 3 * 4 * (8 * 3 - 2) ** 2  # 3x3 taps without those that fall outside


def test_traces_are_what_was_recorded(report, model, snns, batches) -> None:
    for network, snn in zip(report.networks, snns.values(), strict=True):
        recorded = snn.record(batches[0][0][:2])
        assert [trace.site for trace in network.traces] == list(snn.sites)
        for trace in network.traces:
            levels = recorded[trace.site].levels.flatten(3)  # [T, burst, samples, neurons]
            assert trace.neurons == levels.shape[3]
            assert len(trace.shown) == min(MOST_NEURONS, trace.neurons)
            assert torch.tensor(trace.levels).equal(levels[..., trace.shown].permute(2, 0, 3, 1).long())
            estimates = recorded[trace.site].estimates.flatten(2)[..., trace.shown].transpose(0, 1)
            assert torch.allclose(torch.tensor(trace.estimates), estimates, rtol=1e-3)
        with torch.no_grad():
            activations = torch.relu(model.stem(batches[0][0][:2])).flatten(1)[:, network.traces[0].shown]
        assert torch.allclose(torch.tensor(network.traces[0].activations), activations, rtol=1e-3, atol=1e-6)


def test_examples_are_where_answers_differ(report, model, snns, batches) -> None:
    for network, snn in zip(report.networks, snns.values(), strict=True):
        x, labels = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        with torch.no_grad():
            ann = model(x).argmax(1)
        answers = snn.run(x).argmax(-1)
        assert network.disagree == int((answers[-1] != ann).sum())
        slowest = [max([t + 1 for t in range(T) if answers[t, i] != ann[i]], default=0) for i in range(len(x))]
        expected = sorted((i for i in range(len(x)) if slowest[i]), key=lambda i: (-slowest[i], i))
        assert [e.sample.number for e in network.examples] == expected
        for example in network.examples:
            i = example.sample.number
            assert example.answers == answers[:, i].tolist()
            assert (example.sample.label, example.sample.ann) == (int(labels[i]), int(ann[i]))
            assert example.sample.image is not None


class Sequences(nn.Module):
    """Takes [length, samples, 8]: the batch is second."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = encoder(8, 2, 16), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(0))


def test_samples_are_taken_along_the_batch_axis() -> None:
    torch.manual_seed(0)
    model = Sequences().eval()
    batches = [(torch.randn(5, n, 8), torch.randint(0, 3, (n,))) for n in (4, 3)]
    inputs = torch.cat([x for x, _ in batches], 1)
    snn = spikecast.convert(model, batches, Config(num_steps=2, num_levels=1, burst=1, thresholds="quantile"))
    report = build(model, {"one": snn}, batches, layer_samples=3, traced=2)
    network = report.networks[0]
    assert (report.samples, report.layer_samples) == (7, 3)
    assert [sample.image for sample in report.traced] == [picture(inputs[:, i]) for i in range(2)]
    assert network.examples
    for example in network.examples:
        assert example.sample.image == picture(inputs[:, example.sample.number])
    compared = measure.agreement(model, snn, [inputs[:, :3]])
    errors = {layer.name: layer.error for layer in network.layers if layer.error is not None}
    assert errors == {site.site: site.error for site in compared.sites}
    (trace,) = [trace for trace in network.traces if trace.site.endswith("linear1.input")]
    levels = snn.record(inputs[:, :2])[trace.site].levels  # [T, burst, length, samples, 8]
    assert (trace.neurons, tuple(levels.shape)) == (5 * 8, (2, 1, 5, 2, 8))
    shown = levels[:, 0].permute(2, 0, 1, 3).flatten(2)[..., trace.shown]
    assert torch.tensor(trace.levels).equal(shown.unsqueeze(-1).long())


def test_json_round_trip(report) -> None:
    text = json.dumps(report.to_json(), allow_nan=False)
    assert ReportData.from_json(json.loads(text)) == report


def test_graph_has_every_op_and_its_wires(report) -> None:
    nodes = report.networks[0].graph
    assert [n.op for n in nodes] == [
        "input", "conv2d", "neurons", "conv2d", "add", "gelu", "mean", "neurons", "linear", "output",
    ]  # fmt: skip
    assert [n.kind for n in nodes][1:6] == ["analog", "spiking", "synapse", "affine", "graded"]
    assert nodes[4].inputs == [2, 3]
    assert nodes[3].lane != nodes[2].lane  # the branch runs beside what it is added to
    assert {layer.node for layer in report.networks[0].layers} <= {node.name for node in nodes}


@pytest.mark.parametrize(
    ("inputs", "lanes"),
    [
        ([[], [0], [1]], [0, 0, 0]),
        ([[], [0], [1], [0, 2]], [0, 1, 1, 0]),
        ([[], [0], [0], [0], [1, 2, 3]], [0, 1, 2, 0, 0]),
        ([[], [], [0, 1], [2]], [0, 1, 0, 0]),
    ],
)
def test_lanes(inputs, lanes) -> None:
    assert _lanes(inputs)[0] == lanes


def test_no_wire_runs_through_another_op() -> None:
    inputs: list[list[int]] = [[]]
    for row in range(1, 60):
        inputs.append(sorted(set(torch.randint(max(0, row - 12), row, (2,)).tolist())))
    lanes, until = _lanes(inputs)
    for row in range(60):
        assert [other for other in range(row + 1, until[row]) if lanes[other] == lanes[row]] == []


def pixels_of(data: bytes) -> tuple[int, int, int, bytes]:
    """Width, height, colour type and raw rows of a PNG, read by hand."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(data):
        (size,) = struct.unpack_from(">I", data, place)
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert struct.unpack_from(">I", data, place + 8 + size)[0] == zlib.crc32(kind + body)
        chunks[kind], place = body, place + 12 + size
    width, height, depth, colour = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert depth == 8
    return width, height, colour, zlib.decompress(chunks[b"IDAT"])


def test_png_holds_the_pixels() -> None:
    grey = torch.tensor([[[0, 100], [200, 255]]], dtype=torch.uint8)
    assert pixels_of(png(grey)) == (2, 2, 0, bytes([0, 0, 100, 0, 200, 255]))
    colour = torch.arange(18, dtype=torch.uint8).reshape(3, 2, 3)
    width, height, kind, raw = pixels_of(png(colour))
    assert (width, height, kind) == (3, 2, 2)
    assert raw == b"".join(
        b"\0" + bytes(int(colour[c, y, x]) for x in range(3) for c in range(3)) for y in range(2)
    )  # fmt: skip


def test_pictures_of_inputs() -> None:
    def read(uri: str) -> tuple[int, int, int, bytes]:
        return pixels_of(base64.b64decode(uri.removeprefix("data:image/png;base64,")))

    assert read(picture(torch.tensor([[-1.0, 0.0], [0.0, 1.0]])))[3] == bytes([0, 0, 128, 0, 128, 255])
    width, height, *_ = read(picture(torch.rand(3, 300, 150)))
    assert (width, height) == (LARGEST // 2, LARGEST)
    assert read(picture(torch.zeros(1, 2, 2), lambda x: x + 0.2))[3] == bytes([0, 51, 51] * 2)
    assert picture(torch.rand(7)) is None
    assert picture(torch.rand(5, 4, 4)) is None
    assert picture({"tokens": [1, 2]}) is None


def test_spread_keeps_the_ends() -> None:
    assert _spread(3, 5) == [0, 1, 2]
    assert _spread(100, 4) == [0, 33, 66, 99]
    assert len(set(_spread(33, 32))) == 32


def test_mistakes(model, snns, batches) -> None:
    with pytest.raises(DataError, match="snns is empty"):
        build(model, {}, batches)
    with pytest.raises(DataError, match="batches are empty"):
        build(model, snns, [])


def test_progress_and_own_command(model, snns, batches) -> None:
    seen: list[int] = []
    found = build(model, {"one": snns["rate"]}, batches, progress=seen.append)
    assert seen == [6, 5]
    assert found.title == "Branch"
    assert found.command
    assert found.versions["spikecast"] == spikecast.__version__


def test_files_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "new" / "page.html"
    assert write_whole(target, "old") == target
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(SpikecastError, match="No space left on device; nothing was changed"):
            write_whole(target, "half")
    assert target.read_text() == "old"
    assert [p.name for p in target.parent.iterdir()] == ["page.html"]
    with pytest.raises(SpikecastError, match="it is a folder"):
        write_whole(tmp_path, "x")
    link = tmp_path / "link.html"
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
