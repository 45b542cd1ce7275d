"""A run as one graph for torch.compile, which needs a C++ compiler on the CPU: the neurons stay the fused kernel.

What it is worth is measured by `python -m benchmarks --only compile`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from spikecast.errors import ConfigError, ModelError, first_line
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.program import Program
from spikecast.graph.turns import capturing, computing
from spikecast.kernels import encode
from spikecast.kernels.layout import like
from spikecast.network.answers import Place, batch_place, unfolded
from spikecast.theory.neuron import Neuron

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork


@torch.library.custom_op("spikecast::encode", mutates_args=())
def _encode(inputs: Tensor, threshold: Tensor, neuron: str) -> Tensor:
    """The neuron comes as JSON text, which keeps every number to the bit: an op of torch takes no objects."""
    estimates = encode(inputs, threshold, Neuron(**json.loads(neuron))).estimates
    promised = _laid_out(inputs)
    return estimates if estimates.stride() == promised.stride() else promised.copy_(estimates)


@_encode.register_fake
def _laid_out(inputs: Tensor, *_: Any) -> Tensor:
    """A tensor in the layout of the estimates, which is promised to the compiler; the eager form has one of its own."""
    return inputs.new_empty_strided(inputs.shape, like(tuple(inputs.shape), tuple(inputs.stride())))


class Compiled(NamedTuple):
    """A compiled run for tensors of one form; leaves that are no tensors are those of the trace."""

    function: Callable[..., list[Tensor]]
    leaves: list[Any]
    places: list[Place]


def run_compiled(
    network: SpikingNetwork, program: Program, tensors: Sequence[Tensor], total: int
) -> tuple[list[Any], list[Place]]:
    """The output leaves after each step, [T, ...] each, and where the batch lies in them."""
    if not network.foldable:
        raise ConfigError("compile=True needs all steps in one batch, which this network does not allow; leave it out")
    key = (id(program), total, *((tuple(t.shape), t.dtype, t.device) for t in tensors))
    if key not in network.compiled:
        with capturing():
            network.compiled[key] = _compiled(network, program, tensors, total)
    made: Compiled = network.compiled[key]
    try:
        with computing():
            found = iter(made.function(*tensors))
    except torch._dynamo.exc.BackendCompilerFailed as error:
        del network.compiled[key]
        raise ModelError(f"torch.compile failed ({first_line(error)}); run without compile=True") from error
    return [next(found) if isinstance(leaf, Tensor) else leaf for leaf in made.leaves], made.places


def _compiled(network: SpikingNetwork, program: Program, tensors: Sequence[Tensor], total: int) -> Compiled:
    leaves: list[Any] = []
    places: list[Place] = []

    def neuron(site: str, steps: Tensor) -> Tensor:
        text = json.dumps(dataclasses.asdict(network.neurons[site]))
        made: Tensor = _encode(steps, network.threshold(site), text)
        return made

    def whole(*inputs: Tensor) -> list[Tensor]:
        execution = network.execution(program)
        execution.start(inputs)
        outputs = execution.advance(Neurons(neuron), total)
        leaves[:] = [unfolded(execution, o, v, total) for o, v in zip(program.outputs, outputs, strict=True)]
        places[:] = [batch_place(execution, out) for out in program.outputs]
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    graph = make_fx(whole)(*tensors)
    shapes = [torch.empty(0) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return Compiled(torch.compile(graph, dynamic=False), shapes, places)
