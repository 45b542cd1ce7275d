"""spikecast: a pretrained PyTorch network becomes a spiking network, without training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spikecast._version import __version__
from spikecast.config import Config
from spikecast.errors import SpikecastError

if TYPE_CHECKING:
    from spikecast import measure
    from spikecast.conversion.pipeline import convert, load
    from spikecast.graph.roles import register_op
    from spikecast.network.spiking import SpikingNetwork

__all__ = ["Config", "SpikecastError", "SpikingNetwork", "__version__", "convert", "load", "measure", "register_op"]

_HOMES = {
    "SpikingNetwork": "spikecast.network.spiking",
    "convert": "spikecast.conversion.pipeline",
    "load": "spikecast.conversion.pipeline",
    "register_op": "spikecast.graph.roles",
}


def __getattr__(name: str) -> Any:
    """Import the heavy parts when they are first used."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "measure":
        import importlib

        return importlib.import_module("spikecast.measure")
    raise AttributeError(f"module 'spikecast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
