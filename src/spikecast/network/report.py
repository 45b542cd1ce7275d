"""What became of every op of the model: one row each, and how much of the arithmetic is fed by spikes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from spikecast.errors import StrictError
from spikecast.graph.macs import macs
from spikecast.graph.program import NEURON, Program
from spikecast.graph.roles import Role
from spikecast.network.plan import Plan
from spikecast.text import columns

_STATUS = {
    Role.SHAPE: ("shape", "moves or averages"),
    Role.AFFINE: ("affine", "scale or shift by constants"),
    Role.SUM: ("affine", "sum of activations"),
    Role.PRODUCT: ("graded", "elementwise product (Thm 4.3)"),
    Role.NONLINEAR: ("graded", "nonlinear unit (Thm 4.2)"),
}


@dataclass(frozen=True)
class Row:
    """One op: `status` is spiking, graded, affine, shape, analog or unknown."""

    op: str
    scope: str
    target: str
    status: str
    why: str
    site: str | None
    macs: int


@dataclass(frozen=True)
class Report:
    """The conversion, op by op. `print(report)` is the table, `to_json` the data."""

    rows: tuple[Row, ...]
    num_sites: int
    foldable: bool = True
    notes: tuple[str, ...] = ()

    @property
    def total_macs(self) -> int:
        """Multiply-accumulates of the ANN for one sample."""
        return sum(row.macs for row in self.rows)

    @property
    def spiking_share(self) -> float:
        """Share of them that is fed by spikes."""
        return sum(r.macs for r in self.rows if r.status == "spiking") / max(self.total_macs, 1)

    @property
    def unknown(self) -> list[Row]:
        return [row for row in self.rows if row.status == "unknown"]

    def to_json(self) -> dict[str, Any]:
        """Plain data for json."""
        return {
            "num_sites": self.num_sites,
            "total_macs": self.total_macs,
            "spiking_share": self.spiking_share,
            "foldable": self.foldable,
            "notes": list(self.notes),
            "rows": [asdict(row) for row in self.rows],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        """The report again from `to_json`."""
        rows = tuple(Row(**row) for row in data["rows"])
        return cls(rows, data["num_sites"], data["foldable"], tuple(data["notes"]))

    def summary(self) -> str:
        """One line."""
        counts = Counter(row.status for row in self.rows)
        parts = ", ".join(f"{counts[s]} {s}" for s in ("spiking", "graded", "affine", "shape", "analog", "unknown"))
        return (
            f"{self.num_sites} neuron sites; ops: {parts}; "
            f"{self.spiking_share:.1%} of {self.total_macs / 1e6:,.1f} M MACs are fed by spikes"
        )

    def __str__(self) -> str:
        rows = [("op", "where", "becomes", "MACs", "why", "site")]
        for row in self.rows:
            size = f"{row.macs / 1e6:.2f} M" if row.macs else ""
            name = row.target.removeprefix("aten.").rsplit(".", 1)[0]
            rows.append((name, row.scope, row.status, size, row.why, row.site or ""))
        return "\n".join([columns(rows), "", self.summary(), *self.notes])

    def refuse_analog(self) -> None:
        """strict=True: stop at unknown ops and at weighted ops that are not fed by spikes."""
        for row in self.rows:
            if row.status == "unknown":
                raise StrictError(
                    f"strict: {row.target} in {row.scope!r} is not in the table of roles; add it there if it is one of "
                    "them, or convert without strict to have it as a graded unit"
                )
            if row.status == "analog" and row.macs and row.why != "analog input":
                raise StrictError(
                    f"strict: {row.target} in {row.scope!r} is {row.why}, not fed by spikes; remove the override"
                )


def report_of(plan: Plan, original: Program, *, foldable: bool = True, notes: tuple[str, ...] = ()) -> Report:
    """The report of a plan; `original` is the program before neurons went in."""
    metas = original.metas
    by_source = {n.name: n.kwargs["site"] for n in plan.program.nodes if n.target == NEURON}
    fed_by = _feeding_sites(plan)
    still = original.flow.constant
    rows: list[Row] = []
    for node in original.nodes:
        role = plan.roles[node.name]
        if role is Role.CONTROL or node.name in still or node.target == "getitem":
            continue
        site = by_source.get(node.name) or plan.moved.get(node.name)
        cost = macs(node, metas)
        if role is None:
            status, why = "unknown", "graded (unknown op)"
        elif role in (Role.SYNAPSE, Role.MATMUL):
            why = plan.fed[node.name]
            status = "spiking" if why == "spikes" else "analog"
            why = "fed by spikes" if status == "spiking" else why
            site = fed_by.get(node.name)
        elif role is Role.RECTIFIER:
            status, why = ("spiking", "rectifying neuron") if site else ("analog", "analog (override)")
            if node.name in plan.moved:
                why = "rectifying neuron, behind the pool"
        else:
            status, why = _STATUS[role]
        rows.append(Row(node.name, node.scope, node.target, status, why, site, cost))
    return Report(tuple(rows), len(plan.sites), foldable, notes)


def _feeding_sites(plan: Plan) -> dict[str, str | None]:
    """For each op the sites whose spikes it reads, also through ops that only move or average them."""
    carried: dict[str, list[str]] = {}
    found: dict[str, str | None] = {}
    for node in plan.program.nodes:
        sites = list(dict.fromkeys(site for name in node.inputs for site in carried.get(name, [])))
        found[node.name] = ", ".join(sites) or None
        if node.target == NEURON:
            carried[node.name] = [node.kwargs["site"]]
        elif plan.roles.get(node.name) is Role.SHAPE:
            carried[node.name] = sites
    return found
