"""Score against energy of the real networks, ours beside other methods: python -m benchmarks.fronts [--only ResNet-20]

    python -m benchmarks.fronts --settings "ours" "dcgs"   measure these settings (finished ones are kept in --folder)
    python -m benchmarks.fronts --list                     ours beside each other method, at every energy of either
    python -m benchmarks.fronts --unreached                every point of another method that no point of ours reaches
    python -m benchmarks.fronts --check                    whether README's sentence on ours and dcgs is true (exit 0)
    python -m benchmarks.fronts --table                    all points, with intervals
    python -m benchmarks.fronts --page docs                results.md and fronts.svg, for the docs

Settings are calibrated on `calibration`; the budgets of ours are taken from what dcgs needs on the first half of `val`.
All figures are of the second half. Energy is under the paper's costs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import spikecast
from benchmarks.claims import check
from benchmarks.measured import UNSEEN, beside, difference, gap_text, points
from benchmarks.real import NETWORKS, Note, Real
from spikecast import Config
from spikecast.costs import costs_named
from spikecast.experiments.compare import has_rectifiers, preset_configs
from spikecast.measure.intervals import share
from spikecast.network.base import Network
from spikecast.network.counting.meter import metered_run
from spikecast.network.counting.tally import Tally
from spikecast.page.plots import Curve, add_curve, write_figure

OTHERS = ("dcgs", "ecmt", "hmt")
STEPS = (1, 2, 4)
OURS: dict[str, dict[str, Any]] = {"ours": {}, "ours, exact": {"num_levels": 10, "burst": 5}}
BUDGETS = {"ours, half": (4, 0.57), "ours, least": (1, 0.97)}  # steps of dcgs, and the share of their energy
SETTINGS = (*OTHERS, *OURS, *BUDGETS)
WORDS = {
    "classes": "% right",
    "masks": "mIoU in %",
    "boxes": "mAP at IoU 0.5 in %",
    "tokens": "perplexity, less is better",
    "values": "squared error, less is better",
}
PAGE = """Made by `python -m benchmarks.fronts` and `python -m benchmarks.fronts --page docs`, spikecast {spikecast},
torch {torch}. Thirteen pretrained networks, converted without training. Thresholds come from calibration samples,
the budgets of ours from what `dcgs` needs on the first half of the validation samples. All figures are of the second
half (the first 1,000 of it for CIFAR-10, the first 200 for ImageNet).

Energy is over the ANN's, under the paper's costs. Slots are the pulse slots: a burst takes time. Intervals are 95 %:
Tango's for paired shares, Wilson's for shares, the paired bootstrap for other scores. A minus means worse than the
ANN. Agreement is with the ANN's own answer; nats are the divergence from its probabilities.

`dcgs` is the paper, `ecmt` rates with the same neurons, `hmt` the neuron of H-MT as settings, all with n = 8. `ours`
is the default of spikecast: one step, n = 8, bursts of 3. `exact` has n = 10 and bursts of 5; `half` and `least` have
an energy budget of 0.57 of what `dcgs` needs for four steps, and of 0.97 of what it needs for one. Others carry their
settings in their name.

![Score against energy](fronts.svg)
"""
BESIDE = """A method's settings after every step make its front: those that score more than all cheaper ones, chosen on
every other sample. Between two of them scores are interpolated; above the dearest, that one stands. Better and worse
are said where 0 lies outside of the 95 % interval of the difference on the rest of the samples, and over all only where
it is so at every energy (`python -m benchmarks.fronts --list`).
"""


def config_of(setting: str, real: Real, model: nn.Module, folder: Path) -> Config:
    """The configuration of a setting; `budget=0.2`, `fidelity=0.01`, `burst=2` and the like are understood too."""
    output = "logits" if real.task in ("classes", "tokens") else "values"
    if setting in OTHERS:
        rectifiers = has_rectifiers(model, real.read("calibration")[0].split(real.batch))
        return next(iter(preset_configs([setting], rectifiers=rectifiers, levels=(8,), num_steps=STEPS[-1]).values()))
    if setting in BUDGETS:
        steps, part = BUDGETS[setting]
        spent = json.loads((folder / "dcgs.json").read_text())["energy on the first half"][steps - 1]
        given = {"energy_budget": part * spent}
    elif setting in OURS:
        given = OURS[setting]
    else:
        words = (word.split("=") for word in setting.removeprefix("ours, ").split())
        given = {name: json.loads(value) for name, value in words}
    return Config(**{"num_steps": 1, "output": output, **given})


def measure(name: str, setting: str, folder: Path, *, unseen: bool = False, samples: int | None = None) -> None:
    """Convert with a setting and run the samples; what they said is written down.

    `unseen` calibrates on the first half of `val`, where `calibration` are images that the network was trained on.
    """
    real, label = NETWORKS[name], setting + UNSEEN * unseen
    if samples is not None:
        real = replace(real, samples=samples)
    target = folder / f"{label}.json"
    if target.is_file():
        return
    model = real.build()
    x = real.read("chosen on" if unseen else "calibration")[0][: real.calibration]
    config = config_of(setting, real, model, folder)
    began = time.monotonic()
    snn = spikecast.convert(model, x.split(real.batch), config)
    converted = time.monotonic() - began
    notes, ann, energy = run(real, model, snn, "reported")
    found = {
        "network": name,
        "setting": label,
        "version": spikecast.__version__,
        "config": config.to_json(),
        "calibration": len(x),
        "slots": snn.slots(),
        "energy": energy,
        "notes": notes,
        "ann": ann,
        "seconds": [converted, time.monotonic() - began - converted],
    }
    if setting == "dcgs":
        found["energy on the first half"] = run(real, model, snn, "chosen on", 100)[2]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(found), encoding="utf-8")


def run(
    real: Real, model: nn.Module, snn: Network, split: Any, limit: int | None = None
) -> tuple[list[list[Note]], list[Note], list[float]]:
    """What each sample said after each step, what it said to the ANN, and the energy over the ANN's."""
    x, y = real.read(split)
    x, y = x[:limit], y[:limit]
    tally = Tally(snn.config.num_steps)
    notes: list[list[Note]] = [[] for _ in range(snn.config.num_steps)]
    ann: list[Note] = []
    for i in range(0, len(x), real.batch):
        part, truth = x[i : i + real.batch], y[i : i + real.batch]
        with torch.inference_mode():
            reference = model(part)
        ann += real.notes(reference, reference, truth)
        for own, answers in zip(notes, metered_run(snn, ((part,), {}), tally), strict=True):
            own += real.notes(answers.float(), reference, truth)
    ratio = tally.ratio(costs_named("paper")[0])
    assert ratio is not None
    return notes, ann, ratio


