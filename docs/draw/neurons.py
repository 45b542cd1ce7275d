"""Pictures of one neuron. Every value in them is computed by the package's own neuron, in float64."""

from __future__ import annotations

from fractions import Fraction

import torch
from canvas import WIDTH, Canvas

from spikecast.config import Coding
from spikecast.theory.firing import EDGE, fire_argmin, level_value
from spikecast.theory.neuron import Neuron, encode

LEVELS = 3  # of the staircase
VALUE = 0.69  # that the burst says, in thresholds
TARGET, STEPS = 0.57, 8  # that two codings say


def share(value: float) -> str:
    """A number of powers of two as people write it: −1/4."""
    found = Fraction(value)
    return f"{'−' if found < 0 else '+'}{abs(found)}"


def neuron() -> str:
    """Which level is sent for what is missing, and how the receivers' value follows."""
    canvas = Canvas(404, "A neuron sends the level nearest to what its receivers are missing")
    top, size, wide = 40, 92, 132  # of one threshold, upwards and to the right
    x0, y0 = WIDTH / 2, top + 1.15 * size
    canvas.text(16, 24, "What is sent for what is missing: three levels of each sign", "bold")
    edge = EDGE * float(level_value(torch.tensor(LEVELS), torch.float64))
    canvas.rect(x0 - edge * wide, top, 2 * edge * wide, 2.3 * size, "zone", 0)
    canvas.line([(x0 - 1.65 * wide, y0), (x0 + 1.7 * wide, y0)], "axis", tip=True)
    canvas.line([(x0, top + 2.3 * size), (x0, top - 4)], "axis", tip=True)
    canvas.line([(x0 - 1.1 * wide, y0 + 1.1 * size), (x0 + 1.1 * wide, y0 - 1.1 * size)], "faint")
    missing = torch.linspace(-1.6, 1.6, 3201, dtype=torch.float64)
    sent = level_value(fire_argmin(missing, LEVELS), torch.float64)
    path: list[tuple[float, float]] = []
    for x, s in zip(missing.tolist(), sent.tolist(), strict=True):
        at = (x0 + x * wide, y0 - s * size)
        if path and path[-1][1] != at[1]:
            path.append((at[0], path[-1][1]))
        if not path or path[-1][1] != at[1] or x == missing[-1]:
            path.append(at)
    canvas.line(path, "curve a")
    for i in range(1, LEVELS + 1):
        level = float(level_value(torch.tensor(i), torch.float64))
        name = "θ" if level == 1 else f"θ/{round(1 / level)}"
        canvas.text(x0 - 8, y0 - level * size + 4, name, "small", "end")
        canvas.line([(x0 - 4, y0 - level * size), (x0, y0 - level * size)])
        if i < LEVELS:
            canvas.line([(x0 + EDGE * level * wide, y0), (x0 + EDGE * level * wide, y0 - level * size)], "faint")
            canvas.text(x0 + EDGE * level * wide, y0 + 16, f"{EDGE * level:g} θ", "small", "middle")
    canvas.text(x0 + 1.7 * wide, y0 + 16, "missing", "small soft", "end")
    canvas.text(x0 + 8, top + 4, "sent", "small soft")
    canvas.text(x0, top + 2.3 * size + 15, "too little to say: silence", "small soft", "middle")
    y = 306
    canvas.text(16, y, "One step", "bold")
    third = (WIDTH - 32 - 2 * 26) / 3
    boxes = [["missing", "t · (r_in − p)"], ["nearest level", "s, or silence"], ["receivers hold", "r = p + s/t"]]
    for i, lines in enumerate(boxes):
        x = 16 + i * (third + 26)
        canvas.box(x, y + 12, third, lines)
        if i:
            canvas.line([(x - 26, y + 35), (x - 1, y + 35)], "wire", tip=True)
    start, end = WIDTH - 16 - third / 2, 16 + third / 2
    canvas.line([(start, y + 58), (start, y + 80), (end, y + 80), (end, y + 59)], "wire", tip=True)
    canvas.text(WIDTH / 2, y + 75, "p: what they will hold if it is silent at the next step", "small soft", "middle")
    return canvas.svg()


