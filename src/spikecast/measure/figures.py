"""What a run would cost on event-driven hardware, op by op and step by step, from whole numbers of operations."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from spikecast.batches import InputFunction
from spikecast.costs import Costs, costs_named
from spikecast.measure.run import bound_calls, check_network
from spikecast.network.base import Network
from spikecast.network.counting.tally import Tally
from spikecast.text import columns, op_word, si

NOT_COUNTED = "not counted"  # in place of a figure that would leave out products


@dataclass(frozen=True)
class Energy:
    """Counts of operations and what they cost; `measure.energy` makes it. Index 0 of a list over steps is t = 1.

    Attributes:
        tally: What was counted, summed over all samples.
        costs: Prices of operations.
        costs_name: "paper", "honest", "full" or "own".
        slots: Pulse slots up to each step, in which a neuron can send one spike each.

    Example:
        >>> found = measure.energy(snn, [x])
        >>> len(found.ratio), found.under("full").ratio[0] > found.ratio[0]
        (4, True)
    """

    tally: Tally
    costs: Costs
    costs_name: str
    slots: list[int]

    def under(self, costs: str | Costs) -> Energy:
        """The same counts at other costs.

        Args:
            costs: "paper", "honest", "full", or a `Costs`.

        Example:
            >>> measure.energy(snn, [x]).under("honest").costs_name
            'honest'
        """
        return Energy(self.tally, *costs_named(costs), self.slots)

    @property
    def ann(self) -> float:
        """Joules of the ANN for one sample: every product a multiply-accumulate."""
        return self.costs.multiply * self.macs / self.tally.samples * 1e-12

    @property
    def macs(self) -> int:
        """Products of the ANN, of all samples, as far as they are counted."""
        return self.tally.macs

    @property
    def snn(self) -> list[float]:
        """Joules of the spiking network for one sample, up to and with each step."""
        return [float(x) * 1e-12 / self.tally.samples for x in self.tally.picojoules(self.costs).cumsum(0)]

    @property
    def ratio(self) -> list[float] | None:
        """Energy of the spiking network over the ANN's, up to and with each step; None where the ANN's is unknown."""
        return self.tally.ratio(self.costs)

    def ratio_text(self, t: int) -> str:
        """The ratio after t steps, as tables show it."""
        return NOT_COUNTED if self.ratio is None else f"{self.ratio[t - 1]:.1%}"

    @property
    def ann_text(self) -> str:
        """Joules of the ANN, as tables show them."""
        return NOT_COUNTED if self.tally.uncounted else si(self.ann, "J")

    @property
    def missing(self) -> str:
        """The ops whose products nobody counts, in one line; empty where there are none."""
        ops = ", ".join(dict.fromkeys(self.tally.uncounted.values()))
        return f"the products of {ops} are not counted, so there is no ratio to the ANN" if ops else ""

    @property
    def accumulates(self) -> list[int]:
        """Accumulates of all weighted ops and samples, at each step, as the costs count them."""
        steps = self.tally.num_steps
        each = [line.accumulates(self.costs, steps) for line in self.tally.lines.values()]
        return [int(x) for x in torch.stack(each).sum(0)]

    @property
    def spikes_per_neuron(self) -> list[float]:
        """Spikes of a neuron, up to and with each step, in the mean over all."""
        neurons = sum(int(line["neurons"][0]) for line in self.tally.lines.values())
        return [fired / max(neurons, 1) for fired in self._fired()]

    @property
    def spikes(self) -> list[float]:
        """Spikes of all neurons for one sample, up to and with each step."""
        return [fired / self.tally.samples for fired in self._fired()]

    def _fired(self) -> list[float]:
        fired = sum((line["fired"] for line in self.tally.lines.values()), torch.zeros(self.tally.num_steps))
        return [float(x) for x in fired.cumsum(0)]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each op and site."""
        found = []
        for name, line in self.tally.lines.items():
            steps = self.tally.num_steps
            own = [float(x) * 1e-12 / self.tally.samples for x in line.picojoules(self.costs, steps)]
            is_site = "neurons" in line.columns
            neurons = int(line["neurons"][0]) if is_site else 0
            found.append(
                {
                    "op": name,
                    "scope": line.scope,
                    "target": line.target,
                    "macs": None if name in self.tally.uncounted else int(line["dense"].sum()),
                    "accumulates": line.accumulates(self.costs, steps).tolist(),
                    "joules": own,
                    "firing_rate": [int(x) / max(neurons, 1) for x in line["fired"]] if is_site else None,
                }
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data for json, with everything that was counted."""
        return {
            "costs_name": self.costs_name,
            "costs": dataclasses.asdict(self.costs),
            "samples": self.tally.samples,
            "slots": self.slots,
            "ann_joules": self.ann,
            "snn_joules": self.snn,
            "ratio": self.ratio,
            "spikes_per_neuron": self.spikes_per_neuron,
            "rows": self.rows(),
            "counts": self.tally.to_json(),
        }

    def table(self, *, ops: bool = False) -> str:
        """Energy up to each step; with `ops`, what each op takes in all of them, the dearest first."""
        head = ("t", "slots", "spikes", "a neuron's", "accumulates", "energy", "of the ANN's")
        samples, added = self.tally.samples, accumulate(self.accumulates)
        steps = zip(self.slots, self.spikes, self.spikes_per_neuron, added, self.snn, strict=True)
        rows = [
            (str(t), str(slots), si(fired), f"{own:.3f}", si(acs / samples), si(joules, "J"), self.ratio_text(t))
            for t, (slots, fired, own, acs, joules) in enumerate(steps, 1)
        ]
        ann = self.missing or f"ANN {self.ann_text}"
        note = f"up to each step, per sample, of {samples}; costs: {self.costs_name}; {ann}"
        text = f"{columns([head, *rows])}\n{note}"
        return f"{text}\n\n{self._table_of_ops()}" if ops else text

    def _table_of_ops(self) -> str:
        total = max(self.snn[-1], 1e-300)
        rows = [("where", "op", "MACs", "energy", "share")]
        for row in sorted(self.rows(), key=lambda row: -sum(row["joules"])):
            joules, macs = sum(row["joules"]), row["macs"]
            if joules or macs != 0:
                number = NOT_COUNTED if macs is None else si(macs / self.tally.samples) if macs else ""
                is_site = row["firing_rate"] is not None  # whose target is the name of the site
                where, op = (row["target"], "neurons") if is_site else (row["scope"], op_word(row["target"]))
                rows.append((where, op, number, si(joules, "J"), f"{joules / total:.1%}"))
        return columns(rows)


def energy(
    network: Network,
    batches: Iterable[Any],
    costs: str | Costs = "paper",
    *,
    num_steps: int | None = None,
    inputs: InputFunction | None = None,
) -> Energy:
    """Run the batches and count every operation.

    Args:
        network: A converted network.
        batches: Inputs, with or without targets.
        costs: "paper", "honest", "full", or your own `Costs`.
        num_steps: T; the network's own unless given.
        inputs: Picks the model's input out of a batch.

    Returns:
        An Energy: joules per sample after each step (`.snn`), the ANN's (`.ann`), `.ratio`, and `.table(ops=True)`.

    Example:
        >>> spent = measure.energy(snn, [x])
        >>> spent.ratio[0] < spent.ratio[-1]  # more steps, more energy
        True
    """
    check_network(network)
    named = costs_named(costs)
    tally = Tally(network.config.steps_or(num_steps))
    for call in bound_calls(network, batches, inputs):
        network.metered(call, tally)
    found = Energy(tally, *named, network.slots(num_steps))
    if found.missing:
        warnings.warn(
            f"{found.missing}; write them as matrix products, or compare joules only", UserWarning, stacklevel=2
        )
    return found
