"""What event-driven hardware sees of a converted network: its circuit, the events on its wires, an event simulator."""

from spikecast.hardware.circuit import Circuit
from spikecast.hardware.event_files import load_events
from spikecast.hardware.events import Events
from spikecast.hardware.recording import record_events, stream_events

__all__ = ["Circuit", "Events", "load_events", "record_events", "stream_events"]
