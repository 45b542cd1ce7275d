"""What of a model's answer a network can give: tensors and plain values, no caches and no loss.

A cache is for the next call, and a network has none: each call computes all of it. A loss is for training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spikecast.graph.structure import Structure, leaf_keys

CACHES = {"past_key_values", "cache_params", "mems"}  # as Hugging Face calls them
_PLAIN = (Tensor, torch.SymInt, str, bool, int, float, torch.dtype, torch.device, torch.layout, torch.memory_format)


def without_state(leaves: list[Any], form: Structure) -> tuple[list[Any], tuple[str, ...]]:
    """The leaves of an answer with None for those that no network gives, and what those were called."""
    kept: list[Any] = []
    names: dict[str, None] = {}
    for leaf, keys in zip(leaves, leaf_keys(form), strict=True):
        is_loss = keys[-1:] == ("loss",) and isinstance(leaf, Tensor) and leaf.dim() == 0
        goes = leaf is not None and (is_loss or not CACHES.isdisjoint(keys) or not isinstance(leaf, _PLAIN))
        kept.append(None if goes else leaf)
        if goes:
            names[keys[0] if keys else type(leaf).__name__] = None
    return kept, tuple(names)
