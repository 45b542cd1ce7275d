"""How weights lie in memory. What they are stays the same; the speed does not."""

from __future__ import annotations

import dataclasses

import torch

from spikecast.graph.program import Program


def channels_last(program: Program) -> Program:
    """Weights of 2-D convolutions with their channels innermost, which is the order the fast kernels compute in.

    A convolution whose weights lie so answers in the same order, so all that follows stays in it: nothing is rearranged
    from one convolution to the next (`python -m benchmarks --only networks`).
    """
    weights = {node.args[1].name for node in program.nodes if node.op == "aten.conv2d"}
    tensors = {
        name: value.contiguous(memory_format=torch.channels_last) if name in weights else value
        for name, value in program.tensors.items()
    }
    return dataclasses.replace(program, tensors=tensors)
