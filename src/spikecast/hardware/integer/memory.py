"""What a chip has to store for each layer: registers of neurons, weights, shifts and biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spikecast.text import columns, si


@dataclass(frozen=True)
class LayerMemory:
    """What a chip stores for one layer of neurons, or for a read-out, and one sample.

    Attributes:
        neurons: Of the layer; of a read-out its entries.
        registers: Of each neuron: its membrane, and t·r_out where it keeps within bounds; a neuron without negative
            spikes (signed=False) and without an upper bound does so by itself. A read-out has one.
        weights: Whole weights of all synapses that lead here; those of a convolution are stored once.
        shifts: One for each output channel of a synapse, or fewer where they are equal.
        biases: One for each channel, or fewer where they are equal. The host keeps those of a read-out.
        host: Ways that lead here from neurons and that the host computes: their weights are not counted.

    Example:
        >>> hardware.IntegerNetwork(snn).memory().layers["1"]
        LayerMemory(neurons=144, registers=2, weights=0, shifts=0, biases=4, host=0)
    """

    neurons: int
    registers: int
    weights: int
    shifts: int
    biases: int
    host: int


@dataclass(frozen=True)
class Memory:
    """What a chip stores for a network, by layer.

    Attributes:
        layers: By site; those of a read-out as "NAME read-out", as in `IntegerNetwork.weights`. A read-out that no
            whole weights lead to is the host's, and left out.
        weight_bits: Of each weight.
        membrane_bits: Of each register.

    Example:
        >>> memory = hardware.IntegerNetwork(snn).memory()
        >>> memory.state_bits, memory.synapse_bits
        (7152, 2880)
    """

    layers: Mapping[str, LayerMemory]
    weight_bits: int
    membrane_bits: int

    @property
    def state_bits(self) -> int:
        """Bits of all registers."""
        return sum(layer.neurons * layer.registers for layer in self.layers.values()) * self.membrane_bits

    @property
    def synapse_bits(self) -> int:
        """Bits of all weights; shifts and biases, which are few, are not in it."""
        return sum(layer.weights for layer in self.layers.values()) * self.weight_bits

    def table(self) -> str:
        """A row for each layer, and the sums.

        Example:
            >>> print(hardware.IntegerNetwork(snn).memory().table().splitlines()[0])
            layer            neurons  registers  weights  shifts  biases  host
        """
        rows = [["layer", "neurons", "registers", "weights", "shifts", "biases", "host"]]
        for name, layer in self.layers.items():
            numbers = (layer.neurons, layer.registers, layer.weights, layer.shifts, layer.biases, layer.host)
            rows.append([name, *map(str, numbers)])
        return (
            f"{columns(rows)}\n"
            f"registers of {self.membrane_bits} bits: {si(self.state_bits / 8, 'B')}, "
            f"weights of {self.weight_bits} bits: {si(self.synapse_bits / 8, 'B')}"
        )
