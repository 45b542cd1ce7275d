"""spikecast: a pretrained PyTorch network becomes a spiking network, without training."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spikecast._version import __version__
from spikecast.config import Config
from spikecast.errors import SpikecastError

if TYPE_CHECKING:
    from spikecast import hardware, measure, presets
    from spikecast.conversion.pipeline import convert, load
    from spikecast.graph.roles import register_op
    from spikecast.network.generate import generate
    from spikecast.network.spiking import SpikingNetwork
    from spikecast.page import build as report
    from spikecast.storage.sandbox import Sandbox

__all__ = [
    "Config",
    "Sandbox",
    "SpikecastError",
    "SpikingNetwork",
    "__version__",
    "convert",
    "generate",
    "hardware",
    "load",
    "measure",
    "presets",
    "register_op",
    "report",
]

_MODULES = ("hardware", "measure", "presets")
_HOMES = {
    "Sandbox": ("spikecast.storage.sandbox", "Sandbox"),
    "SpikingNetwork": ("spikecast.network.spiking", "SpikingNetwork"),
    "convert": ("spikecast.conversion.pipeline", "convert"),
    "generate": ("spikecast.network.generate", "generate"),
    "load": ("spikecast.conversion.pipeline", "load"),
    "register_op": ("spikecast.graph.roles", "register_op"),
    "report": ("spikecast.page", "build"),
}


def __getattr__(name: str) -> Any:
    """Import the heavy parts when they are first used."""
    if name in _MODULES:
        return importlib.import_module(f"spikecast.{name}")
    if name in _HOMES:
        home, its_name = _HOMES[name]
        return getattr(importlib.import_module(home), its_name)
    raise AttributeError(f"module 'spikecast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
