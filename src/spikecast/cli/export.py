"""spikecast export: a network, or its events, as a file that hardware and its simulators read."""

from __future__ import annotations

import dataclasses
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import torch
import typer
from torch import Tensor

from spikecast.cli import checks, common
from spikecast.cli.job import open_job
from spikecast.cli.options import JsonOption, MaybeJobOptions, SettingOptions, grouped
from spikecast.cli.source import SUFFIX, Source, open_source, whole
from spikecast.errors import ConfigError
from spikecast.hardware.nir import Profile
from spikecast.network.spiking import SpikingNetwork
from spikecast.text import many

# Settings without which no neuron can be said in a profile, and how they are given.
RATE = {"coding": ("rate", "--coding rate"), "burst": (1, "--burst 1"), "leak": (0.0, "--set leak=0.0")}
PLAIN = {
    "num_levels": (1, "--levels 1"),
    "signed": (False, "--set signed=false"),
    "firing_boundary": (1.0, "--set firing_boundary=1.0"),
}
NEEDS: dict[str, dict[str, tuple[Any, str]]] = {"portable": {**RATE, **PLAIN}, "composite": RATE}
NIR, ONNX, EVENTS = (".nir",), (".onnx",), (".npz", ".h5", ".hdf5")


@grouped
def command(
    given: MaybeJobOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="FILE.nir or FILE.onnx: the network; FILE.npz or FILE.h5: its events",
            callback=checks.ending(*NIR, *ONNX, *EVENTS),
        ),
    ],
    settings: SettingOptions,
    output: JsonOption,
    profile: Annotated[
        str, typer.Option(help="of NIR: portable, composite or extended", callback=checks.one_of(*get_args(Profile)))
    ] = "portable",
    split: Annotated[bool, typer.Option("--split", help="leave to the host what the profile cannot say")] = False,
    check: Annotated[str, typer.Option(help="compare with importers: snntorch,spikingjelly,sinabs")] = "",
) -> None:
    """Write MODEL as a NIR or ONNX graph, or the events of its neurons on the first batch of --data (--limit images).

    A FILE.spikecast needs no --data for a graph; a model does, for its thresholds.

    \b
    spikecast export digits.spikecast --out digits.nir --profile extended
    spikecast export demo:cnn --data demo:digits -T 32 --coding rate --levels 1 --burst 1 --set signed=false \\
        --set firing_boundary=1.0 --out digits.nir --check snntorch,spikingjelly
    spikecast export digits.spikecast --out digits.onnx
    spikecast export digits.spikecast --data demo:digits --limit 8 --out events.npz
    """
    importers = _importers(check, out)
    if out.suffix in NIR:
        _check_settings(given, settings, profile, split)
    elif split or profile != "portable":
        option = "--split" if split else f"--profile {profile}"
        raise ConfigError(f"{option} is for a NIR graph, and --out {out} is none; leave it out")
    network, source, inputs = _opened(given, settings)
    if out.suffix in EVENTS:
        if inputs is None:
            raise ConfigError(f"--out {out}: events come from images; give --data")
        _write_events(network, inputs, out, settings.steps, as_json=output.as_json)
        return
    if out.suffix in ONNX:
        from spikecast.hardware.onnx_file import export_onnx

        written = export_onnx(network, out)
        common.note(f"written to {out}")
        common.show(str(written), dataclasses.asdict(written), as_json=output.as_json)
        return
    from spikecast.hardware.nir import check_nir, export_nir

    with common.folders_for(out):
        exported = export_nir(network, out, cast(Any, profile), split)
    common.note(f"written to {out}")
    text, data = str(exported), dataclasses.asdict(exported)
    if importers and not isinstance(inputs, Tensor):
        inputs = source.inputs()
    for name in importers:
        checked = check_nir(out, name, inputs, num_steps=network.config.num_steps, network=network)
        text = f"{text}\n{checked}"
        data.setdefault("check", {})[name] = dataclasses.asdict(checked)
    common.show(text, data, as_json=output.as_json)


def _check_settings(given: MaybeJobOptions, settings: SettingOptions, profile: str, split: bool) -> None:
    """Refuse settings that a profile cannot say: known before the model is converted, unless sites may differ."""
    config, needs = settings.config(), NEEDS.get(profile, {})
    if not given.data or given.model.endswith(SUFFIX) or split or config.overrides or config.has_goal:
        return
    if any(getattr(config, name) != value for name, (value, _) in needs.items()):
        words = " ".join(words for _, words in needs.values())
        raise ConfigError(f"--profile {profile} is for plain neurons; convert with {words}, or say --profile extended")


def _importers(check: str, out: Path) -> list[Any]:
    """The importers that were asked for, all of which are installed: known before anything is computed."""
    if check and out.suffix not in NIR:
        kind = "events" if out.suffix in EVENTS else "ONNX"
        raise ConfigError(f"--check {check} is for a NIR graph, and --out {out} is for {kind}; leave it out")
    if not check:
        return []
    from spikecast.hardware.nir.check import installed_importer

    names = common.names(check)
    for name in names:
        installed_importer(name)
    return names


def _opened(given: MaybeJobOptions, settings: SettingOptions) -> tuple[SpikingNetwork, Source, Any]:
    """The network, where it comes from, and the first batch of inputs if there is data."""
    if given.data:
        job = open_job(given)
        network = whole(job.network(job.config(settings, given.seed)), given.model)
        (batch,) = islice(job.data(), 1)
        return network, job.source, batch[0] if isinstance(batch, list | tuple) else batch
    source = open_source(given, given)
    if source.network is None:
        raise ConfigError(f"{given.model} is not converted yet; give --data for its thresholds, or a FILE.spikecast")
    if settings.names:
        raise ConfigError(f"{given.model} has its own {', '.join(settings.names)}; leave them out")
    return whole(source.network, given.model), source, None


def _write_events(network: SpikingNetwork, inputs: Any, out: Path, steps: int | None, *, as_json: bool) -> None:
    from spikecast.hardware.events.recording import record_events

    with torch.no_grad():
        events = record_events(network, inputs, num_steps=steps)
    with common.folders_for(out):
        events.save(out)
    common.note(f"written to {out}")
    data = {"out": str(out), "events": len(events), "samples": events.samples, "num_steps": events.num_steps}
    common.show(
        f"{many(len(events), 'event')} of {many(events.samples, 'sample')}, T = {events.num_steps}",
        data,
        as_json=as_json,
    )
