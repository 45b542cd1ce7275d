"""What one operation costs, in picojoules: three named lists of prices, and your own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from spikecast.errors import ConfigError


@dataclass(frozen=True)
class Costs:
    """Picojoules of one operation, and which operations are charged; all can be replaced. Prices are 0 or more.

    Args:
        accumulate: One addition; 0.9 and 4.6 are 45 nm figures that the literature uses.
        multiply: One multiply-accumulate.
        averaged_as_spikes: An averaged entry costs the spikes it came from, not one event.
        analog_as_multiply: What is not a spike is multiplied, not accumulated.
        two_products: A matrix product of activations computes two products a step, not the three of Thm 4.3.
        update: One neuron, one step: the potential and what the receiver lacks are each added to twice.
        graded: One output of a graded unit, one step.
        bias: One output that a bias is sent to.
        weight: Fetching one weight for one accumulate; 0 leaves memory out.

    Example:
        >>> chip = measure.Costs(accumulate=0.03, multiply=0.2, weight=1.2)
        >>> measure.energy(snn, [x], costs=chip).costs_name
        'own'
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
