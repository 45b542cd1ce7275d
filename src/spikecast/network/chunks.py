"""A run cut into pieces that fit the memory: samples first, and steps where one sample with all of them is too much.

How much a sample takes is not guessed: the first one is run on its own and what it holds at each op is summed up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from spikecast.errors import ConfigError
from spikecast.graph.calls import batch_size, take
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Meta, Program
from spikecast.graph.turns import computing
from spikecast.network.answers import Place, batch_place, in_time, join, stacked, unfolded, with_sizes
from spikecast.network.states import NeuronStates
from spikecast.theory.modes import is_exporting

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork

NeuronsOf = Callable[[Execution], NeuronStates]  # the neurons of a run, where they are not the plain ones

MAX_BATCH = 128  # samples times steps that lie in memory at once, unless the caller says otherwise,
# and on the CPU fewer, so that no value takes more than this: larger blocks are not kept for the next op but given back
# to the system, which clears every page again (`python -m benchmarks --only chunks`).
LARGEST = 1 << 25
UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


def bytes_of(amount: int | str) -> int:
    """A number of bytes, given as such or as text like "512MiB"."""
    text = str(amount).strip().lower()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text)
    size = 0 if found is None or isinstance(amount, bool) else int(float(found[1]) * UNITS[found[2] or ""])
    if size < 1:
        raise ConfigError(f"max_memory={amount!r} must be a number of bytes, or text such as '512MiB' or '2GB'")
    return size


def run_in_chunks(
    network: SpikingNetwork,
    program: Program,
    tensors: Sequence[Tensor],
    total: int,
    *,
    max_batch: int | None = None,
    max_memory: int | str | None = None,
    neurons: NeuronsOf | None = None,
    compile: bool = False,
) -> list[Any]:
    """The output leaves after each step, [T, ...] each; `neurons` makes those of each piece."""
    if network.foldable and is_exporting():  # the number of samples is not known yet: all of them
        return with_sizes(program, tensors, _folded(network, program, tensors, total, total, neurons).leaves)
    limit = _comfortable(program, tensors, total) if max_batch is None else max_batch
    if type(limit) is not int or limit < 1:
        raise ConfigError(f"max_batch={max_batch!r} must be a whole number of at least 1")
    budget = None if max_memory is None else bytes_of(max_memory)
    samples = batch_size(program, tensors)
    if compile and (budget is not None or neurons is not None):
        raise ConfigError("compile=True with max_memory: a compiled run takes its memory by itself; use max_batch")
    if compile and samples:
        return _compiled(network, program, tensors, total, max(1, limit // total))
    if not network.foldable or samples is None:  # its samples belong together: one step at a time is the least
        return _one_by_one(network, program, tensors, total, neurons)
    size, fold = max(1, limit // total), min(total, limit)
    found: list[Chunk] = []
    if budget is not None and samples:
        found.append(_folded(network, program, take(program, tensors, 0, 1), total, 1, neurons, weigh=True))
        fits = budget // max(found[0].bytes_per_step, 1)
        if fits < total:  # the neurons keep their estimates from one pass to the next
            fits = (budget - found[0].bytes_kept) // max(found[0].bytes_per_step, 1)
        size, fold = max(1, min(size, fits // total)), max(1, min(fold, fits))
    in_first = 1 if found else size
    for i in range(len(found), samples, size):
        if len(found) == 1 and program.limits is not None:
            program.limits.check_answers(found[0].leaves, -(-samples // in_first))
        chunk = take(program, tensors, i, min(i + size, samples))
        found.append(_folded(network, program, chunk, total, fold, neurons))
    if not found:
        found.append(_folded(network, program, tensors, total, fold, neurons))
    with computing():
        pieces = zip(found[0].places, *(chunk.leaves for chunk in found), strict=True)
        leaves = [join(parts, *place) for place, *parts in pieces]
    return with_sizes(program, tensors, leaves)


def _comfortable(program: Program, tensors: Sequence[Tensor], total: int) -> int:
    """Samples times steps that run fastest; all steps of one sample at least."""
    if not tensors[0].is_cpu:
        return MAX_BATCH
    metas = [n.meta for n in program.nodes if isinstance(n.meta, Meta) and n.meta.batch_axis is not None]
    bytes_each = [math.prod(m.shape) // max(m.shape[m.batch_axis or 0], 1) * m.dtype.itemsize for m in metas]
    seen = max((math.prod(i.meta.shape[1:]) for i in program.inputs), default=1)
    now = max(t[0].numel() if t.dim() and len(t) else 1 for t in tensors)
    growth = now / max(seen, 1)  # images larger than captured
    return max(total, min(MAX_BATCH, int(LARGEST // max(max(bytes_each, default=1) * growth, 1))))


def _compiled(network: SpikingNetwork, program: Program, tensors: Sequence[Tensor], total: int, size: int) -> list[Any]:
    """Pieces of one size each, and the rest: every size is compiled once."""
    from spikecast.network.compiled import run_compiled

    samples = batch_size(program, tensors) or 0
    parts = [
        run_compiled(network, program, take(program, tensors, i, min(i + size, samples)), total)
        for i in range(0, samples, size)
    ]
    leaves = [join(list(found), *place) for place, *found in zip(parts[0][1], *(p[0] for p in parts), strict=True)]
    return with_sizes(program, tensors, leaves)


class Chunk(NamedTuple):
    """The leaves of some samples, each [T, ...], where the batch lies in them, and what the run held, if weighed."""

    leaves: list[Any]
    places: list[Place]
    bytes_per_step: int
    bytes_kept: int


def _folded(
    network: SpikingNetwork,
    program: Program,
    tensors: Sequence[Tensor],
    total: int,
    fold: int,
    neurons: NeuronsOf | None,
    *,
    weigh: bool = False,
) -> Chunk:
    """Layer by layer, with `fold` steps at once."""
    execution = network.execution(program)
    states = NeuronStates(network) if neurons is None else neurons(execution)
    states.keep, states.weighs = fold < total, weigh
    execution.start(tensors, states)
    passes = []
    for first in range(0, total, fold):
        states.t = first + 1
        steps = min(fold, total - first)
        outputs = execution.advance(states, steps)
        passes.append([unfolded(execution, o, v, steps) for o, v in zip(program.outputs, outputs, strict=True)])
        if execution.limits is not None:
            execution.limits.check_answers(passes[0], -(-total // fold))
    leaves = [in_time(list(parts)) for parts in zip(*passes, strict=True)]
    return Chunk(leaves, [batch_place(execution, out) for out in program.outputs], states.peak, states.nbytes)


def _one_by_one(
    network: SpikingNetwork, program: Program, tensors: Sequence[Tensor], total: int, neurons: NeuronsOf | None
) -> list[Any]:
    """One step after the other, for a graph whose batch cannot hold the steps."""
    execution = network.execution(program)
    states = NeuronStates(network) if neurons is None else neurons(execution)
    execution.start(tensors, states)
    answers = []
    for t in range(1, total + 1):
        states.t = t
        answers.append(execution.advance(states))
        if execution.limits is not None:
            execution.limits.check_answers(answers[0], total)
    return [stacked([a[i] for a in answers]) for i in range(len(program.outputs))]
