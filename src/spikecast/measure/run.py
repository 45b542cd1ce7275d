"""Batches as calls of a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from spikecast.batches import Call, InputFunction, calls
from spikecast.network.base import Network


def bound_calls(network: Network, batches: Iterable[Any], inputs: InputFunction | None = None) -> Iterator[Call]:
    """Every batch as a call of the network."""
    return calls(batches, network.binder(inputs))
