"""Figures of single neurons: what they fit (Figure 2 of the paper), and their spikes as a raster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spikecast.page.data import Trace
from spikecast.page.plots import COLOURS, write_figure
from spikecast.paper.figures import CODINGS, RANGE, Fit


def write_fits(fits: Sequence[Fit], path: str | os.PathLike[str]) -> Path:
    """Write what neurons fit: a column of panels for each coding, a row for each number of levels."""
    numbers = list(dict.fromkeys(one.num_levels for one in fits))

    def draw(figure: Any) -> None:
        figure.set_layout_engine("compressed")  # which knows that panels are squares
        panels = figure.subplots(len(numbers), len(CODINGS), sharex=True, sharey=True, squeeze=False)
        for one in fits:
            axes = panels[numbers.index(one.num_levels)][CODINGS.index(one.coding)]
            axes.plot([-RANGE, RANGE], [-RANGE, RANGE], color="0.7", linewidth=0.8, label="y = x")
            if one.ideal is not None:
                axes.plot(one.x, one.ideal, color=COLOURS[0], label="nearest of all spike trains")
            axes.plot(one.x, one.neuron, color=COLOURS[1], linestyle=(0, (4, 2)), label="the neuron")
            axes.set_title(f"{one.coding} coding, n = {one.num_levels}", fontsize=8)
            axes.set_xticks(range(-2, 3))
            axes.set_aspect("equal")
        for axes in panels[-1]:
            axes.set_xlabel("input x, in thresholds")
        for axes in panels[:, 0]:
            axes.set_ylabel(f"value after step {fits[0].num_steps}")
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside right upper")

    return write_figure(path, draw, (6.9, 2.6 * len(numbers)))


def write_raster(trace: Trace, path: str | os.PathLike[str], *, num_levels: int, sample: int = 0) -> Path:
    """Write the spikes of a site for one sample: a row for each neuron, a column for each pulse slot.

    A spike is a bar, upwards if it is positive and downwards if it is negative; the higher, the larger its level.
    """
    steps = trace.levels[sample]  # [step][neuron][spike of the burst]
    burst = len(steps[0][0])
    spikes = [
        (row, t * burst + slot + 1, level)
        for t, step in enumerate(steps)
        for row, levels in enumerate(step)
        for slot, level in enumerate(levels)
        if level
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for sign, colour, name in ((1, COLOURS[0], "positive spike"), (-1, COLOURS[1], "negative spike")):
            own = [(row, slot, abs(level)) for row, slot, level in spikes if level * sign > 0]
            heights = [-0.45 * sign * (1 - (level - 1) / num_levels) for _, _, level in own]  # the axis points down
            axes.bar([slot for _, slot, _ in own], heights, 0.8, [row for row, _, _ in own], color=colour)
            axes.plot([], [], color=colour, linewidth=4, label=name)
        for t in range(1, len(steps)):
            axes.axvline(t * burst + 0.5, color="0.8", linewidth=0.6, zorder=0)
        axes.set_xlim(0.5, len(steps) * burst + 0.5)
        labelled = range(0, len(steps), -(-len(steps) // 16))  # no more than there is room for
        axes.set_xticks([t * burst + (burst + 1) / 2 for t in labelled], [str(t + 1) for t in labelled])
        axes.set_xlabel(f"time-step ({burst} pulse slots each)" if burst > 1 else "time-step")
        axes.set_ylim(len(trace.shown) - 0.5, -0.5)
        every = -(-len(trace.shown) // 8)
        axes.set_yticks(range(0, len(trace.shown), every), [str(n) for n in trace.shown[::every]])
        axes.set_ylabel("number of the neuron")
        axes.set_title(f"{trace.site}: {len(trace.shown)} of {trace.neurons} neurons", fontsize=8)
        figure.legend(loc="outside right upper", title="height of a bar:\nits level")

    return write_figure(path, draw, (6.9, 3.6))
