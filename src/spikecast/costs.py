"""What one operation costs, in picojoules: three named lists of prices, and your own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from spikecast.errors import ConfigError


@dataclass(frozen=True)
class Costs:
    """Picojoules of one operation, and which operations are charged; all can be replaced.

    accumulate, multiply  one addition, one multiply-accumulate: 45 nm figures that the literature uses
    averaged_as_spikes    an averaged entry costs the spikes it came from, not one event
    analog_as_multiply    what is not a spike is multiplied, not accumulated
    two_products          a matrix product of activations computes two products a step, not the three of Thm 4.3
    update                one neuron, one step: the potential and what the receiver lacks are each added to twice
    graded                one output of a graded unit, one step
    bias                  one output that a bias is sent to
    weight                fetching one weight for one accumulate; 0 leaves memory out
    """

    accumulate: float = 0.9
    multiply: float = 4.6
    averaged_as_spikes: bool = False
    analog_as_multiply: bool = False
    two_products: bool = False
    update: float = 0.0
    graded: float = 0.0
    bias: float = 0.0
    weight: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, bool) and not 0 <= value < float("inf"):
                raise ConfigError(f"Costs: {field.name}={value!r} must be picojoules, 0 or more")


COSTS: dict[str, Costs] = {
    "paper": Costs(),
    "honest": Costs(averaged_as_spikes=True, analog_as_multiply=True),
    "full": Costs(
        averaged_as_spikes=True,
        analog_as_multiply=True,
        two_products=True,
        update=4 * 0.9,
        graded=4.6,
        bias=0.9,
    ),
}


def costs_named(costs: str | Costs) -> tuple[Costs, str]:
    """Costs by their name, or your own."""
    if isinstance(costs, Costs):
        return costs, "own"
    if costs not in COSTS:
        raise ConfigError(f"costs={costs!r} is not one of {', '.join(COSTS)}; give one of them, or a Costs")
    return COSTS[costs], costs
