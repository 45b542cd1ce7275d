"""A network that was captured whole: the ANN's own graph with neurons in it, run over time in the value view."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from spikecast.batches import Binder, Call, InputFunction
from spikecast.config import Config
from spikecast.errors import DataError, ModelError
from spikecast.graph.calls import arranged, call_leaves, check_finite, misfit
from spikecast.graph.execute.observer import Observer
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Program
from spikecast.graph.structure import unflatten
from spikecast.graph.turns import capturing, computing
from spikecast.network.anytime import Stop, anytime
from spikecast.network.base import Network, StatesOf
from spikecast.network.chunks import run_in_chunks
from spikecast.network.plan import Plan, Site
from spikecast.network.report import Report
from spikecast.network.states import NeuronStates, Recorded
from spikecast.theory.modes import is_exporting, no_grad, refuse_followers
from spikecast.theory.neuron import Neuron

Recapture = Callable[[Sequence[Any], Mapping[str, Any]], Plan]


class SpikingNetwork(Network):
    """A network of spiking neurons that answers like the model it was made from.

    `snn(x)` answers after all steps, `snn.run(x)` after each; see `steps`, `anytime` and `record` for more. It is an
    nn.Module: `.to(device)` and `.state_dict()` work.

    Example:
        >>> torch.equal(snn(x), snn.run(x)[-1])
        True
    """

    def __init__(
        self,
        plan: Plan,
        config: Config,
        neurons: Mapping[str, Neuron],
        thresholds: Mapping[str, Tensor],
        report: Report,
        name: str = "",
    ) -> None:
        super().__init__(config)
        self.report, self.name = report, name  # the name of a region, where it is one
        self._sites, self._neurons = dict(plan.sites), dict(neurons)
        self.weights, self.base_thresholds = _Tensors(plan.program.tensors), _Tensors(thresholds)
        self.plans: list[Plan] = [plan]
        self._recapture: tuple[Recapture, ...] = ()  # in a tuple, so that no module inside is registered as ours
        self.foldable = report.foldable
        self.compiled: dict[Any, Any] = {}  # by torch.compile; they hold weights and thresholds as they were
        self.eval()

    @classmethod
    def planned(cls, plan: Plan, config: Config, report: Report, name: str = "") -> SpikingNetwork:
        """A network that lacks only its thresholds."""
        device = next((t.device for t in plan.program.tensors.values()), torch.device("cpu"))
        blank = {site: torch.ones((1,) * own.meta.rank, device=device) for site, own in plan.sites.items()}
        neurons = {site: neuron_of(own, config) for site, own in plan.sites.items()}
        return cls(plan, config, neurons, blank, report, name)

    def with_config(self, config: Config) -> SpikingNetwork:
        """The same graph and weights with neurons of other settings, which lack their thresholds."""
        made = SpikingNetwork.planned(self.plan, config, self.report, self.name)
        made.weights = _Tensors({name: self.weights[name] for name in self.plan.program.tensors})
        made.plans, made._recapture = list(self.plans), self._recapture
        made.about, made.inputs = dict(self.about), self.inputs
        return made

    # -- what it is made of

    @property
    def networks(self) -> Mapping[str, SpikingNetwork]:
        return {"": self}

    @property
    def sites(self) -> Mapping[str, Site]:
        """All layers of neurons by name, in the order they run."""
        return self._sites

    @property
    def neurons(self) -> Mapping[str, Neuron]:
        """What the neurons of each site share, besides their thresholds: levels, burst, coding."""
        return self._neurons

    @property
    def plan(self) -> Plan:
        """The graph it was converted with; recaptured ones follow it in `plans`."""
        return self.plans[0]

    @property
    def batch_axis(self) -> int:
        return next((i.meta.batch_axis for i in self.plan.program.inputs), None) or 0

    def threshold(self, site: str) -> Tensor:
        return self.base_thresholds[site]

    def set_thresholds(self, thresholds: Mapping[str, Tensor]) -> None:
        self.compiled = {}
        self.base_thresholds = _Tensors(thresholds).train(self.training)

    def set_neurons(self, neurons: Mapping[str, Neuron]) -> None:
        """Give every site the settings of its neurons."""
        self.compiled = {}
        self._neurons = dict(neurons)

    def add_note(self, note: str) -> None:
        self.report = dataclasses.replace(self.report, notes=(*self.report.notes, note))

    def binder(self, inputs: InputFunction | None = None) -> Binder:
        return Binder.of_call(self.plan.program, next(self.buffers(), None), inputs or self.inputs)

    def allow_recapture(self, recapture: Recapture) -> None:
        """How to capture the model again for arguments the present graphs cannot take."""
        self._recapture = (recapture,)

    # -- running

    @no_grad
    def run_with(self, call: Call, num_steps: int, states_of: StatesOf | None = None, **limits: Any) -> Any:
        plan, tensors = self.prepare_call(*call)
        neurons = None if states_of is None else lambda execution: states_of(self, execution)
        leaves = run_in_chunks(self, plan.program, tensors, num_steps, neurons=neurons, **limits)
        return unflatten(plan.program.output_structure, leaves)

    @torch.no_grad()
    def run_frames(self, call: Call, time_axis: int, num_steps: int | None, states_of: StatesOf | None = None) -> Any:
        from spikecast.network.frames import run_frames

        return run_frames(self, call, time_axis, num_steps, states_of)

    @torch.no_grad()
    def steps(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Iterator[tuple[int, Any]]:
        plan, execution = self._started((args, kwargs))
        states = NeuronStates(self)
        for t in range(1, self.config.steps_or(num_steps) + 1):
            states.t = t
            yield t, unflatten(plan.program.output_structure, execution.advance(states))

    @torch.no_grad()
    def analog_with(self, call: Call, observer: Observer) -> Any:
        plan, execution = self._started(call)
        return unflatten(plan.program.output_structure, execution.advance(observer))

    def arriving(self, name: str, call: Call) -> tuple[Program, list[list[Tensor]]]:
        plan, tensors = self.prepare_call(*call)
        return plan.program, [tensors]

    def _anytime(self, call: Call, confidence: float, stop: Stop | None, total: int) -> tuple[Any, Tensor]:
        return anytime(self, call, confidence, stop, total)

    def _record(self, call: Call, wanted: Sequence[str], total: int) -> dict[str, Recorded]:
        _, execution = self._started(call)
        states = NeuronStates(self, wanted)
        if self.foldable:
            execution.advance(states, total)
            return states.recorded
        steps = []
        for t in range(1, total + 1):
            states.t = t
            execution.advance(states)
            steps.append(dict(states.recorded))
        return Recorded.in_time(steps)

    def whole(self, purpose: str) -> SpikingNetwork:
        return self

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

    def tensors_of(self, program: Program) -> dict[str, Tensor]:
        """The weights of one of its graphs as they are now: `.to` and `load_state_dict` may have changed them."""
        own, device = self.plan.program.tensors, self.device
        return {
            name: self.weights[name] if own.get(name) is value else value if device is None else value.to(device)
            for name, value in program.tensors.items()
        }

    @computing()
    def execution(self, program: Program, *, moving_inputs: bool = False, overwrite: bool = True) -> Execution:
        """A new run of one of its graphs; one that gradients are asked of must not overwrite values."""
        traced = is_exporting()
        overwrite = overwrite and not traced
        tensors = self.tensors_of(program)
        return Execution(program, tensors, moving_inputs=moving_inputs, overwrite=overwrite, watched=not traced)

    def _started(self, call: Call) -> tuple[Plan, Execution]:
        plan, tensors = self.prepare_call(*call)
        execution = self.execution(plan.program)
        execution.start(tensors)
        return plan, execution

    def prepare_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Plan, list[Tensor]]:
        """The plan that can take a call, and the call's tensors on our device."""
        with computing():
            self.check(call_leaves(args, kwargs)[0])
            found = self._fitting(args, kwargs)
        if isinstance(found, str) and len(args) == 1 and not kwargs and self._names_arguments(args[0]):
            raise DataError("a dict was given where arguments were meant; give them by name: snn.run(**batch)")
        if isinstance(found, str) and self._recapture and not is_exporting():
            with capturing():  # and look again: another thread may have captured it meanwhile
                found = self._fitting(args, kwargs)
                if isinstance(found, str):
                    found = self._recaptured(args, kwargs, found)
        if isinstance(found, str):
            raise DataError(
                f"this network cannot take the call: {found}; give what it was converted for, "
                "or convert the model again with a batch of this form"
            )
        return found

    def _names_arguments(self, value: Any) -> bool:
        """Whether a value is a dict of arguments by the names that the model has for them."""
        return isinstance(value, Mapping) and bool(value) and value.keys() <= set(self.plans[0].program.parameters)

    def _fitting(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Plan, list[Tensor]] | str:
        """The plan that can take a call; why the first cannot, where none can."""
        reasons = []
        for plan in self.plans:
            tensors, structure = call_leaves(*arranged(plan.program, args, kwargs))
            reason = misfit(plan.program, tensors, structure)
            if reason is None:
                return plan, tensors
            reasons.append(reason)
        return reasons[0]

    def _recaptured(self, args: Sequence[Any], kwargs: Mapping[str, Any], why: str) -> tuple[Plan, list[Tensor]]:
        try:
            plan = self._recapture[0](args, kwargs)
        except DataError as error:
            raise DataError(f"{why}, and {error}") from error
        if set(plan.sites) != set(self.sites):
            raise DataError(f"the call changes which neurons there are ({why}); convert with a batch of this form")
        return self.add_plan(plan), call_leaves(args, kwargs)[0]

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
        """Refuse tensors on another device or without values, and values that are not finite."""
        refuse_followers(tensors)
        if not tensors:
            raise DataError("called without a tensor; give one as the model takes (torch.from_numpy for an array)")
        for tensor in tensors:
            if tensor.device != (self.device or tensor.device):
                raise DataError(f"an input is on {tensor.device}, the network on {self.device}; move one with .to(...)")
        check_finite(tensors)

    def extra_repr(self) -> str:
        kinds = sorted({(neuron.num_levels, neuron.burst) for neuron in self.neurons.values()})
        neurons = ", ".join(f"n={n} burst={burst}" for n, burst in kinds)
        return f"{len(self.sites)} sites, {self.config.coding} coding, {neurons}, T={self.config.num_steps}"


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
    names = [field.name for field in dataclasses.fields(Neuron) if field.name not in ("lower", "upper")]
    return Neuron(**{name: getattr(own, name) for name in names}, lower=site.lower, upper=site.upper)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
