"""Pictures of ways: from a model to a spiking network, to a chip, to joules, and over the report's page."""

from __future__ import annotations

import itertools

from canvas import WIDTH, Canvas

from spikecast.costs import COSTS

MIDDLE = WIDTH / 2


def pipeline() -> str:
    """What goes into a conversion, and what can be done with what comes out."""
    canvas = Canvas(262, "A model and a few inputs become a spiking network, which runs, is measured, and is saved")
    canvas.box(16, 16, 214, ["your model", "any torch.nn.Module, trained"])
    canvas.box(250, 16, 214, ["a few typical inputs", "to find the thresholds from"])
    canvas.line([(123, 62), (123, 80), (200, 94)], "wire", tip=True)
    canvas.line([(357, 62), (357, 80), (280, 94)], "wire", tip=True)
    canvas.box(130, 96, 220, ["spikecast.convert", "no training; weights stay as they are"])
    names = [["run", "answers after", "each step"], ["measure", "accuracy, energy,", "intervals"]]
    names += [["report", "one page", "about all of it"], ["save, export", "a file, a chip", ""]]
    wide = (WIDTH - 32 - 3 * 10) / 4
    for i, lines in enumerate(names):
        x = 16 + i * (wide + 10)
        canvas.line([(MIDDLE, 142), (MIDDLE, 156), (x + wide / 2, 156), (x + wide / 2, 178)], "wire", tip=True)
        canvas.box(x, 180, wide, [line for line in lines if line])
    return canvas.svg()


def network() -> str:
    """A network before and after: the ops stay, and neurons stand where values become spikes."""
    canvas = Canvas(312, "The ops of the model stay; neurons take the place of ReLUs, and stand before linear layers")
    ann = ["convolution", "ReLU", "convolution", "LayerNorm", "linear"]
    snn: list[tuple[str, ...]] = [
        ("convolution", "reads the image:", "multiplications"),
        ("neuron", "in place of the ReLU"),
        ("convolution", "reads spikes: additions"),
        ("LayerNorm", "a graded unit:", "computes its value"),
        ("neuron", "new: turns the value", "into spikes again"),
        ("linear", "reads spikes: additions"),
    ]
    places = [52, 94, 136, 178, 220, 262]
    canvas.text(86, 30, "model", "bold", "middle")
    canvas.text(246, 30, "spiking network", "bold", "middle")
    rows = [0, 1, 2, 3, 5]
    for i, name in zip(rows, ann, strict=True):
        canvas.rect(26, places[i], 120, 30)
        canvas.text(86, places[i] + 20, name, "", "middle")
    for above, below in itertools.pairwise(rows):
        canvas.line([(86, places[above] + 30), (86, places[below] - 1)], "wire", tip=True)
    for i, (name, *why) in enumerate(snn):
        y, is_neuron = places[i], name == "neuron"
        canvas.rect(186, y, 120, 30, "box a" if is_neuron else "box", 15 if is_neuron else 4)
        canvas.text(246, y + 20, name, "bold" if is_neuron else "", "middle")
        for j, line in enumerate(why):
            canvas.text(318, y + (19 if len(why) == 1 else 12 + 15 * j), line, "small soft")
        if i:
            spikes = snn[i - 1][0] == "neuron"
            canvas.line([(246, places[i - 1] + 31), (246, y - 1)], "curve a" if spikes else "wire", tip=not spikes)
    return canvas.svg()


def chip() -> str:
    """From a converted network to hardware: four ways, and what each is checked against."""
    canvas = Canvas(330, "From a converted network to a chip: events, whole numbers, NIR or ONNX, each checked")
    canvas.box(120, 16, 240, ["spiking network", "snn.run: values, all steps at once"])
    canvas.line([(MIDDLE, 62), (MIDDLE, 82)], "wire", tip=True)
    canvas.box(120, 84, 240, ["twin", "the same in spikes, step by step"])
    wide, y = (WIDTH - 32 - 3 * 10) / 4, 166
    ways = [
        (["events", "who fires", "when, and", "which level"], ["simulator:", "counts each", "accumulate"]),
        (["integers", "weights of", "8 bits, no", "multiplication"], ["report: bits", "that were", "used"]),
        (["NIR", "a graph that", "other tools", "read"], ["read back:", "the same", "answers"]),
        (["ONNX", "all steps as", "a plain", "program"], ["onnxruntime:", "the same", "answers"]),
    ]
    for i, (lines, check) in enumerate(ways):
        x = 16 + i * (wide + 10)
        canvas.line([(MIDDLE, 130), (MIDDLE, 146), (x + wide / 2, 146), (x + wide / 2, y - 2)], "wire", tip=True)
        canvas.box(x, y, wide, lines)
        canvas.line([(x + wide / 2, y + 80), (x + wide / 2, y + 96)], "wire")
        for j, line in enumerate(check):
            canvas.text(x + wide / 2, y + 112 + 16 * j, line, "small soft", "middle")
    return canvas.svg()


