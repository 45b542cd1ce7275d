"""Who fired which level when: streams, files, recordings, and a simulator that runs on events."""

from typing import TYPE_CHECKING, Any

from spikecast.hardware.events.files import load_events
from spikecast.hardware.events.recording import record_events, stream_events
from spikecast.hardware.events.stream import Events, Sender

if TYPE_CHECKING:
    from spikecast.hardware.events.simulator import Simulator, totals

__all__ = ["Events", "Sender", "Simulator", "load_events", "record_events", "stream_events", "totals"]


def __getattr__(name: str) -> Any:
    """Import the simulator, and with it the compiler of its loops, when it is first used."""
    if name in ("Simulator", "totals"):
        from spikecast.hardware.events import simulator

        return getattr(simulator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, those of the simulator too."""
    return sorted({*globals(), *__all__})
