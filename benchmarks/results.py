"""The page of results and its drawing, from what benchmarks.fronts has measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import spikecast
from benchmarks.measured import ENDING, OTHERS, STEPS, beside, difference, gap_text, points, read_record
from benchmarks.real import NETWORKS
from spikecast.costs import COSTS
from spikecast.measure.intervals import share
from spikecast.page.plots import COLOURS, Curve, add_curve, write_figure

WORDS = {
    "classes": "% right",
    "masks": "mIoU in %",
    "boxes": "mAP at IoU 0.5 in %",
    "tokens": "perplexity, less is better",
    "values": "squared error, less is better",
}
STORY = ("ResNet-50", "ViT-Tiny", "SqueezeNet", "ResNet-20")
METHODS = {"ours": "ours", "dcgs": "the paper (DCGS)", "ecmt": "rate coding", "hmt": "H-MT"}
GREY = "#808890"  # reads on white and on black
FONT = 10.5  # points: a phone shows the picture at half its size
PAGE = """Made by `python -m benchmarks.fronts` and `python -m benchmarks.fronts --page docs`, spikecast {spikecast},
torch {torch}. Thirteen pretrained networks, converted without training.

![Score against energy](fronts.svg)

*Score against energy over the ANN's. A dot is a setting after some steps; a line joins those that score more than all
cheaper ones of their method (on the samples shown; the tables below choose on others). The dashed line is the ANN. The
lowest quarter of the dots lies below a frame.*

| method | what it is | steps |
|---|---|---|
| `ours` | the default of spikecast: n = 8, bursts of 3 | 1 |
| `ours, exact` | n = 10, bursts of 5 | 1 |
| `ours, half` | with an energy budget: 0.57 of what `dcgs` needs for four steps | 1 |
| `ours, least` | 0.97 of what `dcgs` needs for one step | 1 |
| `ours, less` | 0.97 of what `dcgs` with n = 4 needs for one step | 1 |
| `dcgs` | the paper, n = 8 | 8 |
| `dcgs_published` | what the paper's published code does where it differs ([errata.md](errata.md)) | 8 |
| `ecmt` | rate coding with the same neurons | 8 |
| `hmt` | the neuron of H-MT as settings | 4, on some networks 8 |

Other settings are in the name (`n=4`, `two steps`). Where `dcgs_published` makes the very network that `dcgs` does, as
on most networks with ReLUs, it is not run again. Four steps of `hmt` with n = 8 cost about as much as the ANN.

- **Samples.** Thresholds come from calibration samples. What `dcgs` needs is measured on the first half of the
  validation samples. All figures are of the second half.
- **Energy** is over the ANN's, by three lists of costs ([measure.md](measure.md)): the paper's, by which methods are
  compared, the honest and the full one. Slots are pulse slots: a burst takes time.
- **Intervals** are 95 %: Tango's for paired shares, Wilson's for shares, the paired bootstrap for other scores. A minus
  means worse than the ANN.
- **Agreement** is with the ANN's own answer; nats are the divergence from its probabilities.
- **Records.** `benchmarks/records` has what each sample said, with the commit of each setting: {commits}.
- **Other processors** round otherwise, and a spike near an edge may fall on its other side. Measured again on another
  one, six settings of KWS had at most 1 of 400 other answers at a step, and energies within 0.01 %. Far from the ANN
  more moves: of 20 images, ViT-Tiny with `dcgs` had 4 others at T = 1, 2 or 3 up to T = 4 and none from T = 5 on;
  single samples of ToyCar with `dcgs` moved by a quarter at T = 1 (by half with n = 4) and by 0.1 to 1 % at T = 8.
- **Measured again** on 2026-11-18 at commit 2477fd5, on another machine: one step of `ours` on all networks, and four
  settings on KWS, VWW, N-MNIST and ToyCar. Answers are the same, but for 8 of 400 of ViT-Tiny, 1 of 400 of ResNet-50, 1
  of 400 of KWS (`dcgs`, n = 4), and Stories (perplexity by 0.007). Energies move by at most 0.1 %. For Stories the code
  of its record gives the same bits there. (`--folder out/again --settings ours`, then `--beside benchmarks/records`.)
"""
BESIDE = """A method's settings after every step make its front: those that score more than all cheaper ones, chosen on
every other sample. Between two of them scores are interpolated (the logarithm of perplexity); above the dearest, that
one stands. Each method of the literature is compared with `ours` at every energy that either reaches, on the rest of
the samples. The table counts energies at which `ours` is better or worse.

- *By the band*: 0 lies outside of a 95 % band that holds at all energies at once. Take these counts.
- *Alone*: 0 lies outside of the 95 % interval of that one energy. Of twenty energies, one does so by luck.
- *Only*: one of the two has no setting that is cheap enough.

