"""A network in whole numbers: weights of a few bits, neurons that add and shift."""

from spikecast.hardware.integer.network import IntegerNetwork, Report

__all__ = ["IntegerNetwork", "Report"]
