"""One-hot codes as a comparison with all class numbers, which a saved network may hold."""

from __future__ import annotations

import dataclasses
from functools import partial

import torch

from spikecast.graph.capture.clean import Rewriter
from spikecast.graph.program import Meta, Node, Program, Ref


def open_one_hot(program: Program) -> Program:
    """`one_hot` with a fixed number of classes becomes `classes == range(number)`, with the same bits.

    A class that there is not gives zeros, where `one_hot` would refuse it.
    """
    writer = Rewriter(program)
    return writer.run(partial(_opened, writer))


def _opened(writer: Rewriter, node: Node) -> Ref | None:
    if node.target != "aten.one_hot.default" or not isinstance(node.meta, Meta):
        return None
    source, number = node.args[0], node.argument(1, "num_classes", -1)
    if type(number) is not int or number < 1:  # as many as the largest class says: a size that depends on values
        return None
    meta, numbers = node.meta, Meta((number,), torch.int64, None)
    column = writer.emit(
        node, "aten.unsqueeze.default", (source, -1), dataclasses.replace(meta, shape=(*meta.shape[:-1], 1)), "class"
    )
    classes = Ref(writer.fresh("classes"))
    device = {"device": torch.device("cpu")}  # which stands for the network's own
    writer.nodes.append(Node(classes.name, "aten.arange.default", (number,), device, node.scope, numbers))
    hit = writer.emit(node, "aten.eq.Tensor", (column, classes), dataclasses.replace(meta, dtype=torch.bool), "hit")
    return writer.emit(node, "aten.to.dtype", (hit, torch.int64), meta, "one_hot")
