"""docs/results.md: the real networks under each preset, step by step: python -m benchmarks.results [--full]

Every finished batch is kept, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import spikecast
from spikecast.experiments.compare import Comparison, compare, has_rectifiers, preset_configs
from spikecast.measure import Evaluation

# name: (model, images, preparation, images measured, images calibrated with)
NETWORKS = {
    "ResNet-20": ("cifar_resnet20_model", "cifar10_images", "torch", 2000, 500),
    "VGG-16": ("cifar_vgg16_model", "cifar10_images", "unit", 2000, 500),
    "SqueezeNet": ("squeezenet_model", "imagenet_images", "torch", 200, 100),
    "ViT-Tiny": ("vit_tiny_model", "imagenet_images", "half", 200, 100),
    "ResNet-50": ("resnet50_model", "imagenet_images", "caffe", 200, 100),
}
STEPS = (1, 2, 4, 8)
BATCH = 40


def loaders() -> Any:
    home = os.environ.get("SPIKECAST_REAL")
    if not home or not (Path(home) / "loaders.py").is_file():
        raise SystemExit("set SPIKECAST_REAL to the folder of the real models (it has a loaders.py)")
    spec = importlib.util.spec_from_file_location("real_loaders", Path(home) / "loaders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(name: str, folder: Path, *, full: bool) -> Comparison:
    """One network under all presets."""
    real = loaders()
    make, source, prepare, images, calibration = NETWORKS[name]
    model, read = getattr(real, make)(), getattr(real, source)
    train, _ = read("calibration", prepare, calibration)
    x, y = read("val", prepare, None if full else images)

    def data() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(x.split(BATCH), y.split(BATCH), strict=True)

    rectifiers = has_rectifiers(model, train.split(BATCH))
    configs = preset_configs(("dcgs", "ecmt", "ours"), rectifiers=rectifiers, levels=(4, 8), num_steps=8)
    if name == "ResNet-20":
        configs |= preset_configs(("dcgs", "snm", "ours"), rectifiers=rectifiers, levels=(1,), num_steps=32)
    return compare(
        model,
        lambda: train.split(BATCH),
        data,
        configs,
        folder=folder / name,
        job={"network": name, "images": len(x)},
        progress=lambda config, n: print(f"{name}, {config}: {n} images more", file=sys.stderr, flush=True),
    )


def page(found: dict[str, Comparison], command: str) -> str:
    lines = [
        "# Results on real networks",
        "",
        f"Made by `{command}` with spikecast {spikecast.__version__}, torch {torch.__version__}.",
        "Percent after 1, 2, 4 and 8 steps (1, 8, 16 and 32 with n = 1); slots are the pulse slots of these.",
        "Agreement is with the ANN's own answer;",
        "energy is over the ANN's, under the costs `paper`, `honest` and `full` of [measure.md](measure.md).",
        "`dcgs` is the paper, `ecmt` rates with the same neurons, `snm` signed IF neurons with rates,",
        "`ours` the default of spikecast.",
    ]
    for name, comparison in found.items():
        first = next(iter(comparison.entries.values()))[1]
        assert first.ann is not None
        lines += ["", f"## {name}: ANN {first.ann['top1']:.1%} of {first.samples} images", ""]
        energies = "energy, paper | energy, honest | energy, full"
        lines += [f"| preset | slots | accuracy | agreement | {energies} | spikes per neuron |", "|---" * 8 + "|"]
        for label, (config, e) in comparison.entries.items():
            steps = STEPS if config.num_steps <= 8 else (1, 8, 16, 32)
            lines.append(row(label, e, steps))
        lines += ["", verdict(comparison)]
    return "\n".join(lines) + "\n"


def row(label: str, e: Evaluation, steps: Sequence[int]) -> str:
    assert e.energy is not None
    assert e.agreement is not None

    def cells(values: Sequence[float] | None) -> str:
        assert values is not None  # the products of all these networks are counted
        return " / ".join(f"{100 * values[t - 1]:.1f}" for t in steps)

    energies = [cells(e.energy.under(costs).ratio) for costs in ("paper", "honest", "full")]
    spikes = f"{e.energy.spikes_per_neuron[steps[-1] - 1]:.2f}"
    slots = " / ".join(str(e.slots[t - 1]) for t in steps)
    return (
        f"| {label} | {slots} | {cells(e.steps['top1'])} | {cells(e.agreement)} | {' | '.join(energies)} | {spikes} |"
    )


def verdict(comparison: Comparison) -> str:
    """Where `ours` does not beat `dcgs` at equal energy: at each of its steps, against the paper's best for no more."""
    said = []
    for label, (_, ours) in comparison.entries.items():
        if not label.startswith("ours"):
            continue
        other = comparison.entries.get(label.replace("ours", "dcgs"))
        if other is None:
            continue
        theirs = other[1]
        assert ours.energy is not None
        assert ours.energy.ratio is not None
        assert theirs.energy is not None
        assert theirs.energy.ratio is not None
        assert ours.agreement is not None
        assert theirs.agreement is not None
        lost = []
        for t, (agreement, energy) in enumerate(zip(ours.agreement, ours.energy.ratio, strict=True), 1):
            rivals = [a for a, e in zip(theirs.agreement, theirs.energy.ratio, strict=True) if e <= energy]
            if rivals and max(rivals) > agreement:
                lost.append(f"T = {t} ({agreement:.1%} against {max(rivals):.1%})")
        number = label.split("=")[1]
        said.append(
            f"n = {number}: at equal energy (`paper`) `ours` agrees with the ANN at least as often as `dcgs`"
            + (f", but not at {', '.join(lost)}." if lost else " at every step.")
        )
    return " ".join(said)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all images there are")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--folder", type=Path, default=Path("out/results"), help="where finished batches are kept")
    parser.add_argument("--page", type=Path, default=Path("docs/results.md"))
    given = parser.parse_args()
    folder = given.folder / ("full" if given.full else "part")
    found = {name: measure(name, folder, full=given.full) for name in given.only}
    given.page.write_text(page(found, "python -m benchmarks.results" + " --full" * given.full), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