def burst() -> str:
    """How a burst of three spikes says one value, and what each leaves."""
    out = encode(
        torch.full((1, 1), VALUE, dtype=torch.float64),
        torch.ones((), dtype=torch.float64),
        Neuron(num_levels=8, burst=3),
        want_levels=True,
    )
    assert out.levels is not None
    pulses = level_value(out.levels[0, :, 0], torch.float64).tolist()
    canvas = Canvas(232, f"A burst of three spikes says {VALUE} thresholds")
    x0, size, row = 44, 330, 40
    canvas.text(16, 24, f"One step, three pulse slots: the value is {VALUE} θ", "bold")
    bottom = 62 + row * len(pulses)
    canvas.line([(x0 + VALUE * size, 36), (x0 + VALUE * size, bottom)], "faint")
    canvas.line([(x0, bottom), (x0 + 1.06 * size, bottom)])
    for mark in (0, 0.25, 0.5, 0.75, 1):
        canvas.line([(x0 + mark * size, bottom), (x0 + mark * size, bottom + 4)])
        canvas.text(x0 + mark * size, bottom + 18, f"{mark:g}", "small soft", "middle")
    canvas.text(x0 + 1.06 * size, bottom + 18, "θ", "small soft")
    said = 0.0
    for i, pulse in enumerate(pulses):
        y, before = 60 + row * i, said
        said += pulse
        kind = "fa" if pulse > 0 else "fb"
        start, end = x0 + min(before, said) * size, abs(pulse) * size
        canvas.rect(start, y - 7, end, 14, kind, 2)
        canvas.text(16, y + 4, f"{i + 1}.", "small soft")
        canvas.dot(x0 + said * size, y, "back", 2.4)
        canvas.text(WIDTH - 16, y - 1, f"{share(pulse)} θ", "bold", "end")
        canvas.text(WIDTH - 16, y + 14, f"left {abs(VALUE - said):.4g}", "small soft", "end")
    assert abs(said - float(out.estimates[0, 0])) < 1e-12
    canvas.text(16, bottom + 40, "Blue adds, orange takes back. Dots: what the receivers hold so far.", "small soft")
    return canvas.svg()


def codings() -> str:
    """The same neuron and the same value, step by step, in both codings."""
    canvas = Canvas(440, f"A neuron says {TARGET} thresholds with rates and with differential coding")
    named: list[tuple[str, Coding, str]] = [("Rate coding", "rate", "b"), ("Differential coding", "differential", "a")]
    for i, (title, coding, colour) in enumerate(named):
        _coding(canvas, 24 + 198 * i, title, coding, colour)
    canvas.text(16, 414, "Bars: the spike of each step. Dots: what all spikes so far mean.", "small soft")
    canvas.text(16, 430, f"Dashed: {TARGET} θ, which is to be said. Four levels, one spike a step.", "small soft")
    return canvas.svg()


def _coding(canvas: Canvas, top: float, title: str, coding: Coding, colour: str) -> None:
    out = encode(
        torch.full((STEPS, 1), TARGET, dtype=torch.float64),
        torch.ones((), dtype=torch.float64),
        Neuron(num_levels=4, coding=coding),
        want_levels=True,
    )
    assert out.levels is not None
    spikes = level_value(out.levels[:, 0, 0], torch.float64).tolist()
    estimates = out.estimates[:, 0].tolist()
    x0, wide, base, size = 58, 50, top + 150, 110
    canvas.text(16, top, title, "bold")
    off = abs(estimates[-1] - TARGET) / TARGET
    number = sum(spike != 0 for spike in spikes)
    canvas.text(WIDTH - 16, top, f"{number} spikes, off by {off:.1%} after {STEPS} steps", "small soft", "end")
    canvas.line([(x0 - 30, base), (WIDTH - 16, base)])
    canvas.line([(x0 - 30, base - TARGET * size), (WIDTH - 16, base - TARGET * size)], "faint")
    for t in range(STEPS):
        x = x0 + t * wide
        height = abs(spikes[t]) * size
        if spikes[t]:
            canvas.rect(x - 15, base - height if spikes[t] > 0 else base, 8, height, f"f{colour}", 1)
        canvas.text(x, base + 20, f"t = {t + 1}", "small soft", "middle")
    canvas.line([(x0 + t * wide, base - r * size) for t, r in enumerate(estimates)], f"curve {colour}")
    for t, r in enumerate(estimates):
        canvas.dot(x0 + t * wide, base - r * size, f"f{colour}", 4)
