"""Tidying a captured program without changing a bit of what it computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor

from spikecast.graph.capture.inplace import DROPOUTS
from spikecast.graph.program import GETITEM, SIZE, Meta, Node, Program, Ref, replace_refs, resolve

_COPIES = {"aten.clone", "aten.contiguous", "aten.alias", "aten.detach", "aten.lift_fresh_copy", "aten.lift_fresh"}
_VIEWS = {"aten.view.default", "aten._unsafe_view.default"}
# Memory that nobody has written to: whatever it holds must not be read, least of all by a file, so it may be zeros.
_EMPTY = {"aten.empty": "zeros", "aten.empty_like": "zeros_like", "aten.new_empty": "new_zeros"}
_BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"


def clean(program: Program) -> Program:
    """Drop copies and dead ops, merge equal ones, evaluate what depends on constants only."""
    for step in (_plain_ops, fold_constants, merge_equal, drop_dead):
        program = step(program)
    return program


def _plain_ops(program: Program) -> Program:
    """Copies become uses of the original, views become reshapes, empty tensors zeros, BatchNorm has one result.

    The number of a tensor's elements becomes the product of its sizes. A graph whose steps lie in the batch may
    hold tensors that cannot be viewed, so no view may rely on layout.
    """
    norms: dict[str, Node] = {}
    writer = Rewriter(program)

    def visit(node: Node) -> Ref | Node | None:
        if node.target == _BATCH_NORM:
            norms[node.name] = node
        elif node.target == GETITEM and node.args[0].name in norms and node.args[1] == 0:
            norm = norms[node.args[0].name]
            x, weight, bias, mean, var, momentum, eps = norm.args
            args = (x, weight, bias, mean, var, False, momentum, eps, False)
            return Node(node.name, "aten.batch_norm.default", args, {}, norm.scope, node.meta)
        elif node.op in _COPIES or _is_idle_cast(node, program) or (node.op in DROPOUTS and not node.args[2]):
            return Ref(node.args[0].name)
        elif node.target in _VIEWS:
            return dataclasses.replace(node, target="aten.reshape.default")
        elif node.op in _EMPTY:
            kwargs = {name: value for name, value in node.kwargs.items() if name != "memory_format"}
            return dataclasses.replace(node, target=f"aten.{_EMPTY[node.op]}.default", kwargs=kwargs)
        elif node.target == "aten.sym_numel.default":
            rank = cast(Meta, program.metas[node.args[0].name]).rank
            sizes = [writer.emit(node, SIZE, (node.args[0], axis), None, "size") for axis in range(rank)]
            return reduce(lambda a, b: writer.emit(node, "size.mul", (a, b), None, "elements"), sizes)
        return None

    return writer.run(visit)


def _is_idle_cast(node: Node, program: Program) -> bool:
    if node.op not in ("aten.to", "aten._to_copy") or not isinstance(node.meta, Meta):
        return False
    before = program.metas.get(node.args[0].name)
    return isinstance(before, Meta) and before.dtype == node.meta.dtype


def fold_constants(program: Program) -> Program:
    """Evaluate every op whose inputs are all constants; its result becomes one."""
    constants: dict[str, Any] = dict(program.tensors)
    kept: list[Node] = []
    with torch.no_grad():
        for node in program.nodes:
            if all(name in constants for name in node.inputs) and _is_repeatable(node):
                constants[node.name] = node.call(lambda ref: constants[ref.name])
            else:
                kept.append(node)
    used = {name for node in kept for name in node.inputs} | set(program.output_names)
    tensors = {name: value for name, value in constants.items() if isinstance(value, Tensor) and name in used}
    sizes = {name: value for name, value in constants.items() if not isinstance(value, Tensor) and name in used}
    if sizes:
        kept = [node.swapped(lambda ref: sizes.get(ref.name, ref)) for node in kept]
    return program.with_nodes(kept, tensors=tensors)


def _is_repeatable(node: Node) -> bool:
    if node.target.startswith("python."):
        return False
    return torch.Tag.nondeterministic_seeded not in getattr(resolve(node.target), "tags", ())


def merge_equal(program: Program) -> Program:
    """Ops with the same name and inputs are one op; export repeats views, and neurons are shared by tensor."""
    seen: dict[str, Ref] = {}

    def visit(node: Node) -> Ref | None:
        if not _is_repeatable(node):
            return None
        first = seen.setdefault(repr((node.target, node.args, sorted(node.kwargs.items()))), Ref(node.name))
        return None if first.name == node.name else first

    return Rewriter(program).run(visit)


def drop_dead(program: Program) -> Program:
    """Keep what the outputs need."""
    needed = set(program.output_names)
    kept: list[Node] = []
    for node in reversed(program.nodes):
        if node.name in needed:
            kept.append(node)
            needed.update(node.inputs)
    tensors = {name: tensor for name, tensor in program.tensors.items() if name in needed}
    return program.with_nodes(reversed(kept), tensors=tensors)


class Rewriter:
    """Builds a new list of ops while reading an old one; made ops get fresh names."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: list[Node] = []
        self.tensors = dict(program.tensors)
        self.names: dict[str, str] = {}
        self._taken = {n.name for n in program.nodes} | set(program.tensors) | {i.name for i in program.inputs}

    def fresh(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self._taken:
            number += 1
            candidate = f"{name}_{number}"
        self._taken.add(candidate)
        return candidate

    def constant(self, name: str, tensor: Tensor) -> Ref:
        name = self.fresh(name)
        self.tensors[name] = tensor
        return Ref(name)

    def emit(self, like: Node, target: str, args: tuple[Any, ...], meta: Any, hint: str = "") -> Ref:
        """A new op with the scope of `like`; its meta is as that of any op."""
        name = self.fresh(hint or target.split(".")[1])
        self.nodes.append(Node(name, target, args, {}, like.scope, meta))
        return Ref(name)

    def run(self, visit: Callable[[Node], Ref | Node | None]) -> Program:
        """`visit` answers the value that replaces the op, or a changed op, or None to keep it."""

        def rename(ref: Ref) -> Ref:
            return Ref(self.names.get(ref.name, ref.name))

        for original in self.program.nodes:
            node = original.swapped(rename)
            new = visit(node)
            if isinstance(new, Ref):
                self.names[node.name] = new.name
            else:
                self.nodes.append(node if new is None else new)
        outputs = replace_refs(self.program.outputs, rename)
        return self.program.with_nodes(self.nodes, tensors=self.tensors, outputs=outputs)
