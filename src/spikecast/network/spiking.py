"""The converted network: the ANN's own graph with neurons in it, run over time in the value view."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from spikecast.config import MAX_STEPS, Config
from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.graph.calls import call_leaves, check_finite, misfit
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Program, Ref
from spikecast.graph.structure import unflatten
from spikecast.network.folded import run_in_chunks
from spikecast.network.plan import Plan, Site
from spikecast.network.report import Report
from spikecast.network.states import NeuronStates, Recorded
from spikecast.theory.neuron import Neuron

if TYPE_CHECKING:
    from spikecast.hardware.twin.twin import Twin

Recapture = Callable[[Sequence[Any], Mapping[str, Any]], Plan]


class SpikingNetwork(nn.Module):
    """A network of spiking neurons that answers like the model it was made from.

    `snn(x)` answers after all steps, `snn.run(x)` after each; see `steps`, `anytime` and `record` for more.
    """

    def __init__(
        self,
        plan: Plan,
        config: Config,
        neurons: Mapping[str, Neuron],
        thresholds: Mapping[str, Tensor],
        report: Report,
    ) -> None:
        super().__init__()
        self.config, self.report = config, report
        self.sites: dict[str, Site] = dict(plan.sites)
        self.neurons: dict[str, Neuron] = dict(neurons)
        self.weights, self.theta = _Tensors(plan.program.tensors), _Tensors(thresholds)
        self.plans: list[Plan] = [plan]
        self._recapture: tuple[Recapture, ...] = ()  # in a tuple, so that no module inside is registered as ours
        self.foldable = report.foldable
        self.about: dict[str, Any] = {}  # whatever is worth knowing of it, as JSON data; saved along with it
        self.compiled: dict[Any, Any] = {}  # holds weights and thresholds as they were
        self.eval()

    # -- what it is made of

    @property
    def plan(self) -> Plan:
        return self.plans[0]

    @property
    def thresholds(self) -> dict[str, Tensor]:
        """Base threshold of each site, shaped to broadcast against one step of its input."""
        return {name: self.threshold(name) for name in self.sites}

    def threshold(self, site: str) -> Tensor:
        return self.theta[site]

    @property
    def device(self) -> torch.device | None:
        """Where the network lies; None where it has neither weights nor neurons."""
        return next((b.device for b in self.buffers()), None)

    def set_thresholds(self, thresholds: Mapping[str, Tensor]) -> None:
        """Give every site its base thresholds."""
        self.compiled = {}
        self.theta = _Tensors(thresholds).train(self.training)

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
        max_memory: int | str | None = None,
        compile: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The answer after each step: every tensor of it with a leading time axis.

        With `time_axis`, the floating-point inputs change over time along that axis (frames of an event camera);
        the network then answers for the mean of the frames so far, which is what rate coding means.
        `max_batch` bounds how many samples times steps lie in memory at once, `max_memory` ("1GiB", or bytes) how much
        they take besides the weights and the answer; the answer does not depend on them. `compile` hands the graph
        between the neurons to torch.compile: minutes at the first call of each input form (docs/method.md).
        """
        if time_axis is not None:
            from spikecast.network.frames import run_frames

            return self._answer(run_frames(self, args, kwargs, time_axis, num_steps), None)
        steps = self.config.num_steps if num_steps is None else num_steps
        limits = {"max_batch": max_batch, "max_memory": max_memory, "compile": compile}
        return self._answer(self.run_tensors(args, kwargs, steps, **limits), None)

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

    def twin(self, dtype: torch.dtype | None = None) -> Twin:
        """The same network in the spike view: signals on every wire, step by step, as hardware would run it."""
        from spikecast.hardware.twin.twin import Twin

        return Twin(self, dtype)

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
        """The answer of each sample as soon as it is sure, and the steps it took; see `spikecast.network.anytime`."""
        from spikecast.network.anytime import anytime

        return anytime(self, args, kwargs, confidence=confidence, stop=stop, num_steps=num_steps)

    def save(self, path: str | Path) -> None:
        """Write the network to one file that `spikecast.load` reads without the model's Python code."""
        from spikecast.storage.artifact import save

        save(self, path)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights and thresholds; graphs made for other input forms hold the old weights and are forgotten."""
        del self.plans[1:]
        self._recapture = ()
        self.compiled = {}
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SpikingNetwork:
        for name, weight in self.weights.named_buffers():
            if weight.is_floating_point() and (made := fn(weight.new_empty(0)).dtype) != weight.dtype:
                raise ModelError(
                    f"the graph computes in {weight.dtype} ({name}), so the network cannot become {made}; "
                    f"convert model.to({made}) with batches of that type"
                )
        self.compiled = {}
        return cast(SpikingNetwork, super()._apply(fn, recurse))  # type: ignore[no-untyped-call]

    # -- how a run is laid out

    def execution(self, program: Program, *, moving_inputs: bool = False) -> Execution:
        own, device = self.plan.program.tensors, self.device
        tensors = {
            name: self.weights[name] if own.get(name) is value else value if device is None else value.to(device)
            for name, value in program.tensors.items()
        }
        return Execution(program, tensors, moving_inputs=moving_inputs)

    def prepare_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Plan, list[Tensor]]:
        """The plan that can take a call, and the call's tensors on our device."""
        tensors, structure = call_leaves(args, kwargs)
        self.check(tensors)
        reasons = []
        for plan in self.plans:
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
        except DataError as error:
            raise DataError(f"{reasons[0]}, and {error}") from error
        if set(plan.sites) != set(self.sites):
            raise DataError(
                f"the call changes which neurons there are ({reasons[0]}); convert with a batch of this form"
            )
        return self.add_plan(plan), tensors

    def add_plan(self, plan: Plan) -> Plan:
        """Another graph of the same model; what it shares with the first one are the network's own weights."""
        own = self.plan.program.tensors
        tensors = {
            name: own[name] if name in own and _same(own[name], value) else value
            for name, value in plan.program.tensors.items()
        }
        plan = dataclasses.replace(plan, program=dataclasses.replace(plan.program, tensors=tensors))
        self.plans.append(plan)
        return plan

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Refuse tensors on another device, and values that are not finite."""
        if not tensors:
            raise DataError("called without a tensor; give the input the model takes")
        for tensor in tensors:
            if tensor.device != (self.device or tensor.device):
                raise DataError(f"an input is on {tensor.device}, the network on {self.device}; move one with .to(...)")
        check_finite(tensors)

    def run_tensors(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], num_steps: int, **limits: Any
    ) -> tuple[Plan, list[Any]]:
        """The output leaves after each step, [T, ...] each."""
        plan, tensors = self.prepare_call(args, kwargs)
        return plan, run_in_chunks(self, plan.program, tensors, checked_steps(num_steps), **limits)

    def _answer(self, result: tuple[Plan, list[Any]], step: int | None) -> Any:
        plan, leaves = result
        chosen = [
            leaf[step] if step is not None and isinstance(out, Ref) and isinstance(leaf, Tensor | list) else leaf
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


def _buffer_name(name: str) -> str:
    return "/" + name.replace(".", "/")  # never the name of a module's method, such as "to"


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


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
