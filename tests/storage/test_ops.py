"""Which calls of ops a saved network may hold."""

from __future__ import annotations

import pytest
import torch

from spikecast.errors import ArtifactError
from spikecast.graph.program import Node, Ref
from spikecast.storage import ops

X, Y = Ref("x"), Ref("y")


@pytest.mark.parametrize(
    ("node", "fits"),
    [
        (Node("n", "aten.add.Tensor", (X, Y)), True),
        (Node("n", "aten.add.Tensor", (X, 2.0), {"alpha": 3}), True),
        (Node("n", "aten.add.Tensor", (X,)), False),
        (Node("n", "aten.add.Tensor", (X, Y, 3)), False),
        (Node("n", "aten.add.Tensor", (X, Y), {"self": X}), False),
        (Node("n", "aten.add.Tensor", (X, Y), {"beta": 3}), False),
        (Node("n", "aten.diff.default", (X,)), True),
        (Node("n", "aten.diff.default", (X, 1, -1, Y)), True),
        (Node("n", "aten.softmax.int", (X, 2, torch.float32)), True),
        (Node("n", "aten.softmax.int", (X, 2, -1)), False),  # torch takes it for a dtype and crashes
        (Node("n", "aten.reshape.default", (X, (Y, -1))), True),
        (Node("n", "aten.reshape.default", (X, ("a",))), False),
        (Node("n", "aten.index.Tensor", (X, (None, Y))), True),
        (Node("n", "aten.rrelu.default", (X, 0.1, 0.2, False, "generator")), False),
        (Node("n", "aten.batch_norm.default", (X, None, None, Y, Y, False, 0.1, 1e-5, False)), True),
        (Node("n", "aten.batch_norm.default", (X, None, None, Y, Y, True, 0.1, 1e-5, False)), False),  # changes Y
        (Node("n", "aten.batch_norm.default", (X, None, None, None, None, True, 0.1, 1e-5, False)), True),
        (Node("n", "size.mul", (X, 2)), True),
        (Node("n", "size.mul", ("a", 10**12)), False),
        (Node("n", "size.int", (X, 2)), False),
        (Node("n", "getitem", (X, 0)), True),
        (Node("n", "getitem", (X, "__class__")), False),
        (Node("n", "spikecast.neuron", (X,), {"site": "s"}), True),
        (Node("n", "spikecast.neuron", (X,), {}), False),
    ],
)
def test_arguments_must_fit_the_op(node: Node, fits: bool) -> None:
    if fits:
        ops.check_call(node)
    else:
        with pytest.raises(ArtifactError, match=f"'{node.target}' cannot take the arguments"):
            ops.check_call(node)


@pytest.mark.parametrize("target", ["aten.empty.memory_format", "aten.empty_like.default", "aten.from_file.default"])
def test_neither_old_memory_nor_files_are_read(target: str) -> None:
    with pytest.raises(ArtifactError, match="is not on the list"):
        ops.check_call(Node("n", target, (X,)))
