"""Runs a program: what does not move in time once, the rest with any number of steps laid into the batch.

A value *moves* when it depends on a neuron (or on an input that changes with time). Moving values hold `fold` steps,
the step being the outer factor of the batch: [fold·B, ...] along the batch axis. Where a moving op uses a settled one,
that value is repeated; where it uses a size of one, the size is multiplied. With fold = 1 this is the ANN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from spikecast.errors import ModelError, first_line
from spikecast.graph.execute.observer import Observer
from spikecast.graph.execute.schedule import IN_PLACE, keeps_form
from spikecast.graph.execute.watch import Watch, refusal
from spikecast.graph.program import NEURON, SIZE, Node, Program, replace_refs, resolve
from spikecast.graph.turns import computing
from spikecast.theory.modes import is_exporting

_RESHAPES = {"aten.reshape", "aten.flatten", "aten.unflatten"}


class Execution:
    """One input on its way through a program. `start` it once, then `advance` it as often as there are steps."""

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        *,
        moving_inputs: bool = False,
        overwrite: bool = True,
        watched: bool = True,
    ) -> None:
        self.program, self.tensors = program, tensors
        self.metas, self.axes = program.metas, program.batch_axes
        self.schedule = program.flow.schedule(moving_inputs)
        self.moving = self.schedule.moving
        self.overwriting = self.schedule.overwriting if overwrite else frozenset[str]()  # gradients need all values
        self.moving_inputs = [i.name for i in program.inputs] if moving_inputs else []
        self.env: dict[str, Any] = {}
        self.outer: dict[str, int] = {}  # how often the batch repeats inside its axis, where that is not 1
        self.batch = 0
        self.fold = 1
        self.device = torch.device("cpu")
        self.limits = program.limits if watched and not is_exporting() else None  # a trace has no sizes to weigh
        self.shapes: tuple[torch.Size, ...] = ()  # of the inputs
        self.watch: Watch | None = None  # of the pass at hand, where it needs one

    @computing()
    def start(self, inputs: Sequence[Tensor], observer: Observer | None = None) -> None:
        """Compute everything that is the same at each step. Moving inputs hold their steps folded in already."""
        self.env = dict(self.tensors)
        self.outer = {}
        self.device = inputs[0].device
        for spec, value in zip(self.program.inputs, inputs, strict=True):
            self.env[spec.name] = value
            if spec.name in self.axes:
                self.batch = value.shape[self.axes[spec.name]]
        self.fold, self.shapes = 1, tuple(value.shape for value in inputs)
        self._begin_pass("once")
        for node in self.schedule.once:
            self._evaluate(node, self.env, self.batch)
            if observer is not None and node.name in observer.watched:
                observer.see(node, self.env[node.name], lambda ref: self.env[ref.name])
            for name in self.schedule.after_once.get(node.name, ()):
                self.env.pop(name, None)
        self._end_pass()

    @computing()
    def advance(self, observer: Observer, fold: int = 1, *, folded_inputs: bool = False) -> list[Any]:
        """The outputs for `fold` further steps; tensors that move hold them in their batch axis."""
        env = {name: self.env[name] for name in self.moving_inputs}
        self.fold = fold
        whole = self.batch if folded_inputs else self.batch * fold
        self._begin_pass(self.batch, fold, folded_inputs)
        for node in self.schedule.steps:
            if node.target == NEURON:
                self._fire(node, env, observer)
            else:
                self._evaluate(node, env, whole)
            if node.name in observer.watched:
                observer.see(node, env[node.name], lambda ref: self._read(ref.name, env))
            if observer.weighs:
                observer.weigh(self._held(env))
            for name in self.schedule.after_step.get(node.name, ()):
                env.pop(name, None)
                env.pop(f"{name}@", None)
                observer.forget(name)
        self._end_pass()
        return list(replace_refs(self.program.outputs, lambda ref: (env if ref.name in env else self.env)[ref.name]))

    @computing()
    def advance_apart(self, observer: Observer, count: int) -> None:
        """`count` steps side by side, op by op, for a graph whose batch cannot hold them; only the neurons matter."""
        envs: list[dict[str, Any]] = [{} for _ in range(count)]
        self.fold = 1
        self._begin_pass("apart", self.batch, count)
        for node in self.schedule.steps:
            if node.target == NEURON:
                source = node.args[0].name
                steps = torch.stack([(e if source in self.moving else self.env)[source] for e in envs])
                estimates = observer.fire(node.kwargs["site"], steps, may_overwrite=False)
                for env, estimate in zip(envs, estimates, strict=True):
                    env[node.name] = estimate
            else:
                for env in envs:
                    self._evaluate(node, env, self.batch)
            for name in self.schedule.after_step.get(node.name, ()):
                for env in envs:
                    env.pop(name, None)
        self._end_pass()

    def keep(self, index: Tensor) -> None:
        """Forget all samples but those of the index."""
        for name, value in self.env.items():
            if name in self.axes:
                self.env[name] = self.select(name, value, index)
        self.batch = len(index)

    def select(self, name: str, value: Tensor, index: Tensor) -> Tensor:
        """Some samples of a value (of one step), also where the batch is merged into a longer axis."""
        axis, outer = self.axes[name], self.outer.get(name, 1)
        if value.shape[axis] == self.batch:
            return value.index_select(axis, index)
        parts = torch.unflatten(value, axis, (outer, self.batch, -1)).index_select(axis + 1, index)
        return parts.flatten(axis, axis + 2)

    def unfold(self, name: str, value: Tensor, fold: int) -> Tensor:
        """The steps of a moving value in front: [fold, ...]."""
        if fold == 1:
            return value.unsqueeze(0)
        axis, outer = self._axis(name), self.outer.get(name, 1)
        if (size := value.shape[axis]) % (outer * fold):
            raise ModelError(f"value {name!r} has {size} entries on its batch axis, for {fold} steps; run step by step")
        steps = torch.unflatten(value, axis, (outer, fold, -1)).movedim(axis + 1, 0)
        return steps.flatten(axis + 1, axis + 2)

    def _axis(self, name: str) -> int:
        if name not in self.axes:
            raise ModelError(f"value {name!r} has no batch axis to hold time-steps; run step by step")
        return self.axes[name]

    def refold(self, name: str, steps: Tensor) -> Tensor:
        """The inverse of `unfold`."""
        fold = steps.shape[0]
        if fold == 1:
            return steps.squeeze(0)
        axis, outer = self._axis(name), self.outer.get(name, 1)
        return torch.unflatten(steps, axis + 1, (outer, -1)).movedim(0, axis + 1).flatten(axis, axis + 2)

    def _fire(self, node: Node, env: dict[str, Any], observer: Observer) -> None:
        source = node.args[0].name
        if source in self.moving:
            steps = self.unfold(source, env[source], self.fold)
        else:
            value = self.env[source]
            steps = value.expand(self.fold, *value.shape)
        if source in self.outer:
            self.outer[node.name] = self.outer[source]
        if self.watch is not None:
            self.watch.before(node, (steps,), {}, self._held(env))
        owned = node.name in self.overwriting
        env[node.name] = self.refold(node.name, observer.fire(node.kwargs["site"], steps, may_overwrite=owned))
        if self.watch is not None:
            self.watch.after(node, env[node.name])

    def _evaluate(self, node: Node, env: dict[str, Any], whole: int) -> None:
        once = env is self.env
        if node.target == SIZE and not once:
            env[node.name] = self._size(node, env)
            return
        args, kwargs = node.arguments(lambda ref: self._read(ref.name, env), self.device)
        function = resolve(node.target)
        if not once and node.name in self.overwriting and keeps_form((*args, *kwargs.values())):
            function = IN_PLACE[node.target]
        if self.watch is not None:
            self.watch.before(node, args, kwargs, self._held(env))
        try:
            env[node.name] = function(*args, **kwargs)
        except Exception as error:
            if self.limits is None:
                raise
            raise refusal(node, f"fails: {first_line(error)}; give an input it can take") from error
        if self.watch is not None:
            self.watch.after(node, env[node.name])
        self._track_outer(node, env, whole)

    def _begin_pass(self, *form: Any) -> None:
        """A program from a file is watched, unless an input of this form was before."""
        if self.limits is not None:
            form = (bool(self.moving_inputs), self.shapes, *form)
            fits = form in self.limits.passed
            self.watch = None if fits else Watch(self.program, self.limits, self.shapes, self.fold, form)

    def _end_pass(self) -> None:
        if self.watch is not None:
            self.watch.done()

    def _held(self, env: Mapping[str, Any]) -> int:
        """Bytes that a run holds besides the weights."""
        settled = {name: value for name, value in self.env.items() if name not in self.tensors}
        return _bytes_held(settled | dict(env))

    def _read(self, name: str, env: dict[str, Any]) -> Any:
        """A value as the op at hand reads it: of its step, or a settled one, repeated for every step."""
        if name in env:
            return env[name]
        value = self.env[name]
        if self.fold == 1 or name not in self.axes:
            return value
        if f"{name}@" not in env:
            env[f"{name}@"] = self.refold(name, value.expand(self.fold, *value.shape))
        return env[f"{name}@"]

    def _size(self, node: Node, env: dict[str, Any]) -> int:
        source, axis = node.args[0].name, node.args[1]
        value = env[source] if source in env else self.env[source]
        size: int = value.shape[axis]  # a symbol while torch.export traces the run
        repeats = source not in env and self.axes.get(source) == axis % max(value.dim(), 1)
        return size * self.fold if repeats else size

    def _track_outer(self, node: Node, env: dict[str, Any], whole: int) -> None:
        """Where a reshape merges the batch into a longer axis, remember how many times it repeats there.

        Reshaping keeps the order of elements, so what lies inside one sample keeps its size.
        """
        if node.name not in self.axes:
            return
        sources = [n for n in node.inputs if n in self.outer]
        if node.op not in _RESHAPES:
            if sources:
                self.outer[node.name] = self.outer[sources[0]]
            return
        source = node.args[0].name
        if source not in self.axes or env[node.name].numel() == 0:
            return
        before, shape = self.axes[source], self._read(source, env).shape
        after, new_shape = self.axes[node.name], env[node.name].shape
        inside = shape[before] // (whole * self.outer.get(source, 1))
        sample = inside * math.prod(shape[before + 1 :])
        step = math.prod(new_shape[after + 1 :])
        inside = sample // step
        outer = new_shape[after] // max(whole * inside, 1)
        if inside * step != sample or outer * whole * inside != new_shape[after] or not inside:
            raise ModelError(f"op {node.name!r} splits the batch; run step by step")
        if outer != 1:
            self.outer[node.name] = outer


def _bytes_held(env: Mapping[str, Any]) -> int:
    """What the tensors of an environment take, and again the largest of them: an op may rearrange its input."""
    sizes: dict[int, int] = {}
    for value in env.values():
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values()) + max(sizes.values(), default=0)
