"""The converted network: the ANN's own graph with neurons in it, run over time in the value view."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from spikecast.config import MAX_STEPS, Config
from spikecast.errors import ConfigError, DataError, SpikecastError
from spikecast.graph.execute import Execution
from spikecast.graph.inputs import batch_size, call_leaves, check_finite, misfit, take
from spikecast.graph.plan import Plan, Site
from spikecast.graph.program import NEURON, Meta, Program, Ref
from spikecast.graph.report import Report
from spikecast.graph.structure import unflatten
from spikecast.kernels import encode
from spikecast.theory.neuron import Neuron

MAX_BATCH = 128  # samples times steps that lie in memory at once, unless the caller says otherwise

Recapture = Callable[[Sequence[Any], Mapping[str, Any]], Plan]


class Recorded(NamedTuple):
    """What one site did: its estimate after each step, and the signed level it fired (0 silent, ±1 largest)."""

    estimates: Tensor
    levels: Tensor


class NeuronStates:
    """The neurons of one run: for each site the estimate its receivers hold."""

    def __init__(self, network: SpikingNetwork, record: Sequence[str] = ()) -> None:
        self.network = network
        self.estimates: dict[str, Tensor] = {}
        self.t = 1
        self.wanted = set(record)
        self.recorded: dict[str, Recorded] = {}
        self.keep = True  # whether a later step will need the estimates

    def __call__(self, site: str, steps: Tensor) -> Tensor:
        want = site in self.wanted
        out = encode(
            steps,
            self.network.threshold(site),
            self.network.neurons[site],
            state=self.estimates.get(site),
            start=self.t,
            want_levels=want,
        )
        if self.keep:
            self.estimates[site] = out.estimates[-1]
        if want and out.levels is not None:
            self.recorded[site] = Recorded(out.estimates, out.levels)
        return out.estimates

    def keep_samples(self, execution: Execution, index: Tensor) -> None:
        """Forget all samples but those of the index."""
        for node in execution.program.nodes:
            if node.target == NEURON and (site := node.kwargs["site"]) in self.estimates:
                self.estimates[site] = execution.select(node.name, self.estimates[site], index)


class SpikingNetwork(nn.Module):
    """A network of spiking neurons that answers like the model it was made from.

    `snn(x)` answers after all steps, `snn.run(x)` after each; see `steps`, `anytime` and `record` for more.
    """

    def __init__(self, plan: Plan, config: Config, thresholds: Mapping[str, Tensor], report: Report) -> None:
        super().__init__()
        self.config, self.report = config, report
        self.sites: dict[str, Site] = dict(plan.sites)
        self.neurons = {name: neuron_of(site, config) for name, site in plan.sites.items()}
        self.weights, self.theta = _Tensors(plan.program.tensors), _Tensors(thresholds)
        self._plans: list[Plan] = [plan]
        self._recapture: tuple[Recapture, ...] = ()  # in a tuple, so that no module inside is registered as ours
        self.foldable = report.foldable
        self.eval()

    # -- what it is made of

    @property
    def plan(self) -> Plan:
        return self._plans[0]

    @property
    def thresholds(self) -> dict[str, Tensor]:
        """Base threshold of each site, shaped to broadcast against one step of its input."""
        return {name: self.threshold(name) for name in self.sites}

    def threshold(self, site: str) -> Tensor:
        return self.theta[site]

    def set_thresholds(self, thresholds: Mapping[str, Tensor]) -> None:
        """Give every site its base thresholds."""
        self.theta = _Tensors(thresholds)

    def add_note(self, note: str) -> None:
        """Say something in the report that no row says."""
        self.report = dataclasses.replace(self.report, notes=(*self.report.notes, note))

    def allow_recapture(self, recapture: Recapture) -> None:
        """How to capture the model again for arguments the present graphs cannot take."""
        self._recapture = (recapture,)

    # -- running

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns, after `config.num_steps` steps."""
        return self._answer(self.run_tensors(args, kwargs, self.config.num_steps), -1)

    @torch.no_grad()
    def run(
        self,
        *args: Any,
        num_steps: int | None = None,
        time_axis: int | None = None,
        max_batch: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """The answer after each step: every tensor of it with a leading time axis.

        With `time_axis`, the floating-point inputs change over time along that axis (frames of an event camera);
        the network then answers for the mean of the frames so far, which is what rate coding means.
        `max_batch` bounds how many samples times steps lie in memory at once; the answer does not depend on it.
        """
        if time_axis is not None:
            first, named, frames = _split_frames(args, kwargs, time_axis)
            return self._answer(self._run_frames(first, named, frames, num_steps), None)
        steps = self.config.num_steps if num_steps is None else num_steps
        return self._answer(self.run_tensors(args, kwargs, steps, max_batch=max_batch), None)

    @torch.no_grad()
    def steps(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Iterator[tuple[int, Any]]:
        """Yield (t, answer after step t), one step at a time; the numbers are those of `run`."""
        plan, tensors = self.prepare_call(args, kwargs)
        total = checked_steps(self.config.num_steps if num_steps is None else num_steps)
        execution, states = self.execution(plan.program), NeuronStates(self)
        execution.start(tensors)
        for t in range(1, total + 1):
            states.t = t
            outputs = execution.advance(states)
            yield t, unflatten(plan.program.output_structure, outputs)

    @torch.no_grad()
    def analog(self, *args: Any, **kwargs: Any) -> Any:
        """The answer with the neurons switched off: the ANN, through the captured graph."""
        plan, tensors = self.prepare_call(args, kwargs)
        execution = self.execution(plan.program)
        execution.start(tensors)
        return unflatten(plan.program.output_structure, execution.advance(self.pass_through))

    def pass_through(self, site: str, steps: Tensor) -> Tensor:
        """What a site would send if it could send exactly: its input, kept in its interval."""
        found = self.sites[site]
        return steps.clamp(found.lower, found.upper) if found.is_rectifier else steps

    @torch.no_grad()
    def record(
        self, *args: Any, sites: Sequence[str] | None = None, num_steps: int | None = None, **kwargs: Any
    ) -> dict[str, Recorded]:
        """Estimates and signed level indices of the named sites (all, unless named), each [T, ...]."""
        wanted = list(self.sites) if sites is None else list(sites)
        for name in wanted:
            if name not in self.sites:
                raise DataError(f"no site is called {name!r}; sites are {', '.join(list(self.sites)[:6])}, …")
        plan, tensors = self.prepare_call(args, kwargs)
        total = checked_steps(self.config.num_steps if num_steps is None else num_steps)
        states = NeuronStates(self, wanted)
        if self.foldable:
            execution = self.execution(plan.program)
            execution.start(tensors)
            execution.advance(states, total)
            return states.recorded
        found: dict[str, list[Recorded]] = {name: [] for name in wanted}
        execution = self.execution(plan.program)
        execution.start(tensors)
        for t in range(1, total + 1):
            states.t = t
            execution.advance(states)
            for name, item in states.recorded.items():
                found[name].append(item)
        return {n: Recorded(*(torch.cat([r[i] for r in rs]) for i in (0, 1))) for n, rs in found.items() if rs}

    def anytime(
        self,
        *args: Any,
        confidence: float = 0.95,
        stop: Callable[[Any, Any], Tensor] | None = None,
        num_steps: int | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Tensor]:
        """The answer of each sample as soon as it is sure, and the steps it took; see `spikecast.anytime`."""
        from spikecast.anytime import anytime

        return anytime(self, args, kwargs, confidence=confidence, stop=stop, num_steps=num_steps)

    def save(self, path: str | Path) -> None:
        """Write the network to one file that `spikecast.load` reads without the model's Python code."""
        from spikecast.artifact import save

        save(self, path)

    # -- how a run is laid out

    def execution(self, program: Program, *, moving_inputs: bool = False) -> Execution:
        tensors = {name: self.weights.get(name, value) for name, value in program.tensors.items()}
        return Execution(program, tensors, moving_inputs=moving_inputs)

    def prepare_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Plan, list[Tensor]]:
        """The plan that can take a call, and the call's tensors on our device."""
        tensors, structure = call_leaves(args, kwargs)
        self._check(tensors)
        reasons = []
        for plan in self._plans:
            reason = misfit(plan.program, tensors, structure)
            if reason is None:
                return plan, tensors
            reasons.append(reason)
        if not self._recapture:
            raise DataError(
                f"this network cannot take the call: {reasons[0]}; give what it was converted for, "
                "or convert the model again with a batch of this form"
            )
        try:
            plan = self._recapture[0](args, kwargs)
        except SpikecastError:
            raise
        except Exception as error:
            raise DataError(f"the model cannot take the call either: {reasons[0]} ({error})") from error
        if set(plan.sites) != set(self.sites):
            raise DataError(
                f"the call changes which neurons there are ({reasons[0]}); convert with a batch of this form"
            )
        self._plans.append(plan)
        return plan, tensors

    def _check(self, tensors: Sequence[Tensor]) -> None:
        if not tensors:
            raise DataError("called without a tensor; give the input the model takes")
        device = next((b.device for b in self.buffers()), tensors[0].device)
        for tensor in tensors:
            if tensor.device != device:
                raise DataError(f"an input is on {tensor.device}, the network on {device}; move one with .to(...)")
        check_finite(tensors)

    def run_tensors(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], num_steps: int, *, max_batch: int | None = None
    ) -> tuple[Plan, list[Any]]:
        """The output leaves after each step, [T, ...] each."""
        plan, tensors = self.prepare_call(args, kwargs)
        total = checked_steps(num_steps)
        limit = MAX_BATCH if max_batch is None else max_batch
        if limit < 1:
            raise ConfigError(f"max_batch={max_batch!r} must be a whole number of at least 1")
        samples = batch_size(plan.program, tensors)
        if not self.foldable or samples is None:
            return plan, self._stack_steps(plan.program, tensors, total)
        size = max(1, limit // total)
        chunks = [
            self._run_folded(plan.program, take(plan.program, tensors, i, min(i + size, samples)), total)
            for i in range(0, samples, size)
        ] or [self._run_folded(plan.program, tensors, total)]
        return plan, [_join(plan.program, out, [c[i] for c in chunks]) for i, out in enumerate(plan.program.outputs)]

    def _run_folded(self, program: Program, tensors: Sequence[Tensor], total: int) -> list[Any]:
        """All steps at once, layer by layer."""
        execution, states = self.execution(program), NeuronStates(self)
        states.keep = False
        execution.start(tensors)
        outputs = execution.advance(states, total)
        return [_unfolded(execution, out, value, total) for out, value in zip(program.outputs, outputs, strict=True)]

    def _stack_steps(self, program: Program, tensors: Sequence[Tensor], total: int) -> list[Any]:
        """One step after the other, for a graph whose batch cannot hold the steps."""
        execution, states = self.execution(program), NeuronStates(self)
        execution.start(tensors)
        answers = []
        for t in range(1, total + 1):
            states.t = t
            answers.append(execution.advance(states))
        return [_stacked([a[i] for a in answers]) for i in range(len(program.outputs))]

    def _run_frames(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], frames: list[list[Tensor]], num_steps: int | None
    ) -> tuple[Plan, list[Any]]:
        """One step per frame; the input is the mean of the frames so far."""
        plan, tensors = self.prepare_call(args, kwargs)
        self._check([f for frame in frames for f in frame])
        total = checked_steps(len(frames) if num_steps is None else num_steps)
        if total > len(frames):
            raise DataError(f"num_steps={total} exceeds the {len(frames)} frames given; take at most one step a frame")
        execution, states = self.execution(plan.program, moving_inputs=True), NeuronStates(self)
        mean = [torch.zeros_like(f) for f in frames[0]]
        answers = []
        for t in range(1, total + 1):
            mean = [m + (f - m) / t for m, f in zip(mean, frames[t - 1], strict=True)]
            floating = iter(mean)
            execution.start([next(floating) if x.is_floating_point() else x for x in tensors])
            states.t = t
            answers.append(execution.advance(states))
        return plan, [_stacked([a[i] for a in answers]) for i in range(len(plan.program.outputs))]

    def _answer(self, result: tuple[Plan, list[Any]], step: int | None) -> Any:
        plan, leaves = result
        chosen = [
            leaf if step is None or not isinstance(out, Ref) else leaf[step]
            for out, leaf in zip(plan.program.outputs, leaves, strict=True)
        ]
        return unflatten(plan.program.output_structure, chosen)

    def extra_repr(self) -> str:
        c = self.config
        return f"{len(self.sites)} sites, {c.coding} coding, n={c.num_levels}, T={c.num_steps}"


