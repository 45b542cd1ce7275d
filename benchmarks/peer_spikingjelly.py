"""SpikingJelly's ann2snn on a real network, run by benchmarks.peers in SpikingJelly's own environment.

The recipes are set as SpikingJelly's own examples have them: `max` is what they call the default, `robust` the robust
way, `balanced` local threshold balancing (CVPR 2025). Its examples sum the answers over the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spikingjelly.activation_based import ann2snn, functional, neuron
from torch import Tensor, nn

from benchmarks.peer import Peer, Recipe


def recipe(make: Callable[[Any], Any]) -> Recipe:
    def convert(model: nn.Module, data: Sequence[Tensor]) -> nn.Module:
        snn: nn.Module = ann2snn.Converter(recipe=make(data), device="cpu").convert(model)
        return snn

    return convert


SPIKINGJELLY = Peer(
    package="spikingjelly",
    recipes={
        "max": recipe(lambda data: ann2snn.RateCodingRecipe(dataloader=data, mode="Max")),
        "robust": recipe(
            lambda data: ann2snn.RateCodingRecipe(
                dataloader=data, mode="99.9%", channel_wise=True, pre_spike_maxpool=True, half_threshold=True
            )
        ),
        "balanced": recipe(lambda data: ann2snn.LocalThresholdBalancingRecipe(dataloader=data)),
    },
    neuron=neuron.BaseNode,
    reset=functional.reset_net,
)

if __name__ == "__main__":
    SPIKINGJELLY.main()
