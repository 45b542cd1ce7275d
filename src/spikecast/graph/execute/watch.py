"""Watches a program that came from a file while it runs: no op may crash, take more than it is allowed, or lie.

What an op makes follows from the shapes of the inputs. So a run on shapes that were watched once is not watched again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import ModelError, first_line
from spikecast.graph.extent import extent, named
from spikecast.graph.faults import fault, is_by_value
from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Program, inside

MAX_MEMORY = 4 * 2**30
MAX_WORK = 2**22  # multiplications and the like, for each number in the file and in the input
_MOST_FORMS = 4096
_ADVICE = "run fewer samples or steps at a time, or load the network with a larger max_memory="
_INDICES = ("topk", "sort", "max", "min", "median", "argmax", "argmin")  # make a whole number for each entry


@dataclass
class Limits:
    """What a run of a program may take, in bytes (None: as much as there is), and the inputs that were watched."""

    max_memory: int | None = MAX_MEMORY
    passed: set[Any] = field(default_factory=set)
    by_value: bool = False  # what ops make depends on more than shapes: every run is watched

    def check_answers(self, leaves: Sequence[Any], times: int) -> None:
        """See that there is room for so many answers of this size."""
        size = times * sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))
        if self.max_memory is not None and size > self.max_memory:
            raise ModelError(
                f"the answers after all steps take {size:,} bytes, and max_memory is {self.max_memory:,}; {_ADVICE}"
            )


class Watch:
    """The ops of one pass over a program."""

    def __init__(self, program: Program, limits: Limits, shapes: Sequence[torch.Size], fold: int, form: Any) -> None:
        self.limits, self.form = limits, form
        stored = sum(t.untyped_storage().nbytes() // t.itemsize for t in program.tensors.values())
        self.work_left = MAX_WORK * (stored + fold * sum(map(math.prod, shapes)) + len(program.nodes))
        # Only these sizes are known; what others make of them is for the model to say.
        self.captured = fold == 1 and [*shapes] == [spec.meta.shape for spec in program.inputs]

    def before(self, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any], held: int) -> None:
        """See that an op can be computed, while `held` bytes are taken."""
        if node.is_size or node.target == GETITEM:
            return
        given = {"self": args[0]} if node.target == NEURON else named(node, args, kwargs)
        try:
            wrong, large = fault(node, given), extent(node, given)
            self.limits.by_value = self.limits.by_value or is_by_value(node, given)
        except Exception as error:
            raise refusal(node, f"cannot take its arguments ({first_line(error)})") from error
        if wrong:
            raise refusal(node, f"is asked for {wrong}")
        most, self.work_left = self.limits.max_memory, self.work_left - large.work
        if most is None:
            return
        if held + (size := large.elements * _itemsize(node, given)) > most:
            raise refusal(node, f"may take {size:,} bytes beside {held:,}, and max_memory is {most:,}; {_ADVICE}")
        if self.work_left < 0:
            raise refusal(node, "takes far more work than file and input are large; max_memory=None allows it")

    def after(self, node: Node, value: Any) -> None:
        """See that a result is what the file says it is."""
        if not self._fits(node.meta, value):
            raise refusal(node, f"gives {_form(value)}, and the file says {_declared(node.meta)}")

    def done(self) -> None:
        """Inputs of this form need no watch any more."""
        if not self.limits.by_value:
            if len(self.limits.passed) >= _MOST_FORMS:
                self.limits.passed.clear()
            self.limits.passed.add(self.form)

    def _fits(self, meta: Any, value: Any) -> bool:
        if meta is None:
            return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
        if isinstance(meta, tuple):
            parts = value if isinstance(value, list | tuple) else ()
            return len(parts) == len(meta) and all(
                part is None or self._fits(part, own) for part, own in zip(meta, parts, strict=True)
            )
        alike = isinstance(value, Tensor) and value.dtype == meta.dtype and value.dim() == meta.rank
        return alike and (value.shape == meta.shape or not self.captured)


def _itemsize(node: Node, given: Mapping[str, Any]) -> int:
    """Bytes of an entry of the result, at most: whole numbers may become long, and indices come beside values."""
    dtypes = [t.dtype for t in inside(list(given.values()), Tensor)] + [
        value for value in given.values() if isinstance(value, torch.dtype)
    ]
    sizes = [dtype.itemsize if dtype.is_floating_point or dtype.is_complex else 8 for dtype in dtypes]
    name = node.op.removeprefix("aten.")
    return max(sizes, default=8) + (8 if name in _INDICES or "max_pool" in name else 0)


def _form(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return f"{len(value)} parts" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def _declared(meta: Any) -> str:
    if isinstance(meta, Meta):
        return f"{meta.dtype} of shape {meta.shape}"
    return "a size within 64 bits" if meta is None else f"{len(meta)} parts: {', '.join(map(_declared, meta[:3]))}"


def refusal(node: Node, reason: str) -> ModelError:
    """One line about an op of a file."""
    return ModelError(f"op {node.name[:80]!r} ({node.target}) of the file this network is from {reason}")