`python -m benchmarks.fronts --list` prints the rows.
"""
BESIDE_HEAD = (
    "| network | beside | energies | better by the band | worse by the band | better alone | worse alone "
    "| undecided alone | only ours | only the other |"
)


def against(name: str, folder: Path) -> Iterator[str]:
    """Ours beside each other method, at every energy that either reaches."""
    found = points(folder)[0]
    for other in (other for other in OTHERS if any(p.method == other for p in found)):
        both = beside(name, found, "ours", other)
        counts = [len(both.at(word, common=common)) for common in (True, False) for word in ("better", "worse")]
        only = [len(both.at(word)) for word in ("undecided", "only first", "only second")]
        yield f"| {name} | {other} | {' | '.join(str(count) for count in (len(both.energies), *counts, *only))} |"


def unreached(name: str, folder: Path) -> Iterator[str]:
    """Points of others that no point of ours reaches: each needs more energy, or scores less beyond the interval."""
    real, found = NETWORKS[name], [p for p in points(folder)[0] if p.t in STEPS]
    scores = {p.name: real.score(p.notes) for p in found}
    ours = sorted((p for p in found if p.method == "ours"), key=lambda p: -scores[p.name])
    for other in (p for p in found if p.method in OTHERS):
        cheap = [p for p in ours if p.energy <= other.energy]
        if not any(
            scores[p.name] >= scores[other.name] or difference(real, p.notes, other.notes)[1].high >= 0 for p in cheap
        ):
            yield f"{name}: {other.name}, {abs(scores[other.name]):.2f} at {other.energy:.3f}"


def table(name: str, folder: Path) -> Iterator[str]:
    """All points of a network by their energy, as a table of Markdown."""
    real, (found, ann) = NETWORKS[name], points(folder)
    yield f"## {name}: ANN {abs(real.score(ann)):.2f} ({WORDS[real.task]}), {len(ann)} samples"
    yield ""
    yield f"| setting | slots | energy: {' | '.join(COSTS)} | score | minus the ANN's | agreement, % | nats |"
    yield "|---" * (6 + len(COSTS)) + "|"
    for p in sorted((p for p in found if p.t in STEPS), key=lambda p: p.energy):
        gap, interval = difference(real, p.notes, ann)
        agreement = real.agreement(p.notes)
        same = nats = ""
        if agreement is not None:
            same = share(round(agreement * len(p.notes)), len(p.notes)).text(agreement, digits=1).replace("%", "")
            nats = f"{p.nats:.4f}"
        between = gap_text(gap, interval)
        score = abs(real.score(p.notes))
        energies = " | ".join(f"{p.energies[name]:.3f}" for name in COSTS)
        yield f"| {p.name} | {p.slots} | {energies} | {score:.2f} | {between} | {same} | {nats} |"
    yield ""


def summary(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """A row for each network: ours, with and without a budget, beside four steps of dcgs."""
    yield ("| network, samples | ANN | ours | energy | minus the ANN's | with a budget | dcgs | ours minus dcgs |")
    yield "|---" * 8 + "|"
    for name in names:
        real, (found, ann) = NETWORKS[name], points(folder / name)
        by_name = {p.name: p for p in found}
        ours, half, dcgs = (by_name.get(key) for key in ("ours T=1", "ours, half T=1", "dcgs T=4"))
        if ours is None or half is None or dcgs is None:
            continue
        gaps = [difference(real, ours.notes, other) for other in (ann, dcgs.notes)]
        cells = [gap_text(*gap) for gap in gaps]
        scores = [abs(real.score(notes)) for notes in (ann, ours.notes, half.notes, dcgs.notes)]
        yield (
            f"| {name}, {len(ann)} | {scores[0]:.2f} | {scores[1]:.2f} | {ours.energy:.3f} | {cells[0]} "
            f"| {scores[2]:.2f} at {half.energy:.3f} | {scores[3]:.2f} at {dcgs.energy:.3f} | {cells[1]} |"
        )


def prices(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """A row for each network: the energy of ours and of four steps of dcgs over the ANN's, by each costs."""
    yield f"| network | {' | '.join(f'{name}: ours | dcgs' for name in COSTS)} |"
    yield "|---" * (1 + 2 * len(COSTS)) + "|"
    for name in names:
        by_name = {p.name: p for p in points(folder / name)[0]}
        pair = [by_name[key] for key in ("ours T=1", "dcgs T=4") if key in by_name]
        if len(pair) == 2:
            yield f"| {name} | {' | '.join(f'{p.energies[costs]:.3f}' for costs in COSTS for p in pair)} |"


