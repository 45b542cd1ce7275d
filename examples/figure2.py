"""Figure 2 of the paper, drawn again: what three spikes of ±1 can say, and what a neuron does say.

    python examples/figure2.py [docs/figure2.svg]

For inputs y = x and T = 3: the nearest value that any of the 27 spike trains stands for (the paper's "ideal fit"), and
the value that a neuron of spikecast reaches, which has to decide at each step without knowing the next.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
from torch import Tensor

from spikecast.config import Coding
from spikecast.kernels import encode
from spikecast.theory.coding import receive
from spikecast.theory.neuron import Neuron

T = 3
RANGE = 2.5
PANEL, GAP, MARGIN = 300, 60, 48
STYLES = {"ideal": ("#1f5fbf", ""), "neuron": ("#c0392b", ' stroke-dasharray="5 3"')}


def sayable(coding: Coding) -> Tensor:
    """The values that the 27 spike trains stand for, each once, in order."""
    trains = torch.tensor(list(itertools.product((-1.0, 0.0, 1.0), repeat=T)), dtype=torch.float64)
    value = torch.zeros(len(trains), dtype=torch.float64)
    for t in range(1, T + 1):
        value = receive(value, trains[:, t - 1], t, coding)
    return value.mul(6).round().div(6).unique()  # all are sixths


def ideal(x: Tensor, coding: Coding) -> Tensor:
    """The nearest of them."""
    values = sayable(coding).to(x.dtype)
    return values[(x[:, None] - values).abs().argmin(1)]


def reached(x: Tensor, coding: Coding) -> Tensor:
    """What an identity neuron with the thresholds ±1 has sent after T steps."""
    neuron = Neuron(coding=coding, num_levels=1)
    return encode(x.expand(T, -1).contiguous(), torch.ones(()), neuron).estimates[-1]


def curves(x: Tensor, coding: Coding) -> dict[str, Tensor]:
    return {"ideal": ideal(x, coding), "neuron": reached(x, coding)}


def panel(coding: Coding, left: int) -> str:
    """One coding: axes, the diagonal, and the two curves."""

    def place(a: float, b: float) -> str:
        scale = PANEL / (2 * RANGE)
        return f"{left + (a + RANGE) * scale:.1f},{MARGIN + (RANGE - b) * scale:.1f}"

    x = torch.linspace(-RANGE, RANGE, 1001)
    parts = [f'<text x="{left + PANEL / 2}" y="{MARGIN - 16}" text-anchor="middle" font-weight="600">{coding}</text>']
    parts.append(f'<rect x="{left}" y="{MARGIN}" width="{PANEL}" height="{PANEL}" fill="none" stroke="#888"/>')
    for tick in (-2, -1, 0, 1, 2):
        (tx, ty), bottom = place(tick, tick).split(","), MARGIN + PANEL
        parts.append(f'<text x="{tx}" y="{bottom + 18}" text-anchor="middle">{tick}</text>')
        parts.append(f'<text x="{left - 8}" y="{float(ty) + 4:.1f}" text-anchor="end">{tick}</text>')
        parts.append(f'<path d="M{tx},{bottom}v4M{left},{ty}h-4" stroke="#888"/>')
    parts.append(f'<path d="M{place(-RANGE, -RANGE)}L{place(RANGE, RANGE)}" stroke="#bbb"/>')
    for name, y in curves(x, coding).items():
        colour, dash = STYLES[name]
        at = list(zip(x.tolist(), y.tolist(), strict=True))
        corners = [p for i, p in enumerate(at) if not (0 < i < len(at) - 1 and at[i - 1][1] == p[1] == at[i + 1][1])]
        points = " ".join(itertools.starmap(place, corners))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
    return "\n".join(parts)


def figure() -> str:
    """Both codings side by side, as SVG."""
    width, height = 2 * PANEL + GAP + 2 * MARGIN, PANEL + 2 * MARGIN + 34
    legend = []
    for i, (name, (colour, dash)) in enumerate(STYLES.items()):
        x, y = MARGIN + i * 260, height - 14
        legend.append(f'<path d="M{x},{y - 4}h28" stroke="{colour}" stroke-width="1.6"{dash}/>')
        said = "nearest of the 27 spike trains" if name == "ideal" else "the neuron after 3 steps"
        legend.append(f'<text x="{x + 36}" y="{y}">{said}</text>')
    body = [panel("rate", MARGIN), panel("differential", MARGIN + PANEL + GAP), *legend]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    title = "<title>What three spikes of one height can say, in rate and in differential coding</title>"
    back = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', title, back, *body, "</svg>\n"])


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/figure2.svg")
    target.write_text(figure(), encoding="utf-8")
    print(f"wrote {target}")
