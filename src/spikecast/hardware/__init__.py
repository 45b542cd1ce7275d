"""What hardware sees of a converted network: its circuit, signals and events on its wires, weights as integers."""

from spikecast.hardware.circuit import Circuit
from spikecast.hardware.event_files import load_events
from spikecast.hardware.events import Events
from spikecast.hardware.integer import IntegerNetwork
from spikecast.hardware.recording import record_events, stream_events
from spikecast.hardware.twin import Trace, Twin, twin

__all__ = [
    "Circuit",
    "Events",
    "IntegerNetwork",
    "Trace",
    "Twin",
    "load_events",
    "record_events",
    "stream_events",
    "twin",
]
