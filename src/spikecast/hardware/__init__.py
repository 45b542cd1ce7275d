"""What hardware sees of a converted network: its circuit, signals and events on wires, integers, NIR and ONNX files."""

from typing import TYPE_CHECKING, Any

from spikecast.hardware import events
from spikecast.hardware.circuit import Circuit
from spikecast.hardware.events import Events, load_events, record_events, stream_events
from spikecast.hardware.integer import IntegerNetwork, IntegerTrace, LayerMemory, LayerWeights, Memory, SynapseWeights
from spikecast.hardware.nir import check_nir, export_nir, load_nir
from spikecast.hardware.onnx_file import export_onnx
from spikecast.hardware.twin.twin import Trace, Twin, twin

if TYPE_CHECKING:
    from spikecast.hardware.events import Simulator

__all__ = [
    "Circuit",
    "Events",
    "IntegerNetwork",
    "IntegerTrace",
    "LayerMemory",
    "LayerWeights",
    "Memory",
    "Simulator",
    "SynapseWeights",
    "Trace",
    "Twin",
    "check_nir",
    "export_nir",
    "export_onnx",
    "load_events",
    "load_nir",
    "record_events",
    "stream_events",
    "twin",
]


def __getattr__(name: str) -> Any:
    """The simulator, which is imported when it is first used."""
    if name == "Simulator":
        return events.Simulator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, the simulator too."""
    return sorted({*globals(), *__all__})
