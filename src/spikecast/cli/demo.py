"""spikecast demo: two small networks, two codings, every step; with nothing to download."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from spikecast.cli import checks, common
from spikecast.cli.job import open_job, save
from spikecast.cli.options import BURST, CURVE, JobOptions, JsonOption, Limit, MachineOptions, Steps, grouped
from spikecast.cli.report import CODINGS, built
from spikecast.config import Coding, Config
from spikecast.measure import Evaluation, evaluate
from spikecast.text import columns

NETWORKS = {"cnn": "a CNN with residual blocks", "vit": "a small vision Transformer"}
NEXT = """
What to try next:
  spikecast inspect demo:vit                                  what each op becomes
  spikecast explain {out}/vit_differential.spikecast --data demo:digits    which layers lose most
  spikecast compare demo:cnn --data demo:digits               beside the methods of the literature
  spikecast sweep demo:cnn --data demo:digits --budget energy=0.3
  spikecast eval torchvision:resnet18 --pretrained --data imagefolder:DIR --limit 200    your own images
  python examples/demo.py                                     the same in Python"""


@grouped
def command(
    machine: MachineOptions,
    output: JsonOption,
    out: Annotated[
        Path,
        typer.Option("--out", help="folder for the pages and the networks", callback=checks.folder_to_write),
    ] = Path("out"),
    steps: Steps = CURVE,
    levels: Annotated[int, typer.Option("--levels", "-n", help="thresholds per sign of a neuron")] = 4,
    burst: Annotated[int, typer.Option(help=BURST)] = Config.burst,
    limit: Limit = None,
) -> None:
    """Convert two small networks for handwritten digits, with differential and with rate coding.

    Prints accuracy, agreement with the ANN and energy after each step, saves the networks and writes a page for each.
    Networks are converted for several steps, to show what each adds; a line says what the default, one step, reaches.

    \b
    spikecast demo
    spikecast demo --burst 1
    spikecast demo --steps 4 --out somewhere --json
    """
    base = Config(num_steps=steps, num_levels=levels, burst=burst, seed=machine.seed)
    configs = {coding: dataclasses.replace(base, coding=coding) for coding in CODINGS}
    digits: dict[str, Any] = {"data": "demo:digits", "limit": limit, "calibrate": 256, "batch_size": 64}
    results: dict[str, Any] = {}
    for name, words in NETWORKS.items():
        job = open_job(JobOptions(model=f"demo:{name}", **digits, **vars(machine)))
        networks = {coding: job.network(config) for coding, config in configs.items()}
        measured = {
            coding: evaluate(network, job.counted(f"measuring {coding}"), model=job.source.model)
            for coding, network in networks.items()
        }
        single = networks["differential"].reconfigure(Config(seed=machine.seed), job.calibration())
        default = evaluate(single, job.counted("measuring one step"), model=job.source.model)
        results[name] = {coding: entry.to_json() for coding, entry in measured.items()}
        results[name]["default"] = default.to_json()
        for coding, network in networks.items():
            save(network, out / f"{name}_{coding}.spikecast")
        page = out / f"{name}.html"
        built(job, networks, title=f"spikecast demo: {words}").write_html(page)
        common.note(f"written to {page}")
        if not output.as_json:
            lines = [f"{words} ({job.source.spec})", _table(measured), _sentence(default)]
            print("", *lines, networks["differential"].report.summary(), "", sep="\n")
    common.show(NEXT.format(out=out).strip("\n"), results, as_json=output.as_json)


def _table(measured: Mapping[Coding, Evaluation]) -> str:
    """Accuracy, agreement and energy of each coding, a row for each step."""
    words = [f"{coding} {what}" for coding in measured for what in ("accuracy", "same", "E")]
    rows: list[Sequence[str]] = [["t", "slots", *words]]
    first = next(iter(measured.values()))
    for t, slots in enumerate(first.slots):
        row = [str(t + 1), str(slots)]
        for entry in measured.values():
            assert entry.agreement is not None
            assert entry.energy is not None
            row += [f"{entry.steps['top1'][t]:.1%}", f"{entry.agreement[t]:.1%}", entry.energy.ratio_text(t + 1)]
        rows.append(row)
    ann = "" if first.ann is None else f"ANN: accuracy {first.ann['top1']:.1%} of {first.samples} digits; "
    return f"{columns(rows)}\n{ann}same: answers like the ANN's; E: energy up to that step over the ANN's"


def _sentence(default: Evaluation) -> str:
    """What the network reaches that is converted with no settings given."""
    assert default.agreement is not None
    assert default.energy is not None
    return (
        f"Converted for one step of {default.slots[0]} slots, the default: accuracy {default.steps['top1'][0]:.1%}, "
        f"same {default.agreement[0]:.1%}, E {default.energy.ratio_text(1)}"
    )