class _Tensors(nn.Module):
    """Buffers by names that may hold dots."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(_buffer_name(name), tensor)

    def __getitem__(self, name: str) -> Tensor:
        buffer = self._buffers[_buffer_name(name)]
        assert buffer is not None
        return buffer

    def get(self, name: str, default: Tensor) -> Tensor:
        found = self._buffers.get(_buffer_name(name))
        return default if found is None else found


def _buffer_name(name: str) -> str:
    return name.replace(".", "/")


def neuron_of(site: Site, config: Config) -> Neuron:
    """The neuron a site has under a configuration."""
    own = config.at(site.name)
    assert own is not None
    return Neuron(
        coding=own.coding,
        num_levels=own.num_levels,
        signed=own.signed,
        firing_boundary=own.firing_boundary,
        initial_potential=own.initial_potential,
        lower=site.lower,
        upper=site.upper,
    )


def checked_steps(num_steps: object) -> int:
    if isinstance(num_steps, bool) or not isinstance(num_steps, int) or not 1 <= num_steps <= MAX_STEPS:
        raise ConfigError(f"num_steps={num_steps!r} must be a whole number from 1 to {MAX_STEPS}")
    return num_steps


def _unfolded(execution: Execution, out: Any, value: Any, total: int) -> Any:
    if not isinstance(out, Ref) or not isinstance(value, Tensor):
        return value
    if out.name in execution.moving:
        return execution.unfold(out.name, value, total)
    return value.unsqueeze(0).expand(total, *value.shape)


def _stacked(values: list[Any]) -> Any:
    """Answers of all steps as one tensor; as a list where their shapes differ; the last where they are no tensors."""
    if not isinstance(values[0], Tensor):
        return values[-1]
    return torch.stack(values) if len({v.shape for v in values}) == 1 else values


def _join(program: Program, out: Any, parts: list[Any]) -> Any:
    """Chunks of the batch put together again."""
    if len(parts) == 1 or not isinstance(out, Ref) or not isinstance(parts[0], Tensor):
        return parts[-1]
    meta = program.metas[out.name]
    if not isinstance(meta, Meta) or meta.batch_axis is None:
        return parts[0]
    return torch.cat(parts, meta.batch_axis + 1)


def _split_frames(
    args: Sequence[Any], kwargs: Mapping[str, Any], axis: int
) -> tuple[list[Any], dict[str, Any], list[list[Tensor]]]:
    """A call with the first frame in place of each sequence, and all frames by step."""

    def is_sequence(value: Any) -> bool:
        return isinstance(value, Tensor) and value.is_floating_point()

    sequences = [v for v in (*args, *kwargs.values()) if is_sequence(v)]
    lengths = {v.shape[axis] for v in sequences if v.dim() > axis}
    if len(lengths) != 1 or any(v.dim() <= axis for v in sequences) or lengths == {0}:
        raise DataError(f"time_axis={axis}: every floating-point input needs that axis, of one length above 0")
    first = [v.select(axis, 0) if is_sequence(v) else v for v in args]
    named = {k: v.select(axis, 0) if is_sequence(v) else v for k, v in kwargs.items()}
    frames = [[v.select(axis, t) for v in sequences] for t in range(lengths.pop())]
    return first, named, frames
