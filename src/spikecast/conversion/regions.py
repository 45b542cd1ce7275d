"""From a model that cannot be captured whole to one with spiking regions: each is captured at its first call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import torch
from torch import nn

from spikecast.batches import Call
from spikecast.config import Config
from spikecast.conversion.prepare import prepare, recapture_of
from spikecast.errors import ModelError
from spikecast.network.base import Network
from spikecast.network.regions import RegionNetwork, shadow, submodule
from spikecast.network.spiking import SpikingNetwork


class _Captured(nn.Module):
    """Stands in for a submodule: captures it when it is first called, and answers like it."""

    def __init__(
        self, name: str, original: nn.Module, config: Config, networks: dict[str, SpikingNetwork], strict: bool
    ) -> None:
        super().__init__()
        self.name, self.config, self.strict = name, config, strict
        self.original = (original,)  # in a tuple: the caller's module, not a part of us
        self.captured = networks  # shared by all regions, in the order they are first called

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.name not in self.captured:
            first = not self.captured  # only the first may read the model's own input as it is
            self.captured[self.name] = prepare(
                self.original[0], (args, kwargs), self.config, strict=self.strict, prefix=self.name, raw_inputs=first
            )
        return self.captured[self.name].analog(*args, **kwargs)


@torch.no_grad()
def prepare_regions(
    model: nn.Module, call: Call, config: Config, names: Sequence[str], *, strict: bool = False
) -> RegionNetwork:
    """The named submodules captured and planned, without their thresholds."""
    parts = {name: submodule(model, name) for name in _checked_names(names)}
    for a, b in permutations(parts, 2):
        if parts[a] in parts[b].modules():
            raise ModelError(f"regions {a!r} and {b!r} share a module; name each part once")
    networks: dict[str, SpikingNetwork] = {}
    stand_ins = {name: _Captured(name, part, config, networks, strict) for name, part in parts.items()}
    shadow(model, stand_ins)(*call[0], **call[1])
    for name in names:
        if name not in networks:
            raise ModelError(f"region {name!r} is never called by {type(model).__name__}.forward; name another")
    return RegionNetwork(model, networks, config)


def allow_recapture(network: Network, model: nn.Module) -> None:
    """Let a loaded network capture its regions again, for calls that the stored graphs cannot take."""
    for i, (name, part) in enumerate(network.networks.items()):
        part.allow_recapture(recapture_of(submodule(model, name), network.config, part, raw_inputs=i == 0))


def _checked_names(names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not names or not all(names):
        raise ModelError(
            f"regions={names!r} must be a list of submodule names, such as ['backbone', 'head'], or 'auto'"
        )
    for a, b in permutations(names, 2):
        if a == b or b.startswith(f"{a}."):
            raise ModelError(f"regions {a!r} and {b!r} overlap; name each part once")
    return list(names)
