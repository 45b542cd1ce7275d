"""A model's forward as a Program, through torch.export, free in its batch size and, where possible, in H and W."""

from __future__ import annotations

import io
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export
from torch.export.graph_signature import InputKind, OutputKind

from spikecast.errors import CaptureError, DataError
from spikecast.graph.calls import axis_of_batch, call_leaves, positional_names
from spikecast.graph.capture.answer import without_state
from spikecast.graph.capture.inplace import is_plain, twin
from spikecast.graph.capture.limit import ShortSizes
from spikecast.graph.capture.refusal import refused
from spikecast.graph.guards import Guard, from_sympy
from spikecast.graph.program import GETITEM, SIZE_OPS, Input, Meta, Node, Program, Ref
from spikecast.graph.structure import Structure, flatten, unflatten

_TENSOR = object()  # stands for a tensor among the leaves of an answer
_ASSERTIONS = ("_assert", "sym_constrain_range", "_check")
_SIZE_NAMES: dict[Any, str] = {function: name for name, function in SIZE_OPS.items()}
_SIZE_NAMES |= {getattr(torch, f"sym_{name}"): f"size.{name}" for name in ("int", "float", "max", "min", "sqrt")}


def capture(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    batch_axis: int = 0,
    prefix: str = "",
) -> Program:
    """The graph of one call of the model, equal to it bit for bit: in-place ops made functional, dropout gone.

    `prefix` goes before the path of every op's module, for a model that is a part of another.
    """
    tensors, structure = call_leaves(args, kwargs or {})
    if not tensors:
        raise DataError("the model was called without a tensor; give it at least one tensor input")
    flat = Flat(model, args, kwargs or {})
    batch = tensors[0].shape[batch_axis] if tensors[0].dim() > batch_axis else None
    refusal: CaptureError | None = None
    for example, dims in _attempts(tensors, batch, batch_axis):
        with _quiet():
            try:
                exported = export(flat, tuple(example), dynamic_shapes=(tuple(dims),), strict=False)
                exported = exported if is_plain(exported) else exported.run_decompositions({})
                program = _Reader(exported, example, batch_axis, prefix).program(structure, flat.answer)
            except Exception as error:  # torch.export raises many types; all mean "not like this"
                refusal = refused(model, error, prefix)
                continue
        if program.batch_symbols or example is tensors:
            return replace(program, parameters=positional_names(model))
    assert refusal is not None
    raise refusal


def _attempts(tensors: list[Tensor], batch: int | None, batch_axis: int) -> Iterator[tuple[list[Tensor], list[Any]]]:
    """What to export, the most general first: every size free, only the batch free, nothing free.

    The first costs no more than the second where sizes are simple, and stops soon where they are not (`limit`).
    """
    if batch:
        axes = [axis_of_batch(t, batch, batch_axis) for t in tensors]
        pairs = list(zip(tensors, axes, strict=True))
        others = {size for t, axis in pairs for i, size in enumerate(t.shape) if i != axis}
        # A number of samples that is no other size, so that the symbol of the batch cannot be confused.
        index = torch.arange(next(b for b in (2, 3, 5, 7, 11, 13) if b not in others or b == 13)) % batch
        example = [t if axis is None else t.index_select(axis, index.to(t.device)) for t, axis in pairs]
        yield example, [dict.fromkeys(range(t.dim()), Dim.AUTO) for t in tensors]
        yield example, [{} if axis is None else {axis: Dim.AUTO} for axis in axes]
    yield tensors, [{} for _ in tensors]


