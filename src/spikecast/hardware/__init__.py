"""What event-driven hardware sees of a converted network: its circuit, the events on its wires, an event simulator."""

from typing import TYPE_CHECKING, Any

from spikecast.hardware.circuit import Circuit
from spikecast.hardware.event_files import load_events
from spikecast.hardware.events import Events
from spikecast.hardware.recording import record_events, stream_events

if TYPE_CHECKING:
    from spikecast.hardware.simulator import Simulator

__all__ = ["Circuit", "Events", "Simulator", "load_events", "record_events", "stream_events"]


def __getattr__(name: str) -> Any:
    """Import the simulator, and with it the compiler of its loops, when it is first used."""
    if name == "Simulator":
        from spikecast.hardware.simulator import Simulator

        return Simulator
    raise AttributeError(f"module 'spikecast.hardware' has no attribute {name!r}")