def page(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """docs/results.md"""
    yield "# Results on real networks"
    yield ""
    commits = sorted({read_record(file).get("commit", "unknown") for file in folder.glob(f"*/*{ENDING}")})
    yield PAGE.format(spikecast=spikecast.__version__, torch=torch.__version__, commits=", ".join(commits))
    yield "## One step beside four of the paper"
    yield ""
    yield from summary(folder, names)
    yield ""
    yield "## The same under other costs"
    yield ""
    yield "One step of `ours` and four of `dcgs`, energy over the ANN's:"
    yield ""
    yield from prices(folder, names)
    yield ""
    yield "## Beside other methods, at every energy that either reaches"
    yield ""
    yield BESIDE
    yield BESIDE_HEAD
    yield "|---" * BESIDE_HEAD.count(" | ") + "|---|"
    for name in names:
        yield from against(name, folder / name)
    yield ""
    yield "## Points of other methods that no point of ours reaches"
    yield ""
    yield "At no more energy, and not worse beyond the interval (`python -m benchmarks.fronts --unreached`):"
    yield ""
    missed = [f"- {line}" for name in names for line in unreached(name, folder / name)]
    yield from missed or ["none"]
    yield ""
    for name in names:
        yield from table(name, folder / name)


def draw_story(folder: Path, target: Path) -> None:
    """The picture of README: four networks, each method's front with bands, and the ANN; for any background."""
    shown = [name for name in STORY if any((folder / name).glob(f"*{ENDING}"))]
    columns = min(len(shown), 2)  # beside each other they would be too small to read on a phone
    rows = -(-len(shown) // max(columns, 1))

    def panels(figure: Any) -> None:
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel, name in zip(axes, shown, strict=False):
            real, (found, ann) = NETWORKS[name], points(folder / name)
            panel.axhline(real.score(ann[1::2]), color=GREY, linewidth=1, linestyle="--", label="the ANN, energy 1")
            for i, (method, label) in enumerate(METHODS.items()):
                own = sorted((p for p in found if p.method == method and p.t in STEPS), key=lambda p: p.energy)
                if not own:  # not measured yet
                    continue
                chosen = [real.score(p.notes[::2]) for p in own]  # on every other sample; the rest is shown
                kept = [p for k, p in enumerate(own) if chosen[k] > max(chosen[:k], default=-1)]
                seen = [p.notes[1::2] for p in kept]
                within = [share(sum(note[0] == 1 for note in notes), len(notes)) for notes in seen]
                curve = Curve(
                    label,
                    [real.score(notes) for notes in seen],
                    [1],
                    intervals=[(100 * ends.low, 100 * ends.high) for ends in within],
                )
                add_curve(panel, curve, [p.energy for p in kept], number=i, alpha=0.25)
            panel.set(title=f"{name}, {len(ann[1::2])} images", xlim=(0, 1))
            panel.title.set(color=GREY, fontsize=FONT)
            panel.tick_params(colors=GREY, labelsize=FONT - 1)
            panel.locator_params(nbins=4)
            for edge in panel.spines.values():
                edge.set_color(GREY)
        for panel in axes[::columns]:
            panel.set_ylabel("% right", color=GREY, fontsize=FONT)
        for panel in axes[-columns:]:
            panel.set_xlabel("energy over the ANN's", color=GREY, fontsize=FONT)
        figure.patch.set_alpha(0)
        for panel in axes:
            panel.patch.set_alpha(0)
        for panel in axes[len(shown) :]:
            panel.remove()
        handles = axes[0].get_legend_handles_labels()
        legend = figure.legend(*handles, loc="outside upper center", ncols=3, framealpha=0, fontsize=FONT)
        for text in legend.get_texts():
            text.set_color(GREY)

    write_figure(target, panels, size=(3.3 * columns, 2.4 * rows + 0.4))


def draw(folder: Path, names: Sequence[str], target: Path) -> None:
    """One panel for each network: settings, and those that score more than all cheaper ones; see PAGE."""
    columns = 3
    lines = -(-len(names) // columns)

    def panels(figure: Any) -> None:
        axes = figure.subplots(lines, columns, squeeze=False).flatten()
        for panel, name in zip(axes, names, strict=False):
            real, (found, ann) = NETWORKS[name], points(folder / name)
            panel.axhline(real.score(ann), color="0.7", linewidth=1, linestyle="--")
            shown: list[float] = []
            for i, method in enumerate(("ours", *OTHERS)):
                own = sorted((p for p in found if p.method == method and p.t in STEPS), key=lambda p: p.energy)
                if not own:  # not measured yet
                    continue
                scores = [real.score(p.notes) for p in own]
                kept = [k for k, score in enumerate(scores) if score > max(scores[:k], default=-math.inf)]
                add_curve(panel, Curve(method, [scores[k] for k in kept], [1]), [own[k].energy for k in kept], number=i)
                panel.plot([p.energy for p in own], scores, ".", color=COLOURS[i], alpha=0.4, markersize=3)
                shown += scores
            low, high = sorted(shown)[len(shown) // 4], max(shown)
            room = max(high - low, abs(high) / 100) / 10
            what, _, less = WORDS[real.task].partition(", less")
            panel.set(title=f"{name}, {'minus ' if less else ''}{what}", xlim=(0, 1.1), ylim=(low - room, high + room))
            panel.locator_params(nbins=5)
        for panel in axes[max(0, len(names) - columns) : len(names)]:
            panel.set_xlabel("energy over the ANN's")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=1 + len(OTHERS))
        for panel in axes[len(names) :]:
            panel.remove()

    write_figure(target, panels, size=(2.7 * columns, 2 * lines + 0.3))
