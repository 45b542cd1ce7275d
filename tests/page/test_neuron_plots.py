"""Figures of single neurons: a raster shows every spike of its sample, at its slot, with its sign and size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from spikecast import Config, convert
from spikecast.errors import ConfigError
from spikecast.page.data import Trace
from spikecast.page.neuron_plots import write_fits, write_raster
from spikecast.page.plots import COLOURS
from spikecast.page.traces import MOST_NEURONS, sample_of, trace
from spikecast.paper.figures import fit

# [sample][step][neuron][spike of the burst]: two neurons, two steps, bursts of two
LEVELS = [[[[1, 2], [-1, 0]], [[0, 0], [-4, 0]]], [[[0, 0], [0, 0]], [[0, 0], [0, 0]]]]


def bars(svg: str, colour: str) -> list[tuple[float, float, float]]:
    """Left edge, height upwards and foot of each bar of a colour, in points; the legend's own left out."""
    found = []
    for path in re.findall(rf'<path d="([^"]*)" clip-path="[^"]*" style="fill: {colour}', svg):
        x, y = (list(map(float, p)) for p in zip(*re.findall(r"[ML] (\S+) (\S+)", path), strict=True))
        found.append((min(x), y[0] - y[2], y[0]))
    return found


def test_a_raster_shows_every_spike(tmp_path: Path) -> None:
    shown = Trace("layer.1", 9, [0, 8], [[0.5, -0.5]] * 2, [[[0.5, -0.5]] * 2] * 2, LEVELS)
    svg = write_raster(shown, tmp_path / "a.svg", num_levels=4).read_text()
    positive, negative = bars(svg, COLOURS[0]), bars(svg, COLOURS[1])
    assert (len(positive), len(negative)) == (2, 2)
    slot = positive[1][0] - positive[0][0]  # the second spike of a burst is one slot later
    assert slot > 10
    assert [round((x - positive[0][0]) / slot, 3) for x, _, _ in negative] == [0, 2]
    assert positive[1][1] / positive[0][1] == pytest.approx(0.75, abs=1e-3)  # level 2 of 4
    assert negative[0][1] == pytest.approx(-positive[0][1], abs=1e-3)  # downwards, and as long
    assert negative[1][1] / negative[0][1] == pytest.approx(0.25, abs=1e-3)  # level 4 of 4
    assert negative[0][2] == negative[1][2] != positive[0][2]  # the other neuron's row
    for words in ("layer.1: 2 of 9 neurons", "time-step (2 pulse slots each)", "positive spike", "negative spike"):
        assert f">{words}</text>" in svg
    assert "positive spike" in write_raster(shown, tmp_path / "b.svg", num_levels=4, sample=1).read_text()  # all silent
    assert not bars((tmp_path / "b.svg").read_text(), COLOURS[0])


def test_the_trace_of_one_sample() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Linear(40, 3)).eval()
    batches = [torch.randn(4, 5), torch.randn(3, 5)]
    snn = convert(model, batches, Config(num_steps=2, burst=2, thresholds="quantile"))
    call, place = sample_of(snn, batches, 5)
    assert (place, call[0][0].tolist()) == (1, batches[1].tolist())
    found = trace(snn, "1", call, place, num_steps=3)
    levels = snn.record(batches[1], num_steps=3)["1"].levels  # [T, burst, samples, neurons]
    assert torch.tensor(found.levels).equal(levels[:, :, 1:2, found.shown].permute(2, 0, 3, 1).long())
    assert (found.neurons, len(found.shown)) == (40, MOST_NEURONS)
    with pytest.raises(ConfigError, match="there is no sample 7: the data has 7; they are counted from 0"):
        sample_of(snn, batches, 7)


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_fits_of_several_neurons(kind: str, tmp_path: Path) -> None:
    fits = [fit(coding, num_levels=n, num_steps=2) for coding in ("rate", "differential") for n in (1, 3)]
    first, second = (write_fits(fits, tmp_path / f"{name}.{kind}").read_bytes() for name in "ab")
    assert first == second
    if kind == "svg":
        panels = [f"{coding} coding, n = {n}" for coding in ("rate", "differential") for n in (1, 3)]
        for words in (*panels, "the neuron", "nearest of all spike trains"):
            assert first.decode().count(f">{words}</text>") == 1
