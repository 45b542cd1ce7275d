"""What became of every op of the model: one row each, and how much of the arithmetic is fed by spikes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spikecast.costs import COSTS
from spikecast.errors import StrictError
from spikecast.graph.program import GETITEM, NEURON, Node, Program
from spikecast.graph.roles import Role
from spikecast.network.plan import Plan
from spikecast.network.prices import spike_prices
from spikecast.text import columns, op_word, si

_STATUS = {
    Role.SHAPE: ("shape", "moves or averages"),
    Role.AFFINE: ("affine", "scale or shift by constants"),
    Role.SUM: ("affine", "sum of activations"),
    Role.PRODUCT: ("graded", "elementwise product (Thm 4.3)"),
    Role.NONLINEAR: ("graded", "nonlinear unit (Thm 4.2)"),
}


@dataclass(frozen=True)
class Row:
    """One op: `status` is spiking, graded, affine, shape, analog or unknown; `macs` is None where nobody counts."""

    op: str
    scope: str
    target: str
    status: str
    why: str
    site: str | None
    macs: int | None


@dataclass(frozen=True)
class Report:
    """The conversion, op by op. `print(report)` is the table, `to_json` the data.

    `prices` are picojoules that one spike of each site costs its receivers, at the paper's costs, in the mean over its
    neurons; in a product of activations the partner is taken to send one spike, and an averaged spike counts as one.
    `calibrated` is the number of samples that the thresholds were found from, None before that.
    """

    rows: tuple[Row, ...]
    num_sites: int
    foldable: bool = True
    notes: tuple[str, ...] = ()
    prices: dict[str, float] = field(default_factory=dict)
    calibrated: int | None = None

    @property
    def total_macs(self) -> int:
        """Multiply-accumulates of the ANN for one sample, borders exact, as far as they are counted."""
        return sum(row.macs or 0 for row in self.rows)

    @property
    def spiking_share(self) -> float | None:
        """Share of them that is fed by spikes; None where an op has products that nobody counts."""
        if self.uncounted:
            return None
        return sum(row.macs or 0 for row in self.rows if row.status == "spiking") / max(self.total_macs, 1)

    @property
    def uncounted(self) -> list[Row]:
        """Ops with products that nobody counts, such as an unknown op with weights."""
        return [row for row in self.rows if row.macs is None]

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
            "prices": dict(self.prices),
            "calibrated": self.calibrated,
            "rows": [asdict(row) for row in self.rows],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        """The report again from `to_json`."""
        rows = tuple(Row(**row) for row in data["rows"])
        known = (data["num_sites"], data["foldable"], tuple(data["notes"]), dict(data["prices"]), data["calibrated"])
        return cls(rows, *known)

    def summary(self) -> str:
        """One line."""
        counts = Counter(row.status for row in self.rows)
        parts = ", ".join(f"{counts[s]} {s}" for s in ("spiking", "graded", "affine", "shape", "analog", "unknown"))
        share, total = self.spiking_share, si(self.total_macs, " MACs").replace("  ", " ")
        fed = f"{total} and those of {_named(self.uncounted)}, which are not counted"
        if share is not None:
            fed = f"{share:.1%} of {total} are fed by spikes"
        sites = f"{self.num_sites} neuron site{'s' if self.num_sites != 1 else ''}"
        return f"{sites}; ops: {parts}; {fed}"

    def brief(self, most: int = 4) -> str:
        """The summary, ops with products that no spikes feed, unknown ops, and notes; so many lines of each at most."""
        analog = [row for row in self.rows if row.macs and row.status == "analog"]
        said = [f"not fed by spikes: {op_word(row.target)} in {row.scope or 'the model'} ({row.why})" for row in analog]
        unknown = [
            f"unknown, so a graded unit: {op_word(row.target)} in {row.scope or 'the model'}" for row in self.unknown
        ]
        shown = [line for lines in (said, unknown, self.notes) for line in _few(list(lines), most)]
        return "\n".join([self.summary(), *shown])

    def __str__(self) -> str:
        rows = [("op", "where", "becomes", "MACs", "why", "site")]
        for row in self.rows:
            size = "not counted" if row.macs is None else si(row.macs) if row.macs else ""
            rows.append((op_word(row.target), row.scope, row.status, size, row.why, row.site or ""))
        prices = [("site", "a spike costs"), *((site, si(p * 1e-12, "J")) for site, p in self.prices.items())]
        sites = [columns(prices), ""] if self.prices else []
        return "\n".join([columns(rows), "", *sites, self.summary(), *self.notes])

    def refuse_analog(self) -> None:
        """strict=True: stop at unknown ops and at weighted ops that are not fed by spikes."""
        for row in self.rows:
            if row.status == "unknown":
                raise StrictError(
                    f"strict: {row.target} in {row.scope!r} is not in the table of roles; teach it with "
                    "spikecast.register_op, or convert without strict to have it as a graded unit"
                )
            if row.status == "analog" and row.macs and row.why != "analog input":
                raise StrictError(
                    f"strict: {row.target} in {row.scope!r} is {row.why}, not fed by spikes; remove the override"
                )


def report_of(plan: Plan, original: Program, *, foldable: bool = True, notes: tuple[str, ...] = ()) -> Report:
    """The report of a plan; `original` is the program before neurons went in."""
    flow = original.flow
    sites = {node.name: site for site, node in plan.program.flow.neurons.items()} | dict(plan.moved)
    fed_by = _feeding_sites(plan)
    rows: list[Row] = []
    for node in original.nodes:
        role = flow.roles[node.name]
        if role is Role.CONTROL or node.name in flow.constant or node.target == GETITEM:
            continue
        site = fed_by.get(node.name) if node.name in plan.fed else sites.get(node.name)
        macs = None if node.name in flow.uncounted else flow.macs.get(node.name, 0)
        rows.append(Row(node.name, node.scope, node.target, *_status(node, role, plan, site), site, macs))
    report = Report(tuple(rows), len(plan.sites), foldable, notes, _prices(plan.program))
    if report.uncounted:
        missing = f"the products of {_named(report.uncounted)} are not counted: no share and no energy ratio is given"
        report = replace(report, notes=(*notes, missing))
    return report


def _prices(program: Program) -> dict[str, float]:
    """Picojoules of a spike of each site."""
    paper = COSTS["paper"]
    ann = paper.multiply * max(sum(program.flow.macs.values()), 1)
    return {site: share * ann for site, share in spike_prices(program, paper).items()}


def _status(node: Node, role: Role | None, plan: Plan, site: str | None) -> tuple[str, str]:
    """What an op becomes, and why."""
    if role is None:
        return "unknown", "graded (unknown op)"
    if node.name in plan.fed:
        why = plan.fed[node.name]
        return ("spiking", "fed by spikes") if why == "spikes" else ("analog", why)
    if role is not Role.RECTIFIER:
        return _STATUS[role]
    if node.name in plan.moved:
        return "spiking", "rectifying neuron, behind the pool"
    return ("spiking", "rectifying neuron") if site else ("analog", "analog (override)")


def _few(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], f"… and {len(lines) - most + 1} more such lines"]


def _named(rows: list[Row]) -> str:
    """The ops of some rows, each kind once."""
    return ", ".join(dict.fromkeys(row.target.rsplit(".", 1)[0] for row in rows))


def _feeding_sites(plan: Plan) -> dict[str, str | None]:
    """For each op the sites whose spikes it reads, also through ops that only move or average them."""
    roles = plan.program.flow.roles
    carried: dict[str, list[str]] = {}
    found: dict[str, str | None] = {}
    for node in plan.program.nodes:
        sites = list(dict.fromkeys(site for name in node.inputs for site in carried.get(name, [])))
        found[node.name] = ", ".join(sites) or None
        if node.target == NEURON:
            carried[node.name] = [node.kwargs["site"]]
        elif roles[node.name] is Role.SHAPE:
            carried[node.name] = sites
    return found
