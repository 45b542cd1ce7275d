"""The table of layers: what each site and each op is, how well it does and what it costs."""

from __future__ import annotations

from spikecast.costs import COSTS
from spikecast.graph.program import NEURON
from spikecast.measure.agreement import Agreement
from spikecast.measure.figures import Energy
from spikecast.network.base import Network
from spikecast.page.data import Layer
from spikecast.page.drawing import kind_of
from spikecast.page.traces import rounded
from spikecast.text import op_word


def layers(snn: Network, energy: Energy, agreement: Agreement | None) -> list[Layer]:
    """One row for each site and each op that was counted, in the order they run."""
    priced = {costs: {row["op"]: row for row in energy.under(costs).rows()} for costs in COSTS}
    errors = {} if agreement is None else {site.site: site for site in agreement.sites}
    samples = max(energy.tally.samples, 1)
    found: list[Layer] = []
    for name, network in snn.networks.items():
        prefix = f"{name}." if name else ""
        program = network.plan.program
        for node in program.nodes:
            key = prefix + node.name
            if key not in priced["paper"]:
                continue
            row, site = priced["paper"][key], node.kwargs.get("site") if node.target == NEURON else None
            kind, role = kind_of(node, program.flow.roles[node.name], network)
            error = errors.get(site or "")
            theta = None if site is None else network.threshold(site).float()
            line = energy.tally.lines[key]
            found.append(
                Layer(
                    node=site or key,
                    name=site or node.scope or node.name,
                    op="neurons" if site else op_word(node.target),
                    scope=node.scope,
                    kind=kind,
                    role=role,
                    neurons=int(line["neurons"][0]) // samples if site else None,
                    macs=None if row["macs"] is None else row["macs"] // samples,
                    theta=None if theta is None else rounded([theta.min(), theta.median(), theta.max()]),
                    firing=row["firing_rate"],
                    error=None if error is None else error.error,
                    own=None if error is None else error.own,
                    joules={costs: priced[costs][key]["joules"] for costs in COSTS},
                )
            )
    return found
