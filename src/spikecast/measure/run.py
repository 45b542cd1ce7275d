"""Batches as calls of a network, and of the model beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from spikecast.batches import Call, InputFunction, calls
from spikecast.errors import ModelError, enough_memory, run_own
from spikecast.network.base import Network

ITS = "give the model that the network was made from"


def bound_calls(network: Network, batches: Iterable[Any], inputs: InputFunction | None = None) -> Iterator[Call]:
    """Every batch as a call of the network."""
    return calls(batches, network.binder(inputs))


def answer_of(model: nn.Module, call: Call) -> Any:
    """What the model answers to a call that the network has taken."""
    said = f"{type(model).__name__} fails on what the network takes; {ITS}, or mend it"
    with enough_memory():
        return run_own(said, lambda: model(*call[0], **call[1]))


def check_network(network: object) -> None:
    """Refuse what is no converted network in the network's place."""
    if not isinstance(network, Network):
        raise ModelError(f"a {type(network).__name__} is no converted network; give what spikecast.convert returned")
