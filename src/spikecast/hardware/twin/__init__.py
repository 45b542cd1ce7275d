"""The spike view: signals on every wire, step by step, as a chip would run it."""

from spikecast.hardware.twin.twin import Trace, Twin, twin

__all__ = ["Trace", "Twin", "twin"]
