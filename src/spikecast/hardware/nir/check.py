"""What other tools make of an exported file: they run it in their own environment, and spike trains are compared."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError, MissingExtraError
from spikecast.hardware.nir.builder import nir_package
from spikecast.hardware.nir.interpret import Interpreter
from spikecast.network.spiking import SpikingNetwork
from spikecast.theory.firing import level_value

Importer = Literal["snntorch", "spikingjelly", "sinabs"]
HOME = Path("~/.cache/spikecast/importers")  # where `make importers` puts the environments
_SCRIPT = Path(__file__).with_name("importers") / "check.py"


@dataclass(frozen=True)
class Deviation:
    """One stage of an importer against what the file means; shares are of all (neuron, step) pairs."""

    stage: str
    layers: dict[str, float]  # share of spikes that differ, by layer
    rates: dict[str, tuple[float, float]]  # firing rate, meant and found
    first_step: int | None  # the first step (1-based) in which any spike differs
    output_error: float  # relative L2 error of the mean output
    agreement: float  # share of samples with the same largest output
    differences: tuple[str, ...]
    error: str = ""

    @property
    def worst(self) -> float:
        return max(self.layers.values(), default=0.0)


@dataclass(frozen=True)
class NirCheck:
    """The stages of one importer; see `importers/check.py` for what they are."""

    importer: str
    versions: dict[str, str]
    num_steps: int
    stages: dict[str, Deviation]

    def __str__(self) -> str:
        versions = ", ".join(f"{k} {v}" for k, v in self.versions.items())
        lines = [f"{self.importer} ({versions}), {self.num_steps} steps"]
        for stage in self.stages.values():
            if stage.error:
                lines.append(f"  {stage.stage:<9} fails: {stage.error}")
                continue
            mean = sum(stage.layers.values()) / max(len(stage.layers), 1)
            since = "none" if stage.first_step is None else f"first at step {stage.first_step}"
            lines.append(
                f"  {stage.stage:<9} spikes that differ: {mean:.2e} of all on average, {stage.worst:.2e} in the worst "
                f"layer, {since}; output error {stage.output_error:.2e}, same answer {100 * stage.agreement:.1f} %"
            )
            lines += [f"            differs: {line}" for line in stage.differences]
        return "\n".join(lines)


@torch.no_grad()
def check_nir(
    path: str | os.PathLike[str],
    importer: Importer,
    x: Tensor,
    *,
    num_steps: int = 8,
    network: SpikingNetwork | None = None,
    python: str | os.PathLike[str] | None = None,
) -> NirCheck:
    """Run a file of profile "portable" in an importer, and hold its spikes against what the file says.

    Args:
        path: The file.
        importer: "snntorch", "spikingjelly" or "sinabs".
        x: Inputs [batch, ...], the same at every step.
        num_steps: T.
        network: The network that the file was written from, to be held against instead of the file's own meaning.
        python: The importer's own interpreter; `make importers` installs one under ~/.cache/spikecast/importers.

    Returns:
        Spikes and answers that differ, stage by stage; `print` it.

    Example:
        >>> hardware.check_nir("net.nir", "sinabs", x)  # doctest: +SKIP
    """
    interpreter = installed_importer(importer, python)
    graph = nir_package().read(path)
    profile = graph.metadata.get("spikecast.profile", "portable")
    if profile != "portable":
        raise ConfigError(
            f"{path} has profile {profile!r}, whose neurons are nested graphs that {importer} does not read; "
            "export it with profile='portable'"
        )
    output, sent = Interpreter(graph).run(x, num_steps)
    expected = {name: sent[name] for name, node in graph.nodes.items() if type(node).__name__ == "IF"}
    if network is not None:
        output, expected = _of_network(network, graph, x, num_steps)
    report, arrays = _run(path, importer, x, num_steps, interpreter)
    stages = {stage: _compare(stage, report, arrays, output, expected) for stage in report["differences"]}
    return NirCheck(importer, report["versions"], num_steps, stages)


def importer_python(importer: str) -> Path:
    """Where the interpreter of an importer is expected."""
    return HOME.expanduser() / importer / "bin" / "python"


def installed_importer(importer: str, python: str | os.PathLike[str] | None = None) -> str:
    """The interpreter of an importer, which is there."""
    if importer not in get_args(Importer):
        raise ConfigError(f"importer={importer!r} must be one of {', '.join(map(repr, get_args(Importer)))}")
    place = importer_python(importer) if python is None else Path(python)
    if not place.exists():
        raise MissingExtraError(f"{importer} has no environment at {place}; make importers, or give python=...")
    return str(place)


def _of_network(network: SpikingNetwork, graph: Any, x: Tensor, num_steps: int) -> tuple[Tensor, dict[str, Tensor]]:
    """The network's own signals: r[t] is a mean, so the signal of a step is t·r[t] - (t-1)·r[t-1]."""
    if bursts := [site for site, neuron in network.neurons.items() if neuron.burst > 1]:
        raise DataError(
            f"{', '.join(bursts)}: bursts of several spikes a step, which no importer's IF sends; give the network "
            "that the file was written from, converted with burst=1"
        )
    estimates, recorded = network.run(x, num_steps=num_steps), network.record(x, num_steps=num_steps)
    totals = estimates * torch.arange(1, num_steps + 1).reshape(-1, *(1,) * (estimates.dim() - 1))
    signals = totals - torch.cat([torch.zeros_like(totals[:1]), totals[:-1]])
    nodes = {name: node for name, node in graph.nodes.items() if type(node).__name__ == "IF"}
    sent = {site: level_value(own.levels).sum(1) for site, own in recorded.items()}
    return signals, {name: sent[node.metadata["spikecast.site"]] for name, node in nodes.items()}


