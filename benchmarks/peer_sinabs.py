"""Sinabs' from_model on a real network, run by benchmarks.peers in Sinabs' own environment.

Three ways, which follow its tutorials on converting a trained network and on scaling its weights:

- `default`: the weights as they are, and what `from_model` takes when nothing is said: threshold 1, as many spikes a
  step as the potential holds, each subtracts the threshold, no potential below -1.
- `normalized`: before that, its `normalize_weights` with its 99th percentile, on all calibration samples. Three things
  are done for it. Batch norms are folded into the weights before them, since it scales those weights alone. Inner
  layers are shown to it as children, where it looks for names. Biases of later layers are scaled along, as in the paper
  that it follows; it leaves them as they are, which is right only without biases (its tutorial's network has none), and
  would change the ANN's own answers. It scales stage after stage, so only a network without branches is taken.
- `scaled`: the first layer's weights ten times as large, and all biases with them, so that a neuron sends more spikes;
  its tutorial expects a factor of 2 to 10 to be needed, to be tried out. Ten is taken everywhere and not tried out. A
  network without branches is normalized first; another keeps its weights.

No spiking layer is added to the output (its tutorial has one, which would lose negative answers): the answers are
summed over the steps. A call is a step (`num_timesteps=1`) and the states stay, which is what a call with all steps in
the batch does, in less memory. States are reset before every batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sinabs import reset_states
from sinabs.from_torch import from_model
from sinabs.layers import StatefulLayer
from sinabs.utils import normalize_weights
from torch import Tensor, nn

from benchmarks.peer import Peer
from benchmarks.peer_scaling import Pairs, chain, folded, normalize, scale_first

FACTOR = 10.0


def default(model: nn.Module, _data: Sequence[Tensor]) -> nn.Module:
    snn: nn.Module = from_model(model, num_timesteps=1).spiking_model
    return snn


def normalized(model: nn.Module, data: Sequence[Tensor]) -> nn.Module:
    if not rectifies(model):
        return model
    network = folded(model)
    pairs = chain(network)
    if pairs is None:
        raise ValueError("normalize_weights scales stage after stage, and this network has branches")
    normalize_by_sinabs(network, pairs, data)
    return default(network, data)


def scaled(model: nn.Module, data: Sequence[Tensor]) -> nn.Module:
    if not rectifies(model):
        return model
    network = folded(model)
    pairs = chain(network)
    if pairs is not None:
        normalize_by_sinabs(network, pairs, data)
    scale_first(network, FACTOR)
    return default(network, data)


def rectifies(model: nn.Module) -> bool:
    return any(isinstance(module, nn.ReLU) for module in model.modules())


def normalize_by_sinabs(network: torch.fx.GraphModule, pairs: Pairs, data: Sequence[Tensor]) -> None:
    samples = torch.cat(list(data))
    normalize(network, pairs, lambda listed, name, relu: normalize_weights(listed, samples, [relu], [name]))


SINABS = Peer(
    package="sinabs",
    recipes={"default": default, "normalized": normalized, "scaled": scaled},
    neuron=StatefulLayer,
    reset=reset_states,
)

if __name__ == "__main__":
    SINABS.main()