@contextmanager
def _quiet() -> Iterator[None]:
    """Export without its chatter, without autograd, and without the fused encoder that hides attention from it."""
    logger = logging.getLogger("torch")
    level, fused = logger.level, torch.backends.mha.get_fastpath_enabled()
    logger.setLevel(logging.CRITICAL)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # where a forward decides by values, export prints the whole graph so far
        with warnings.catch_warnings(), torch.no_grad(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        torch.backends.mha.set_fastpath_enabled(fused)


class Flat(nn.Module):
    """The model with flat tensors in and out; the form of its answer is noted while it is traced."""

    def __init__(self, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.training = False  # only this wrapper: the model's own flags are not ours to change
        self._leaves, self._form = flatten((tuple(args), dict(kwargs)))
        self.answer = SimpleNamespace()  # an object of its own, since export undoes what is assigned to a module

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        args, kwargs = unflatten(self._form, [next(given) if isinstance(x, Tensor) else x for x in self._leaves])
        with ShortSizes():
            answer = self.model(*args, **kwargs)
        leaves, self.answer.form = flatten(answer)
        if any(isinstance(leaf, torch.SymInt) for leaf in leaves):
            raise CaptureError("the model answers a size; only with that size fixed is it a constant")
        leaves, self.answer.dropped = without_state(leaves, self.answer.form)
        self.answer.leaves = [_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))


class _Reader:
    """Reads an exported program into our own form."""

    def __init__(self, exported: ExportedProgram, example: list[Tensor], batch_axis: int, prefix: str) -> None:
        self.exported, self.example, self.batch_axis, self.prefix = exported, example, batch_axis, prefix
        self.names: dict[str, str] = {}
        self.written: dict[str, str] = {}  # value -> the op that wrote into it, which later readers read instead
        self.tensors: dict[str, Tensor] = {}
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.symbols: tuple[str, ...] = ()

    def program(self, call: Structure, answer: SimpleNamespace) -> Program:
        """The program; it does not say itself what it was called with and in which form it answers."""
        graph = self.exported.graph
        self._read_placeholders([n for n in graph.nodes if n.op == "placeholder"])
        for node in graph.nodes:
            if node.op == "call_function" and not isinstance(node.target, torch._ops.HigherOrderOperator):
                self._read_call(node)
            elif node.op not in ("placeholder", "output"):
                raise CaptureError(
                    f"the graph holds control flow ({node.target}); write it without torch.cond or loops"
                )
        self._refuse_unknown_sizes()
        # a model that writes to its input or its buffers has those values among the outputs, before its own
        specs = self.exported.graph_signature.output_specs
        own = [o.kind == OutputKind.USER_OUTPUT for o in specs]
        outputs = cast(tuple[Any, ...], graph.output_node().args[0])
        rest = (self._argument(out) for out, is_own in zip(outputs, own, strict=True) if is_own)
        return Program(
            inputs=tuple(self.inputs),
            nodes=tuple(self.nodes),
            outputs=tuple(next(rest) if leaf is _TENSOR else leaf for leaf in answer.leaves),
            tensors=self.tensors,
            input_structure=call,
            output_structure=answer.form,
            guards=self._guards(),
            batch_symbols=self.symbols,
            dropped=answer.dropped,
            written=tuple(self._path(o.target) for o in specs if o.kind == OutputKind.BUFFER_MUTATION),
        )

    def _read_placeholders(self, placeholders: list[fx.Node]) -> None:
        specs = self.exported.graph_signature.input_specs
        user = [n for n, s in zip(placeholders, specs, strict=True) if s.kind == InputKind.USER_INPUT]
        batch = self.example[0].shape[self.batch_axis] if self.example[0].dim() > self.batch_axis else -1
        found = []
        for node, tensor in zip(user, self.example, strict=True):
            axis = axis_of_batch(tensor, batch, self.batch_axis)
            found += [] if axis is None else [s.name for s in _free(node.meta["val"].shape[axis])]
        self.symbols = tuple(dict.fromkeys(found))
        constants = {**self.exported.state_dict, **self.exported.constants}
        taken = {node.name for node in self.exported.graph.nodes}
        for node, spec in zip(placeholders, specs, strict=True):
            if spec.kind == InputKind.USER_INPUT:
                self._add_input(node)
            else:
                name = self._path(spec.target)
                while name in taken:  # a buffer may be called as torch calls an op
                    name += "#"
                self.names[node.name] = name
                self.tensors[name] = constants[spec.target].detach().clone()

    def _path(self, target: Any) -> str:
        """What the model calls one of its tensors."""
        return ".".join(part for part in (self.prefix, str(target).removeprefix("model.")) if part)

    def _add_input(self, node: fx.Node) -> None:
        dims = []
        for size in node.meta["val"].shape:
            free = _free(size)
            if free and not size.node.expr.is_Symbol:
                raise CaptureError(f"input {node.name} has a size that depends on another ({size})")
            dims.append(next(iter(free)).name if free else int(size))
        self.inputs.append(Input(node.name, tuple(dims), self._meta(node.meta["val"])))

    def _read_call(self, node: fx.Node) -> None:
        mutates = False
        if isinstance(node.target, torch._ops.OpOverload):
            mutates = node.target._schema.is_mutable
            target = str(twin(node.target) if mutates else node.target)
        elif node.target is operator.getitem:
            target = GETITEM
        else:
            target = _SIZE_NAMES.get(node.target) or f"python.{getattr(node.target, '__name__', node.target)}"
        if any(a in target for a in _ASSERTIONS) or (target.startswith("python.") and not node.users):
            return
        self.nodes.append(
            Node(
                name=node.name,
                target=target,
                args=tuple(self._argument(a) for a in node.args),
                kwargs={k: self._argument(v) for k, v in node.kwargs.items()},
                scope=".".join(part for part in (self.prefix, _scope(node)) if part),
                meta=self._metas(node.meta.get("val")),
            )
        )
        if mutates:
            self.written[cast(fx.Node, node.args[0]).name] = node.name

    def _refuse_unknown_sizes(self) -> None:
        """A size by a function that no file may name is a constant only where the sizes of the input are fixed."""
        unknown = {node.name: node.target for node in self.nodes if node.target.startswith("python.")}
        for node in self.nodes:
            if node.name not in unknown and (names := unknown.keys() & set(node.inputs)):
                raise CaptureError(f"a size is computed by {unknown[min(names)]}; fix the sizes of the input")

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            name = value.name
            while name in self.written:
                name = self.written[name]
            return Ref(self.names.get(name, name))
        if isinstance(value, list | tuple):
            return tuple(self._argument(item) for item in value)
        if isinstance(value, dict):
            return {key: self._argument(item) for key, item in value.items()}
        return value

    def _metas(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._meta(value)
        if isinstance(value, list | tuple):
            return tuple(self._metas(item) for item in value)
        return None

    def _meta(self, value: Tensor) -> Meta:
        axes = [i for i, size in enumerate(value.shape) if any(s.name in self.symbols for s in _free(size))]
        return Meta(tuple(_hint(s) for s in value.shape), value.dtype, axes[0] if len(axes) == 1 else None)

    def _guards(self) -> tuple[Guard, ...]:
        """Conditions on the free sizes that the graph relies on."""
        environment = next(
            (s.node.shape_env for i in self.exported.graph.nodes if i.op == "placeholder"
             for s in getattr(i.meta["val"], "shape", ()) if isinstance(s, torch.SymInt)), None,
        )  # fmt: skip
        known = {d for i in self.inputs for d in i.dims if isinstance(d, str)}
        found: list[Guard] = []
        if environment is None:
            return ()
        for guard in environment.guards:
            expression = guard.expr.xreplace(environment.replacements)
            if expression in (True, False):  # speaks only of sizes that are fixed anyway
                continue
            tree = from_sympy(expression)
            if tree is None or not {symbol.name for symbol in expression.free_symbols} <= known:
                raise CaptureError(f"a condition on sizes cannot be kept: {expression}")
            if tree not in found:
                found.append(tree)
        return tuple(found)


def _free(size: Any) -> set[Any]:
    return size.node.expr.free_symbols if isinstance(size, torch.SymInt) else set()


def _hint(size: Any) -> int:
    return int(cast(int, size.node.hint)) if isinstance(size, torch.SymInt) else int(size)


def _scope(node: fx.Node) -> str:
    """The path of the module that made this op."""
    stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    path = next((p for p in reversed(stack) if p and not p.startswith("_empty")), "")
    return path.removeprefix("model").removeprefix(".").replace("@", "#")
