"""Tidying a captured program without changing a bit of what it computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spikecast.graph.program import GETITEM, Meta, Node, Program, Ref, renamed, replace_refs, resolve

_COPIES = {"aten.clone", "aten.contiguous", "aten.alias", "aten.detach", "aten.lift_fresh_copy", "aten.lift_fresh"}
_VIEWS = {"aten.view.default", "aten._unsafe_view.default"}
_BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"


def clean(program: Program) -> Program:
    """Drop copies and dead ops, merge equal ones, evaluate what depends on constants only."""
    for step in (_plain_ops, fold_constants, merge_equal, drop_dead):
        program = step(program)
    return program


def _plain_ops(program: Program) -> Program:
    """Copies become uses of the original, views become reshapes, BatchNorm has one result.

    A graph whose steps lie in the batch may hold tensors that cannot be viewed, so no view may rely on layout.
    """
    names: dict[str, str] = {}
    kept: list[Node] = []
    norms = {n.name: n for n in program.nodes if n.target == _BATCH_NORM}
    for original in program.nodes:
        node = renamed(original, names)
        if node.target == GETITEM and node.args[0].name in norms and node.args[1] == 0:
            norm = renamed(norms[node.args[0].name], names)
            x, weight, bias, mean, var, momentum, eps = norm.args
            args = (x, weight, bias, mean, var, False, momentum, eps, False)
            kept.append(Node(node.name, "aten.batch_norm.default", args, {}, norm.scope, node.meta))
        elif node.op in _COPIES or _is_idle_cast(node, program) or _is_idle_dropout(node):
            names[node.name] = node.args[0].name
        elif node.target in _VIEWS:
            kept.append(dataclasses.replace(node, target="aten.reshape.default"))
        elif node.target != _BATCH_NORM:
            kept.append(node)
    return _with_renamed_outputs(program.with_nodes(kept), names)


def _is_idle_dropout(node: Node) -> bool:
    return node.op in ("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout") and not node.args[2]


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
            foldable = all(name in constants for name in node.inputs) and _is_repeatable(node)
            if not foldable:
                kept.append(node)
                continue
            constants[node.name] = node.call(lambda ref: constants[ref.name])
    used = {name for node in kept for name in node.inputs} | set(program.output_names)
    tensors = {name: value for name, value in constants.items() if isinstance(value, Tensor) and name in used}
    sizes = {name: value for name, value in constants.items() if not isinstance(value, Tensor) and name in used}
    if sizes:
        kept = [_with_sizes(node, sizes) for node in kept]
    return program.with_nodes(kept, tensors=tensors)


def _with_sizes(node: Node, sizes: dict[str, Any]) -> Node:
    def swap(ref: Ref) -> Any:
        return sizes.get(ref.name, ref)

    return dataclasses.replace(node, args=replace_refs(node.args, swap), kwargs=replace_refs(dict(node.kwargs), swap))


def _is_repeatable(node: Node) -> bool:
    function = resolve(node.target) if not node.target.startswith("python.") else None
    tags = getattr(function, "tags", [])
    return function is not None and torch.Tag.nondeterministic_seeded not in tags


def merge_equal(program: Program) -> Program:
    """Ops with the same name and inputs are one op; export repeats views, and neurons are shared by tensor."""
    names: dict[str, str] = {}
    seen: dict[str, str] = {}
    kept: list[Node] = []
    for original in program.nodes:
        node = renamed(original, names)
        if not _is_repeatable(node):
            kept.append(node)
            continue
        key = repr((node.target, node.args, sorted(node.kwargs.items(), key=lambda item: item[0])))
        if key in seen:
            names[node.name] = seen[key]
        else:
            seen[key] = node.name
            kept.append(node)
    return _with_renamed_outputs(program.with_nodes(kept), names)


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


def _with_renamed_outputs(program: Program, names: dict[str, str]) -> Program:
    def swap(ref: Ref) -> Ref:
        return Ref(names.get(ref.name, ref.name))

    return dataclasses.replace(program, outputs=replace_refs(program.outputs, swap))


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

    def emit(self, like: Node, target: str, args: tuple[Any, ...], meta: Meta | None, hint: str = "") -> Ref:
        """A new op with the scope of `like`."""
        name = self.fresh(hint or target.split(".")[1])
        self.nodes.append(Node(name, target, args, {}, like.scope, meta))
        return Ref(name)

    def run(self, visit: Callable[[Rewriter, Node], Ref | Node | None]) -> Program:
        """`visit` answers the value that replaces the op, or a changed op, or None to keep it."""
        for original in self.program.nodes:
            node = renamed(original, self.names)
            new = visit(self, node)
            if isinstance(new, Ref):
                self.names[node.name] = new.name
            else:
                self.nodes.append(node if new is None else new)
        program = self.program.with_nodes(self.nodes, tensors=self.tensors)
        return drop_dead(_with_renamed_outputs(program, self.names))
