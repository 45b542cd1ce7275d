"""What arrives at neurons and read-outs: whole weights with their shifts and biases, and what the host sends."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Feed, Path
from spikecast.hardware.integer.fixed_point import Synapse, SynapseWeights, slim


@dataclass(frozen=True)
class LayerWeights:
    """What a layer of neurons, or a read-out, does with the spikes that arrive, in whole numbers.

    One unit of its membrane is 2**-fraction of its threshold. A pulse of level i, from 1 to n, adds the weight
    shifted left by n - i and by the synapse's own shift.

    Attributes:
        fraction: Bits of the membrane below 1; broadcasts against the layer with its batch axis.
        bias: Of the layer, in units of the membrane; the chip adds it to what arrives: at step 1 under differential
            coding, at every step under rate coding. Where the host sends to the layer, the bias is part of what it
            sends (`IntegerTrace.currents`), and not added again. None at a read-out, whose bias the host adds in
            floating point.
        synapses: One for each way that leads here from neurons, see `SynapseWeights`.

    Example:
        >>> layer = hardware.IntegerNetwork(snn).weights()["1"]
        >>> layer.fraction.flatten().tolist(), tuple(layer.bias.shape), len(layer.synapses)
        ([14], (1, 4, 1, 1), 0)
    """

    fraction: Tensor
    bias: Tensor | None
    synapses: tuple[SynapseWeights, ...]


@dataclass(frozen=True)
class Receiver:
    """What arrives at a value: whole-number synapses, and what the host has to send."""

    feed: Feed
    threshold: Tensor
    synapses: tuple[Synapse, ...]
    host: tuple[tuple[Path, str], ...]  # paths from neurons that have no whole weights, and why
    fraction: Tensor  # bits below 1 of what adds up there
    is_neurons: bool  # or a read-out

    def currents(self, spikes: dict[str, Tensor], batch: int) -> Tensor:
        """The sum of what the spikes of this step add, in units of 2**-fraction: shifted weights added up."""
        total = torch.zeros((), dtype=torch.int64)
        for s in self.synapses:
            total = total + (s.currents(spikes[s.path.source.value], batch) << s.shift(self.fraction))
        return total

    def weights(self, circuit: Circuit) -> LayerWeights:
        """The same as plain tensors."""
        parts = tuple(s.plain(self.fraction) for s in self.synapses)
        return LayerWeights(slim(self.fraction), self.bias(circuit) if self.is_neurons else None, parts)

    def bias(self, circuit: Circuit) -> Tensor:
        """What the target holds when nothing is sent, in units of 2**-fraction of its threshold."""
        return slim(self.rounded(circuit.constant(self.feed).double() / self.threshold.double()))

    def rounded(self, current: Tensor) -> Tensor:
        """What the host sends, in units of the threshold, as a whole number of units of 2**-fraction."""
        return (current * torch.exp2(self.fraction.double())).round().long()
