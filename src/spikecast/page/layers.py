"""The table of layers: what each site and each op is, how well it does and what it costs."""

from __future__ import annotations

from spikecast.costs import COSTS
from spikecast.graph.program import NEURON
from spikecast.graph.roles import role_of
from spikecast.measure.agreement import Agreement
from spikecast.measure.energy.figures import Energy
from spikecast.network.base import Network
from spikecast.page.data import Layer
from spikecast.page.drawing import kind_of, short


def layers(snn: Network, energy: Energy, agreement: Agreement | None) -> list[Layer]:
    """One row for each site and each op that was counted, in the order they run."""
    priced = {preset: {row["op"]: row for row in energy.under(preset).rows()} for preset in COSTS}
    errors = {} if agreement is None else {site.site: site for site in agreement.sites}
    samples = max(energy.tally.samples, 1)
    found: list[Layer] = []
    for name, network in snn.networks.items():
        prefix = f"{name}." if name else ""
        program, rows = network.plan.program, {row.op: row for row in network.report.rows}
        metas, still = program.metas, program.flow.constant
        for node in program.nodes:
            key = prefix + node.name
            if key not in priced["paper"]:
                continue
            row, site = priced["paper"][key], node.kwargs.get("site") if node.target == NEURON else None
            kind, role = kind_of(node, None if site else role_of(node, metas, still), network, rows)
            error = errors.get(site or "")
            theta = None if site is None else network.threshold(site).float()
            line = energy.tally.lines[key]
            found.append(
                Layer(
                    node=site or key,
                    name=site or node.scope or node.name,
                    op="neurons" if site else short(node.target),
                    scope=node.scope,
                    kind=kind,
                    role=role,
                    neurons=int(line["updates"][0]) // samples if site else None,
                    macs=row["macs"] // samples,
                    theta=None
                    if theta is None
                    else [float(f"{float(x):.4g}") for x in (theta.min(), theta.median(), theta.max())],
                    firing=row["firing_rate"],
                    error=None if error is None else error.error,
                    own=None if error is None else error.own,
                    joules={preset: priced[preset][key]["joules"] for preset in COSTS},
                )
            )
    return found