def _run(path: Any, importer: str, x: Tensor, num_steps: int, python: str) -> tuple[Any, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="spikecast-") as folder:
        given, out = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, x=x.float().unsqueeze(0).expand(num_steps, *x.shape).numpy())
        command = [python, "-P", str(_SCRIPT), importer, os.path.abspath(path), str(given), str(out)]
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
        if done.returncode or not out.exists():
            said = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1][:300]
            raise DataError(f"{importer} could not take {path}: {said}")
        with np.load(out, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
    return json.loads(arrays.pop("report").tobytes()), arrays


def _compare(stage: str, report: Any, arrays: Any, output: Tensor, expected: dict[str, Tensor]) -> Deviation:
    said = tuple(f"{d['name']} ({d['meaning']})" for d in report["differences"][stage])
    if f"{stage}/" not in arrays:
        failure = report["errors"].get(stage, "no answer")
        return Deviation(stage, {}, {}, None, float("nan"), float("nan"), said, failure)
    layers, rates, steps = {}, {}, []
    for name, ours in expected.items():
        theirs = torch.from_numpy(arrays[f"{stage}/{name}"]).float()
        differs = theirs != ours
        layers[name] = float(differs.float().mean())
        rates[name] = (float(ours.mean()), float(theirs.mean()))
        steps += differs.flatten(1).any(1).nonzero().flatten().tolist()[:1]
    theirs = torch.from_numpy(arrays[f"{stage}/"])
    first = min(steps) + 1 if steps else None
    if theirs.shape != output.shape:
        said = (*said, f"wrong output (the answer is some other node's, of shape {tuple(theirs.shape[2:])})")
        return Deviation(stage, layers, rates, first, float("inf"), 0.0, said)
    mean, ours = theirs.mean(0).flatten(1), output.mean(0).flatten(1)
    error = float((mean - ours).norm() / ours.norm().clamp_min(1e-30))
    same = float((mean.argmax(1) == ours.argmax(1)).float().mean())
    return Deviation(stage, layers, rates, first, error, same, said)
