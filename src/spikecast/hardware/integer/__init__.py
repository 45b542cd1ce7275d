"""A network in whole numbers: weights of a few bits, neurons that add and shift."""

from spikecast.hardware.integer.fixed_point import SynapseWeights
from spikecast.hardware.integer.memory import LayerMemory, Memory
from spikecast.hardware.integer.network import IntegerNetwork, Report
from spikecast.hardware.integer.receiver import LayerWeights
from spikecast.hardware.integer.trace import IntegerTrace

__all__ = ["IntegerNetwork", "IntegerTrace", "LayerMemory", "LayerWeights", "Memory", "Report", "SynapseWeights"]
