"""A network as a NIR file that other tools read (https://neuroir.org): three profiles, an importer, and a check."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

from spikecast._version import __version__
from spikecast.errors import ConfigError, ModelError
from spikecast.hardware.endings import check_ending
from spikecast.hardware.nir import extended
from spikecast.hardware.nir.builder import Builder, Built, Gap, nir_package
from spikecast.hardware.nir.check import NirCheck, check_nir
from spikecast.hardware.nir.extended import load_nir
from spikecast.hardware.nir.file import write_graph
from spikecast.hardware.nir.neurons import composite, plain_if
from spikecast.network.spiking import SpikingNetwork

Profile = Literal["portable", "composite", "extended"]
__all__ = ["Gap", "NirCheck", "NirExport", "Profile", "check_nir", "export_nir", "load_nir"]
_MAKERS = {"portable": plain_if, "composite": composite, "extended": extended.neuron_with_settings}


@dataclass(frozen=True)
class NirExport:
    """What was written: how many nodes, which of them are neurons (node -> site), and what stays on the host."""

    path: str
    profile: Profile
    num_nodes: int
    num_edges: int
    neurons: dict[str, str]
    host_ops: tuple[Gap, ...]

    def __str__(self) -> str:
        head = f"{self.path}: NIR profile {self.profile}, {self.num_nodes} nodes, {self.num_edges} edges"
        ops = [f"  host: {op.name}: {op.reason}" for op in self.host_ops]
        return "\n".join([f"{head}, {len(self.neurons)} layers of neurons, {len(ops)} host ops", *ops])


def export_nir(
    network: SpikingNetwork, path: str | os.PathLike[str], profile: Profile = "portable", split: bool = False
) -> NirExport:
    """Write a converted network as a NIR graph.

    Args:
        network: The network, converted whole.
        path: The file to write, whose name ends in .nir.
        profile: "portable" is made of what every importer reads: rate-coded IF neurons with θ = 1, Conv2d, Affine,
            Flatten. "composite" writes multi-threshold neurons with soft reset as graphs of stock primitives.
            "extended" adds what `load_nir` needs to restore any network to the bit.
        split: What a stock profile cannot say is refused by name. True leaves it to the host instead: the graph ends
            before such an op in an Output and goes on behind it from an Input, both named after it.

    Returns:
        What was written: nodes, edges, neurons by site, and what stays on the host.

    Example:
        >>> hardware.export_nir(snn, "net.nir", profile="extended").profile
        'extended'
    """
    if profile not in get_args(Profile):
        raise ConfigError(f"profile={profile!r} must be one of {', '.join(map(repr, get_args(Profile)))}")
    check_ending(path, ".nir")
    nir = nir_package()
    built = Builder(network, _MAKERS[profile], normalised=profile != "extended").build()
    if built.host and not split and profile != "extended":
        raise ModelError(_refusal(built, profile, "leave them to the host with split=True, "))
    if not built.neurons:
        raise ModelError(f"nothing of the network would spike: {_refusal(built, profile)}")
    metadata = _meaning(network, profile) | (extended.network_metadata(network, built) if profile == "extended" else {})
    graph = nir.NIRGraph(built.nodes, built.edges, metadata=metadata)
    write_graph(path, graph, drop_reset=profile == "portable")
    return NirExport(os.fspath(path), profile, len(graph.nodes), len(graph.edges), built.neurons, tuple(built.host))


def _refusal(built: Built, profile: str, way_out: str = "") -> str:
    names: dict[str, list[str]] = {}
    for op in built.host:
        names.setdefault(op.reason, []).append(op.name)
    said = "; ".join(f"{', '.join(own)}: {reason}" for reason, own in names.items())
    return (
        f"profile={profile!r} cannot say {len(built.host)} of the network's ops ({said}); change them, {way_out}"
        "or take profile='extended'"
    )


def _meaning(network: SpikingNetwork, profile: Profile) -> dict[str, Any]:
    """How the graph is to be run."""
    return {
        "spikecast.profile": profile,
        "spikecast.format": str(extended.FORMAT),
        "spikecast.version": __version__,
        "spikecast.num_steps": str(network.config.num_steps),
        "spikecast.coding": network.config.coding,
        "spikecast.dt": "1",
        "spikecast.reset": "subtract",
        "spikecast.threshold": "fires at and above",
        "spikecast.input": "the same at every step" if network.config.coding == "rate" else "at the first step only",
    }
