"""LSTM, GRU and RNN, opened into linear maps, sigmoids, tanhs and products for each place of the sequence.

Each place has ops of its own, and so neurons and thresholds of its own: what a layer has heard after one place spreads
otherwise than after fifty. The weights are the same tensors at all places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.utils.rnn import PackedSequence

from spikecast.errors import CaptureError
from spikecast.graph.capture.clean import Rewriter, drop_dead
from spikecast.graph.program import GETITEM, Meta, Node, Program, Ref

LONGEST = 256  # places of a sequence: each adds some 17 ops to a layer, and capture, file and run grow with them


def open_recurrent(program: Program) -> Program:
    """Every recurrent op, of a whole sequence or of one step, as the ops it is made of."""
    writer = Rewriter(program)
    return drop_dead(writer.run(_Opener(writer)))


@contextmanager
def refusing_packed(model: nn.Module) -> Iterator[None]:
    """While a model runs, refuse a packed sequence: how many samples it holds differs from place to place."""
    if not any(isinstance(module, nn.RNNBase) for module in model.modules()):
        yield
        return

    def look(module: nn.Module, args: Any) -> None:
        if any(isinstance(argument, PackedSequence) for argument in args):
            raise CaptureError(
                f"{type(module).__name__} is called with a PackedSequence, which cannot be captured; "
                "give it the padded tensor instead, all sequences of one length"
            )

    handle = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()


class _Ops:
    """Writes ops, whose metas follow from those of their inputs."""

    def __init__(self, writer: Rewriter) -> None:
        self.writer = writer
        self.metas: dict[str, Any] = dict(writer.program.metas)
        self.like: Node
        self.path = ""

    def at(self, node: Node, path: str = "") -> None:
        """What is written from now on stands for `node`, at a path below its module."""
        self.like = dataclasses.replace(node, scope=".".join(part for part in (node.scope, path) if part))
        self.path = f"{node.name}.{path}." if path else f"{node.name}."

    def _emit(self, target: str, args: tuple[Any, ...], meta: Meta) -> Ref:
        ref = self.writer.emit(self.like, target, args, meta, self.path + target.split(".")[1])
        self.metas[ref.name] = meta
        return ref

    def meta(self, ref: Ref) -> Meta:
        found = self.metas[ref.name]
        assert isinstance(found, Meta)
        return found

    def each(self, target: str, first: Ref, *rest: Ref) -> Ref:
        """An op on each entry: the result has the form of the first."""
        return self._emit(target, (first, *rest), self.meta(first))

    def add(self, a: Ref, b: Ref) -> Ref:
        return self.each("aten.add.Tensor", a, b)

    def mul(self, a: Ref, b: Ref) -> Ref:
        return self.each("aten.mul.Tensor", a, b)

    def sigmoid(self, x: Ref) -> Ref:
        return self.each("aten.sigmoid.default", x)

    def tanh(self, x: Ref) -> Ref:
        return self.each("aten.tanh.default", x)

    def linear(self, x: Ref, weight: Ref, bias: Ref | None) -> Ref:
        meta = self.meta(x)
        shape = (*meta.shape[:-1], self.meta(weight).shape[0])
        return self._emit("aten.linear.default", (x, weight, bias), dataclasses.replace(meta, shape=shape))

    def parts(self, x: Ref, number: int) -> list[Ref]:
        """Equal parts of the last axis."""
        meta = self.meta(x)
        size = meta.shape[-1] // number
        part = dataclasses.replace(meta, shape=(*meta.shape[:-1], size))
        return [self._emit("aten.slice.Tensor", (x, -1, i * size, (i + 1) * size), part) for i in range(number)]

    def select(self, x: Ref, axis: int, index: int) -> Ref:
        meta = self.meta(x)
        batch = None if meta.batch_axis is None else meta.batch_axis - (meta.batch_axis > axis)
        shape = meta.shape[:axis] + meta.shape[axis + 1 :]
        return self._emit("aten.select.int", (x, axis, index), Meta(shape, meta.dtype, batch))

    def stack(self, parts: Sequence[Ref], axis: int) -> Ref:
        meta = self.meta(parts[0])
        batch = None if meta.batch_axis is None else meta.batch_axis + (meta.batch_axis >= axis)
        shape = (*meta.shape[:axis], len(parts), *meta.shape[axis:])
        return self._emit("aten.stack.default", (tuple(parts), axis), Meta(shape, meta.dtype, batch))

    def joined(self, parts: Sequence[Ref]) -> Ref:
        """The parts side by side along the last axis."""
        if len(parts) == 1:
            return parts[0]
        meta = self.meta(parts[0])
        shape = (*meta.shape[:-1], sum(self.meta(part).shape[-1] for part in parts))
        return self._emit("aten.cat.default", (tuple(parts), -1), dataclasses.replace(meta, shape=shape))


# What a cell holds after a place: h, and of an LSTM also c.
State = tuple[Ref, ...]
Cell = Callable[[_Ops, Ref, Ref, State], State]  # from W_ih x + b_ih, W_hh h + b_hh and the state before


def _lstm(ops: _Ops, given: Ref, heard: Ref, state: State) -> State:
    keep_in, keep, new, out = ops.parts(ops.add(given, heard), 4)
    c = ops.add(ops.mul(ops.sigmoid(keep), state[1]), ops.mul(ops.sigmoid(keep_in), ops.tanh(new)))
    return ops.mul(ops.sigmoid(out), ops.tanh(c)), c


def _gru(ops: _Ops, given: Ref, heard: Ref, state: State) -> State:
    (reset, keep, new), (reset_h, keep_h, new_h) = ops.parts(given, 3), ops.parts(heard, 3)
    r, z = ops.sigmoid(ops.add(reset, reset_h)), ops.sigmoid(ops.add(keep, keep_h))
    n = ops.tanh(ops.add(new, ops.mul(r, new_h)))
    return (ops.add(n, ops.mul(z, ops.each("aten.sub.Tensor", state[0], n))),)  # (1 - z) n + z h


def _rnn_tanh(ops: _Ops, given: Ref, heard: Ref, state: State) -> State:
    return (ops.tanh(ops.add(given, heard)),)


def _rnn_relu(ops: _Ops, given: Ref, heard: Ref, state: State) -> State:
    return (ops.each("aten.relu.default", ops.add(given, heard)),)


_CELLS: dict[str, Cell] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu}
_SEQUENCES = {f"aten.{name}.input": cell for name, cell in _CELLS.items()}
_STEPS = {f"aten.{name}_cell.default": cell for name, cell in _CELLS.items()}


class _Opener:
    def __init__(self, writer: Rewriter) -> None:
        self.ops = _Ops(writer)
        self.results: dict[str, State] = {}  # of opened ops that have several

    def __call__(self, node: Node) -> Ref | None:
        if node.target == GETITEM and node.args[0].name in self.results:
            result: Ref = self.results[node.args[0].name][node.args[1]]
            return result
        if node.target in _SEQUENCES:
            self.results[node.name] = self._sequence(node, _SEQUENCES[node.target])
        elif node.target in _STEPS:
            found = self._step(node, _STEPS[node.target])
            if isinstance(node.meta, Meta):
                return found[0]
            self.results[node.name] = found
        return None  # its results are read instead, so the op itself is dead

    def _step(self, node: Node, cell: Cell) -> State:
        """One step of a cell."""
        x, state, weight_x, weight_h = node.args[:4]
        self.ops.at(node, "input")
        given = self.ops.linear(x, weight_x, node.argument(4, "b_ih"))
        self.ops.at(node, "hidden")
        state = (state,) if isinstance(state, Ref) else state
        heard = self.ops.linear(state[0], weight_h, node.argument(5, "b_hh"))
        self.ops.at(node)
        return cell(self.ops, given, heard, state)

    def _sequence(self, node: Node, cell: Cell) -> State:
        """All layers, each in one direction or both: the outputs, and the last states of all."""
        x, start, weights, has_bias, layers, _, _, both, batch_first = node.args
        start = (start,) if isinstance(start, Ref) else start
        time, directions = int(batch_first), 1 + both
        length, each = self.ops.meta(x).shape[time], len(weights) // (layers * directions)
        if length > LONGEST:
            raise CaptureError(
                f"{node.scope or node.op} reads sequences of {length} places, and at most {LONGEST} can be unrolled; "
                "cut them, or convert the other parts of the model with regions=['name of a submodule', ...]"
            )
        last: list[State] = []
        for layer in range(layers):
            outputs = []
            for backward in range(directions):
                number = layer * directions + backward
                weight_x, weight_h, *rest = weights[number * each : (number + 1) * each]
                biases, projection = (rest[:2], rest[2:]) if has_bias else ((None, None), rest)
                way = _Way(node, f"l{layer}{'_reverse' * backward}", cell, weight_h, biases[1], projection)
                self.ops.at(node, way.name)
                state = tuple(self.ops.select(part, 0, number) for part in start)
                self.ops.at(node, f"input_{way.name}")
                given = self.ops.linear(x, weight_x, biases[0])
                out, state = self._way(way, given, range(length)[:: -1 if backward else 1], state, time)
                outputs.append(out)
                last.append(state)
            self.ops.at(node, f"l{layer}")
            x = self.ops.joined(outputs)
        self.ops.at(node)
        return x, *(self.ops.stack(parts, 0) for parts in zip(*last, strict=True))

    def _way(self, way: _Way, given: Ref, order: Sequence[int], state: State, time: int) -> tuple[Ref, State]:
        """One layer in one direction, place by place: its outputs along the sequence, and its last state."""
        ops, found = self.ops, {}
        for number, t in enumerate(order):
            ops.at(way.node, f"hidden_{way.name}.{number}")
            heard = ops.linear(state[0], way.weight, way.bias)
            ops.at(way.node, f"{way.name}.{number}")
            state = way.cell(ops, ops.select(given, time, t), heard, state)
            if way.projection:
                ops.at(way.node, f"projection_{way.name}.{number}")
                state = ops.linear(state[0], way.projection[0], None), *state[1:]
            found[t] = state[0]
        ops.at(way.node, way.name)
        return ops.stack([found[t] for t in sorted(found)], time), state


@dataclasses.dataclass(frozen=True)
class _Way:
    """One layer in one direction."""

    node: Node
    name: str
    cell: Cell
    weight: Ref
    bias: Ref | None
    projection: Sequence[Ref]
