"""Layers of neurons and the linear wiring between them, read off a network."""

from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Feed, HostOp, Layer, Link, Path, Source

__all__ = ["Circuit", "Feed", "HostOp", "Layer", "Link", "Path", "Source"]
