"""What event-driven hardware sees of a converted network: its circuit, the events on its wires, an event simulator."""

from spikecast.hardware.nir import check_nir, export_nir, load_nir

__all__ = ["check_nir", "export_nir", "load_nir"]