def energy() -> str:
    """When spikes are cheaper: energy over the ANN's against spikes per neuron, at the costs of the package."""
    costs = COSTS["paper"]
    price = costs.accumulate / costs.multiply
    canvas = Canvas(300, "A spike costs an addition where the ANN multiplies: fewer than five a neuron save energy")
    x0, y0, wide, size = 62, 250, 62, 150  # wide: one spike; size: the ANN's energy
    canvas.text(16, 24, "Energy of a layer that is fed by spikes, over the ANN's", "bold")
    canvas.rect(x0, y0 - size, wide / price, size, "zone", 0)
    canvas.line([(x0, y0), (x0 + 6.3 * wide, y0)], "axis", tip=True)
    canvas.line([(x0, y0), (x0, 40)], "axis", tip=True)
    canvas.line([(x0, y0 - size), (x0 + 6.3 * wide, y0 - size)], "curve b")
    canvas.text(x0 + 8, y0 - size - 8, f"ANN: a product for each weight, {costs.multiply:g} pJ", "small")
    canvas.line([(x0, y0), (x0 + 6 * wide, y0 - 6 * price * size)], "curve a")
    canvas.text(x0 + 2.55 * wide, y0 - 1.7 * price * size, f"a spike: an addition, {costs.accumulate:g} pJ", "small")
    for share in (0, 0.5, 1):
        canvas.text(x0 - 8, y0 - share * size + 4, f"{share:.0%}", "small soft", "end")
    for spikes in range(7):
        canvas.text(x0 + spikes * wide, y0 + 18, str(spikes), "small soft", "middle")
    said = "spikes of a neuron for one answer, in the mean over all neurons"
    canvas.text(x0 + 6.3 * wide, y0 + 38, said, "small soft", "end")
    even = x0 + wide / price
    canvas.dot(even, y0 - size, "fb", 4.5)
    canvas.line([(even, y0 - size), (even, y0)], "faint")
    canvas.text(even + 6, y0 - 12, f"{1 / price:.1f}", "bold")
    return canvas.svg()


def report() -> str:
    """The parts of the report's page, in their order, and what each answers."""
    canvas = Canvas(402, "The parts of the report, from the headline to the provenance")
    parts = [
        ("Head", "how good, for how much energy, after which step", 34),
        ("Curves", "accuracy against steps or energy, with bands", 74),
        ("Layers", "which layer loses, fires, or costs most", 52),
        ("Graph", "what each op became, and what feeds it", 52),
        ("Neurons", "spikes of single neurons, and what they mean", 44),
        ("Differences", "samples with another answer than the ANN's", 34),
        ("Provenance", "command, versions, settings", 34),
    ]
    y = 18.0
    for name, answers, height in parts:
        canvas.rect(16, y, 130, height)
        canvas.text(162, y + height / 2 - 3, name, "bold")
        canvas.text(162, y + height / 2 + 14, answers, "small soft")
        _sketch(canvas, name, 16, y, height)
        y += height + 7
    return canvas.svg()


def _sketch(canvas: Canvas, name: str, x: float, y: float, height: float) -> None:
    if name == "Curves":
        canvas.line([(x + 14, y + 8), (x + 14, y + height - 10), (x + 118, y + height - 10)])
        canvas.line([(x + 18, y + 52), (x + 44, y + 28), (x + 74, y + 18), (x + 114, y + 15)], "curve a")
        canvas.line([(x + 18, y + 58), (x + 44, y + 46), (x + 74, y + 30), (x + 114, y + 20)], "curve b")
    elif name == "Neurons":
        for row in range(4):
            for column in range(10):
                if (row * 7 + column * 3) % 4 < 2:
                    canvas.rect(x + 14 + column * 10.4, y + 8 + row * 8, 2.4, 6, "fa", 0)
    elif name == "Graph":
        for row, kinds in enumerate((("fa", "fb"), ("fc", "fa"))):
            for column, kind in enumerate(kinds):
                canvas.dot(x + 36 + 58 * column, y + 15 + 22 * row, kind, 5)
        canvas.line([(x + 42, y + 15), (x + 88, y + 15)], "wire", tip=True)
        canvas.line([(x + 42, y + 37), (x + 88, y + 37)], "wire", tip=True)
    elif name == "Differences":
        for column in range(4):
            canvas.rect(x + 12 + 28 * column, y + 7, 20, 20, "back", 2)
            canvas.text(x + 22 + 28 * column, y + 22, "7123"[column], "small", "middle")
    else:
        for row in range(int((height - 14) // 9) + 1):
            canvas.rect(x + 12, y + 9 + 9 * row, (96, 78, 88, 60)[row % 4], 3, "tip", 1)
