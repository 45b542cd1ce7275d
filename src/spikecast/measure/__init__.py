"""What a converted network costs and how well it answers, step by step: `energy`, `agreement`, `evaluate`."""

from spikecast.measure.energy import Costs, Energy, energy

__all__ = ["Costs", "Energy", "energy"]
