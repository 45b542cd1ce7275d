"""What a spike of each site costs its receivers, as a share of the ANN's energy for one sample."""

from __future__ import annotations

from collections.abc import Mapping

from spikecast.costs import Costs
from spikecast.graph.program import Program
from spikecast.graph.reach import reach


def spike_prices(
    program: Program, costs: Costs, *, pulses: Mapping[str, float] | None = None, num_steps: int = 1
) -> dict[str, float]:
    """The price of a spike of every site: the accumulates it causes, over the multiply-accumulates of the ANN.

    A product of activations is paid for with the partner's spikes: `pulses` says how many a neuron of each site sends
    in all steps, one unless given. From the second step on a spike also meets what the partner holds already. An
    averaged spike is charged as the spike it is.
    """
    flow = program.flow
    whole = costs.multiply * max(sum(flow.macs.values()), 1)
    known = pulses or {}

    def sent(value: str) -> float:
        """What an entry of the partner sends and holds, in the mean over the steps."""
        origin = flow.origins(value)
        total = sum(known.get(site, 1.0) for site in origin) / len(origin) if origin else 1.0
        return (total + num_steps - 1) / num_steps

    return {
        site: (own.synapses + sum(each * sent(value) for value, each in own.partners.items()))
        * (costs.accumulate + costs.weight)
        / whole
        for site, own in reach(program).items()
    }
