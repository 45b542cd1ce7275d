"""spikecast compare: methods of the literature and ours, side by side on one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from spikecast.cli import common
from spikecast.cli.job import Job, open_job
from spikecast.cli.options import CURVE, LevelList, MeasuredOptions, Steps, grouped
from spikecast.config import Config
from spikecast.experiments.compare import Comparison, preset_configs
from spikecast.measure.verdicts import Verdicts
from spikecast.page.plots import write_evaluations
from spikecast.presets import described

VERDICTS = (
    "fronts are chosen on every other sample, and compared on the rest; by the band: at all energies at once, "
    "which a single interval does not promise"
)


@grouped
def command(
    given: MeasuredOptions,
    presets: Annotated[
        str,
        typer.Option(
            help=f"{described()}; with commas between. dcgs@4 is dcgs made for 4 steps, whatever --steps says"
        ),
    ] = "dcgs,ecmt,ours",
    levels: LevelList = "4,8",
    steps: Steps = CURVE,
) -> None:
    """Convert MODEL by several methods and measure all on the same images.

    \b
    spikecast compare demo:cnn --data demo:digits --plot methods.svg --csv methods.csv
    spikecast compare torchvision:vgg16_bn --pretrained --data imagenet:/data/imagenet --presets dcgs,snm,ours
    spikecast compare demo:cnn --data demo:digits --presets dcgs@4,ours@1 --levels 8
    """
    names, numbers = common.some_names(presets, "presets"), common.numbers(levels, "levels")
    # A wrong name or number is said before anything is read.
    preset_configs(names, rectifiers=True, levels=numbers, num_steps=steps)
    job = open_job(given)
    configs = preset_configs(names, rectifiers=job.has_rectifiers(), levels=numbers, num_steps=steps)
    side_by_side(job, configs, given, names)


def side_by_side(job: Job, configs: Mapping[str, Config], given: MeasuredOptions, ways: Sequence[str]) -> None:
    """Measure all, draw and print them; `ways` are the first words of their names, of which each two are compared."""
    comparison = job.compare(configs, given)
    evaluations = {name: evaluation for name, (_, evaluation) in comparison.entries.items()}
    common.figures(given, lambda path: write_evaluations(evaluations, path, costs=given.costs), comparison.rows)
    verdicts = _verdicts(comparison, ways)
    lines = [f"{first} beside {second}: {found.text(first, second)}" for (first, second), found in verdicts.items()]
    said = [{"first": first, "second": second, **found.to_json()} for (first, second), found in verdicts.items()]
    data = {**comparison.to_json(), "verdicts": said}
    lines += [VERDICTS] if lines else []
    common.show("\n".join([comparison.table(), *lines]), data, as_json=given.as_json, out=given.out)


def _verdicts(comparison: Comparison, ways: Sequence[str]) -> dict[tuple[str, str], Verdicts]:
    """Of each two ways, at every energy that either reaches."""
    if any(e.energy is None or e.energy.ratio is None for _, e in comparison.entries.values()):
        return {}  # the table says why
    return comparison.against({way: [name for name in comparison.entries if name.split()[0] == way] for way in ways})