def against(name: str, folder: Path) -> Iterator[str]:
    """Ours beside each other method, at every energy that either reaches."""
    found = points(folder)[0]
    for other in (other for other in OTHERS if any(p.method == other for p in found)):
        yield f"| {name} | {other} | {beside(name, found, 'ours', other).text('ours', other)} |"


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
    yield "| setting | slots | energy | score | less the ANN's | agreement, % | nats |"
    yield "|---" * 7 + "|"
    for p in sorted((p for p in found if p.t in STEPS), key=lambda p: p.energy):
        gap, interval = difference(real, p.notes, ann)
        agreement = real.agreement(p.notes)
        same = nats = ""
        if agreement is not None:
            same = share(round(agreement * len(p.notes)), len(p.notes)).text(agreement, digits=1).replace("%", "")
            nats = f"{sum(note[2] for note in p.notes) / len(p.notes):.4f}"
        between = gap_text(gap, interval)
        score = abs(real.score(p.notes))
        yield f"| {p.name} | {p.slots} | {p.energy:.3f} | {score:.2f} | {between} | {same} | {nats} |"
    yield ""


def summary(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """A row for each network: ours, with and without a budget, beside four steps of dcgs."""
    yield (
        "| network, samples | ANN | ours, T = 1 | at energy | less the ANN's "
        "| with a budget | dcgs, T = 4 | ours less dcgs |"
    )
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


def page(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """docs/results.md"""
    yield "# Results on real networks"
    yield ""
    yield PAGE.format(spikecast=spikecast.__version__, torch=torch.__version__)
    yield "## One step beside four of the paper"
    yield ""
    yield from summary(folder, names)
    yield ""
    yield "## Beside other methods, at every energy that either reaches"
    yield ""
    yield BESIDE
    yield "| network | other | ours |"
    yield "|---" * 3 + "|"
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


def draw(folder: Path, names: Sequence[str], target: Path) -> None:
    """One panel for each network: score against energy."""
    columns = 4
    lines = -(-len(names) // columns)

    def panels(figure: Any) -> None:
        axes = figure.subplots(lines, columns, squeeze=False).flatten()
        for panel, name in zip(axes, names, strict=False):
            real, (found, ann) = NETWORKS[name], points(folder / name)
            panel.axhline(real.score(ann), color="0.7", linewidth=1, linestyle="--")
            for i, method in enumerate(("ours", *OTHERS)):
                own = sorted((p for p in found if p.method == method and p.t in STEPS), key=lambda p: p.energy)
                curve = Curve(method, [real.score(p.notes) for p in own], [1])
                add_curve(panel, curve, [p.energy for p in own], number=i)
            panel.set(title=name, xlabel="energy over the ANN's", ylabel="score")
        axes[0].legend()
        for panel in axes[len(names) :]:
            panel.remove()

    write_figure(target, panels, size=(4 * columns, 3.2 * lines))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fronts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument(
        "--settings", nargs="+", default=SETTINGS, help='also "ours, burst=2 num_levels=6" and the like'
    )
    parser.add_argument("--folder", type=Path, default=Path("out/fronts"))
    parser.add_argument("--samples", type=int, help="more or fewer than usual; take a --folder of their own")
    parser.add_argument("--unseen", action="store_true", help="calibrate on the first half of val")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--unreached", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 if README is wrong, 2 if a measurement is missing")
    parser.add_argument("--page", type=Path, metavar="FOLDER", help="write results.md and fronts.svg there")
    given = parser.parse_args(words)
    if given.check:
        return check(given.folder, given.only)
    views: dict[str, Callable[[str, Path], Iterator[str]]] = {"list": against, "unreached": unreached, "table": table}
    shown = [view for name, view in views.items() if getattr(given, name)]
    for name in given.only:
        for line in (line for view in shown for line in view(name, given.folder / name)):
            print(line, flush=True)
        if shown:
            continue
        if given.page is None:
            for setting in given.settings:
                began = time.monotonic()
                measure(name, setting, given.folder / name, unseen=given.unseen, samples=given.samples)
                print(f"{name}, {setting}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if given.page is not None:
        draw(given.folder, given.only, given.page / "fronts.svg")
        text = "\n".join(page(given.folder, given.only))
        (given.page / "results.md").write_text(text.rstrip() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
