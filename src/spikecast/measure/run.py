"""Batches as calls of a network, and of the model beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from spikecast.batches import Call, InputFunction, calls
from spikecast.errors import ModelError, SpikecastError, enough_memory, first_line
from spikecast.network.base import Network

ITS = "give the model that the network was made from"


def bound_calls(network: Network, batches: Iterable[Any], inputs: InputFunction | None = None) -> Iterator[Call]:
    """Every batch as a call of the network."""
    return calls(batches, network.binder(inputs))


def answer_of(model: nn.Module, call: Call) -> Any:
    """What the model answers to a call that the network has taken."""
    try:
        with enough_memory():
            return model(*call[0], **call[1])
    except SpikecastError:
        raise
    except Exception as error:  # whatever a model of another kind may raise
        raise ModelError(
            f"{type(model).__name__} cannot take what the network takes ({first_line(error)}); {ITS}"
        ) from error
