"""What can be said of a program before any tensor is there: by hand, on programs written by hand."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from spikecast.graph.flow import Operand
from spikecast.graph.program import NEURON, Input, Meta, Node, Program, Ref
from spikecast.graph.roles import Role
from spikecast.network.counting.wiring import wiring

X, A, B = Ref("x"), Ref("a"), Ref("b")


def meta(*shape: int, axis: int | None = 0) -> Meta:
    return Meta(shape, torch.float32, axis)


def program(shape: tuple[int, ...], nodes: Sequence[Node], axis: int | None = 0, **tensors: Any) -> Program:
    inputs = (Input("x", shape, meta(*shape, axis=axis)),)
    return Program(inputs, tuple(nodes), (Ref(nodes[-1].name),), tensors, {}, {})


def addmm(*args: Ref) -> Node:
    return Node("y", "aten.addmm.default", args, meta=meta(3, 5))


def test_operands_know_their_place() -> None:
    a, b = torch.zeros(4, 5), torch.zeros(5)
    flow = program((3, 4), [addmm(B, X, A)], a=a, b=b).flow
    assert flow.roles == {"y": Role.SYNAPSE}
    assert flow.operands == {"y": (Operand("x", 1),)}
    assert flow.macs == {"y": 4 * 5}
    left = program((4, 5), [Node("y", "aten.matmul.default", (A, X), meta=meta(3, 5))], a=torch.zeros(3, 4)).flow
    assert left.operands == {"y": (Operand("x", 1),)}
    both = program((3, 4, 4), [Node("y", "aten.bmm.default", (X, X), meta=meta(3, 4, 4))]).flow
    assert both.roles == {"y": Role.MATMUL}
    assert both.operands == {"y": (Operand("x", 0), Operand("x", 1))}
    assert both.macs == {"y": 4**3}


def test_what_is_only_added_is_no_data_input() -> None:
    flow = program((3, 5), [addmm(X, A, B)], a=torch.zeros(3, 4), b=torch.zeros(4, 5)).flow
    assert flow.roles == {"y": Role.AFFINE}
    assert flow.operands == {}
    assert flow.uncounted == ()


def test_sizes_of_the_capture_are_worked_out() -> None:
    """A stride that is computed from the input's size, at a batch that is second."""
    nodes = [
        Node("rows", "aten.sym_size.int", (X, 0)),
        Node("stride", "size.floordiv", (Ref("rows"), 3)),
        Node("turned", "aten.permute.default", (X, (1, 2, 0)), meta=meta(2, 4, 6)),
        Node("y", "aten.conv1d.default", (Ref("turned"), A, None, (Ref("stride"),)), meta=meta(2, 1, 3)),
    ]
    flow = program((6, 2, 4), nodes, axis=1, a=torch.zeros(1, 4, 2)).flow
    assert flow.constant == {"a", "rows", "stride"}
    assert flow.macs == {"y": 4 * 2 * 3}  # stride 2: three outputs of two taps and four channels


def test_fan_outs_are_found_once_for_each_shape() -> None:
    node = Node("y", "aten.conv1d.default", (X, A, None, (1,), (1,)), meta=meta(2, 3, 5))
    flow, weight = program((2, 1, 5), [node], a=torch.zeros(3, 1, 3)).flow, torch.Size((3, 1, 3))

    def shapes(length: int) -> Any:
        return {"x": torch.Size((2, 1, length)), "a": weight}

    first = flow.fan_out(node, lambda ref: shapes(5)[ref.name])
    assert (first.taps.tolist(), first.factor, first.products) == ([[2, 3, 3, 3, 2]], 3, 2 * 3 * 13)
    assert flow.fan_out(node, lambda ref: shapes(5)[ref.name]) is first
    assert flow.fan_out(node, lambda ref: shapes(4)[ref.name]).products == 2 * 3 * 10


def test_spikes_move_until_something_else_is_mixed_in() -> None:
    nodes = [
        Node("s", NEURON, (X,), {"site": "first"}, meta=meta(3, 4)),
        Node("turned", "aten.flip.default", (Ref("s"), (1,)), meta=meta(3, 4)),
        Node("parts", "aten.split.Tensor", (Ref("turned"), 2, 1), meta=(meta(3, 2), meta(3, 2))),
        Node("half", "getitem", (Ref("parts"), 0), meta=meta(3, 2)),
        Node("mixed", "aten.cat.default", ((Ref("s"), X), 1), meta=meta(3, 8)),
        Node("own", "aten.mul.Tensor", (X, X), meta=meta(3, 4)),
    ]
    flow = program((3, 4), nodes).flow
    assert flow.spikes == {"s", "turned", "parts", "half"}
    assert flow.moving() == {"s", "turned", "parts", "half", "mixed"}
    assert flow.moving(inputs_move=True) == {"x", "own", *flow.moving()}
    assert (flow.sources["own"], flow.sources["half"]) == (("x", "x"), ("parts",))
    assert list(flow.neurons) == ["first"]


def test_wiring_is_kept_as_long_as_the_program() -> None:
    made = program((3, 4), [addmm(B, X, A)], a=torch.zeros(4, 5), b=torch.zeros(5))
    known = weakref.ref(wiring(made))
    assert wiring(made) is known()
    assert {*made.__dict__} <= {*made.__dataclass_fields__, "flow", "metas", "users"}  # nobody planted anything
    del made
    gc.collect()
    assert known() is None
