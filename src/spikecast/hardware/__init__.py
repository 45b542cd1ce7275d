"""What hardware sees of a converted network: its circuit, the events on its wires, an event simulator, NIR files."""

from spikecast.hardware.circuit import Circuit
from spikecast.hardware.event_files import load_events
from spikecast.hardware.events import Events
from spikecast.hardware.nir import check_nir, export_nir, load_nir
from spikecast.hardware.recording import record_events, stream_events

__all__ = [
    "Circuit",
    "Events",
    "check_nir",
    "export_nir",
    "load_events",
    "load_nir",
    "record_events",
    "stream_events",
]
