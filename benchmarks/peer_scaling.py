"""What Sinabs leaves to its user before `from_model`: which layers to scale, and biases that go along.

Nothing here needs Sinabs. A network of ReLUs whose first weights and all biases are multiplied by one positive number
gives the same answers, multiplied by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import fx, nn
from torch.fx.experimental.optimization import fuse

Pairs = list[tuple[str, str]]
WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Linear)


class Listed(nn.Module):
    """A network that lists inner modules as its children too, by their full names."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        yield from self.network.named_modules()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.network(x)
        return answer


def folded(model: nn.Module) -> fx.GraphModule:
    """A traced copy whose batch norms are in the weights before them."""
    network = fuse(model)
    assert isinstance(network, fx.GraphModule)
    left = [name for name, module in network.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if left:
        raise ValueError(f"batch norms that follow no weights: {', '.join(left)}")
    return network


def chain(network: fx.GraphModule) -> Pairs | None:
    """The weighted layer and the ReLU of each stage; None if the network has branches."""
    modules = dict(network.named_modules())
    nodes = [node for node in network.graph.nodes if node.op != "output"]
    if any(after.all_input_nodes != [before] for before, after in pairwise(nodes)):
        return None
    pairs: Pairs = []
    weighted = ""
    for name in (node.target for node in nodes if node.op == "call_module"):
        if isinstance(modules[name], WEIGHTED):
            weighted = name
        elif isinstance(modules[name], nn.ReLU):
            pairs.append((weighted, name))
    return pairs


@torch.no_grad()
def normalize(network: fx.GraphModule, pairs: Pairs, one: Callable[[nn.Module, str, str], object]) -> None:
    """Each stage by `one`, which scales its weights and bias; then the biases of later layers by the same factor."""
    layers = weighted_layers(network)
    for name, rectifier in pairs:
        before = layers[name].weight.abs().sum()
        one(Listed(network), name, rectifier)
        factor = layers[name].weight.abs().sum() / before
        if not factor.isfinite():
            raise ValueError(f"{rectifier} has an activity of 0 to scale by")
        later = list(layers)[list(layers).index(name) + 1 :]
        scale_biases([layers[key] for key in later], factor)


@torch.no_grad()
def scale_first(network: nn.Module, factor: float) -> None:
    """The weights of the first layer, and every bias."""
    layers = list(weighted_layers(network).values())
    layers[0].weight *= factor
    scale_biases(layers, factor)


def weighted_layers(network: nn.Module) -> dict[str, nn.Conv1d | nn.Conv2d | nn.Linear]:
    return {name: module for name, module in network.named_modules() if isinstance(module, WEIGHTED)}


def scale_biases(layers: list[nn.Conv1d | nn.Conv2d | nn.Linear], factor: float | torch.Tensor) -> None:
    for layer in layers:
        if layer.bias is not None:
            layer.bias *= factor
