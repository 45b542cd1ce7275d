"""What hardware sees of a converted network: its circuit, signals and events on its wires, integers, NIR files."""

from typing import TYPE_CHECKING, Any

from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.events.files import load_events
from spikecast.hardware.events.recording import record_events, stream_events
from spikecast.hardware.events.stream import Events
from spikecast.hardware.integer.network import IntegerNetwork
from spikecast.hardware.nir import check_nir, export_nir, load_nir
from spikecast.hardware.twin.twin import Trace, Twin, twin

if TYPE_CHECKING:
    from spikecast.hardware.events.simulator import Simulator

__all__ = [
    "Circuit",
    "Events",
    "IntegerNetwork",
    "Simulator",
    "Trace",
    "Twin",
    "check_nir",
    "export_nir",
    "load_events",
    "load_nir",
    "record_events",
    "stream_events",
    "twin",
]


def __getattr__(name: str) -> Any:
    """Import the simulator, and with it the compiler of its loops, when it is first used."""
    if name == "Simulator":
        from spikecast.hardware.events.simulator import Simulator

        return Simulator
    raise AttributeError(f"module 'spikecast.hardware' has no attribute {name!r}")
