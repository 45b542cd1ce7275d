"""The parts of a circuit, as plain data; `circuit` reads them off a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor

from spikecast.graph.program import Node
from spikecast.graph.roles import Role
from spikecast.theory.neuron import Neuron


class Frame(NamedTuple):
    """What is fixed once the batch size is: constants, sizes and values made of them, and the form of every value."""

    values: dict[str, Any]
    forms: dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Where signals come from. `site` names the neurons; `moves`: whether it may send at any step, not the first only.

    An input that repeats at every step (rate coding) does not move either: it sends the same again.
    """

    value: str
    kind: Literal["neurons", "input", "host"]
    site: str | None
    shape: tuple[int, ...]  # of one sample
    moves: bool


class Link(NamedTuple):
    """An op on a path, the place among its references at which the path enters, and its role."""

    node: Node
    position: int
    role: Role


@dataclass(frozen=True)
class Path:
    """One way from a source to a target: ops in order, each linear in what comes along."""

    source: Source
    links: tuple[Link, ...]
    target: str

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(link.node for link in self.links)

    @property
    def synapses(self) -> tuple[Node, ...]:
        """The weighted ops on the way; one at most, unless an override left a value analog."""
        return tuple(link.node for link in self.links if link.role is Role.SYNAPSE)


@dataclass(frozen=True)
class Feed:
    """All that arrives at one value: the sources, and the affine ops between them and it in order."""

    target: str
    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Layer:
    """The neurons of one site. `shape` is that of one sample, against which `threshold` broadcasts."""

    name: str
    value: str
    shape: tuple[int, ...]
    axis: int | None  # of the channels in `shape`
    threshold: Tensor
    neuron: Neuron
    feed: Feed


@dataclass(frozen=True)
class HostOp:
    """An op that is not affine in the signals; `moves`: it depends on neurons, so it works at every step."""

    name: str
    op: str
    scope: str
    moves: bool
    feeds: tuple[Feed, ...]  # what it reads that depends on the data
