"""A model whose forward cannot be captured whole: named submodules are spiking, the Python around them stays.

The original forward runs once per time-step. Each region advances one step whenever it is called, with a state of its
own for each call site (its first call in a step, its second, ...).
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.batches import Binder, Call, InputFunction
from spikecast.config import Config
from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.graph.calls import cloned
from spikecast.graph.execute.observer import Observer
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Program
from spikecast.graph.structure import unflatten
from spikecast.graph.turns import computing
from spikecast.network.answers import with_time
from spikecast.network.anytime import Stop, anytime_together
from spikecast.network.base import Network, StatesOf
from spikecast.network.report import Report
from spikecast.network.spiking import SpikingNetwork
from spikecast.network.states import NeuronStates, Recorded

OUTSIDE = "outside of the regions, run as in the ANN, and their energy is counted on neither side"
WEIGHTED = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase)
FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
# What a region does when it is called: (region, its graph, the number of the call in this step) -> run and observer.
Part = Callable[["Region", Program, int], tuple[Execution, Observer]]


class _Pass:
    """One run of the model's forward: what its regions do, how often each was called, what one of them heard first."""

    def __init__(self, part: Part, listened: str | None = None) -> None:
        self.part, self.listened = part, listened
        self.calls: Counter[str] = Counter()
        self.heard: list[Tensor] = []
        self.outside: set[str] = set()  # modules with weights that ran outside of all regions


_now: ContextVar[_Pass | None] = ContextVar("pass", default=None)  # of this thread: others may run the same network


def _note_outside(name: str, *_: Any) -> None:
    """A hook of the copy's modules that are in no region."""
    if (now := _now.get()) is not None:
        now.outside.add(name)


class Region(nn.Module):
    """Stands in for a submodule of the model."""

    def __init__(self, name: str, network: SpikingNetwork) -> None:
        super().__init__()
        self.name, self.network = name, network

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        now = _now.get()
        if now is None:
            raise ModelError(f"region {self.name!r} runs as a part of its network only; call the network")
        plan, tensors = self.network.prepare_call(args, kwargs)
        index = now.calls[self.name]
        now.calls[self.name] += 1
        if self.name == now.listened and index == 0:
            now.heard = tensors
        execution, observer = now.part(self, plan.program, index)
        execution.start(tensors, observer)
        return unflatten(plan.program.output_structure, execution.advance(observer))


class _Spiking:
    """The neurons of all regions over the steps of one run."""

    def __init__(self, states_of: StatesOf | None = None) -> None:
        self.states_of = states_of
        self.t = 1
        self.taken: dict[tuple[str, int], tuple[Execution, NeuronStates]] = {}

    def __call__(self, region: Region, program: Program, index: int) -> tuple[Execution, Observer]:
        key = (region.name, index)
        if key not in self.taken:
            if self.t > 1:
                raise DataError(
                    f"region {region.name!r} is called more often in step {self.t} than in step 1; "
                    "take a region that is called equally often in each"
                )
            execution = region.network.execution(program, moving_inputs=True)
            states = self.states_of(region.network, execution) if self.states_of else NeuronStates(region.network)
            self.taken[key] = execution, states
        execution, states = self.taken[key]
        if execution.program is not program:  # another graph of the same region
            execution = region.network.execution(program, moving_inputs=True)
        states.t = self.t
        return execution, states


class RegionNetwork(Network):
    """A model with spiking regions."""

    def __init__(self, model: nn.Module, networks: Mapping[str, SpikingNetwork], config: Config) -> None:
        """`networks` are in the order in which the model calls its regions."""
        super().__init__(config)
        self.notes: list[str] = []
        self._regions = {name: Region(name, network) for name, network in networks.items()}
        self.regions = nn.ModuleDict({name.replace(".", "/"): region for name, region in self._regions.items()})
        self.model = shadow(model, self._regions)
        self.outside: set[str] = set()  # modules with weights that the ANN's forward ran outside of all regions
        self._watch_outside()
        self.eval()

    def _watch_outside(self) -> None:
        """Have the copy's linear layers and the like that are in no region say when they run.

        Those of torch's own attention are left alone: it takes another way where its parts have hooks.
        """
        fused = [f"{name}." for name, module in self.model.named_modules() if isinstance(module, FUSED)]
        inside = tuple(f"{name}." for name in self._regions)
        for name, module in self.model.named_modules():
            hooks = module._forward_pre_hooks.values()
            is_watched = any(getattr(hook, "func", None) is _note_outside for hook in hooks)  # copied along
            if isinstance(module, WEIGHTED) and not is_watched and not f"{name}.".startswith((*inside, *fused)):
                module.register_forward_pre_hook(partial(_note_outside, name))

    def with_config(self, config: Config) -> RegionNetwork:
        made = RegionNetwork(self.model, {n: part.with_config(config) for n, part in self.networks.items()}, config)
        made.about, made.inputs, made.notes = dict(self.about), self.inputs, list(self.notes)
        made.outside = set(self.outside)
        return made

    @property
    def networks(self) -> Mapping[str, SpikingNetwork]:
        return {name: region.network for name, region in self._regions.items()}

    @property
    def batch_axis(self) -> None:
        return None

    @property
    def report(self) -> Report:  # type: ignore[override]
        """What became of the ops inside the regions."""
        reports = {name: network.report for name, network in self.networks.items()}
        notes = [
            "outside of the regions the original Python runs once per step",
            *self.notes,
            *([f"{', '.join(sorted(self.outside))}: {OUTSIDE}"] if self.outside else []),
            *(f"{name}: {note}" for name, r in reports.items() for note in r.notes if "one step" not in note),
        ]
        rows = tuple(row for r in reports.values() for row in r.rows)
        prices = {site: price for r in reports.values() for site, price in r.prices.items()}
        calibrated = next((r.calibrated for r in reports.values()), None)
        return Report(rows, sum(r.num_sites for r in reports.values()), False, tuple(notes), prices, calibrated)

    def add_note(self, note: str) -> None:
        self.notes.append(note)

    def binder(self, inputs: InputFunction | None = None) -> Binder:
        return Binder.of_model(self.model, inputs or self.inputs)

    # -- running

    @torch.no_grad()
    def run_with(self, call: Call, num_steps: int, states_of: StatesOf | None = None, **limits: Any) -> Any:
        if limits:
            raise ConfigError(f"{', '.join(limits)}: a network by region runs one step at a time; leave it out")
        return with_time([answer for _, answer in self._steps(call, num_steps, _Spiking(states_of))])

    def run_frames(self, call: Call, time_axis: int, num_steps: int | None, states_of: StatesOf | None = None) -> Any:
        raise ConfigError("time_axis: a network by region takes inputs that stay the same; convert the model whole")

    @torch.no_grad()
    def steps(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Iterator[tuple[int, Any]]:
        yield from self._steps((args, kwargs), self.config.steps_or(num_steps), _Spiking())

    def _steps(self, call: Call, total: int, spiking: _Spiking) -> Iterator[tuple[int, Any]]:
        for t in range(1, total + 1):
            spiking.t = t
            now = _Pass(spiking)
            answer = self._pass(call, now)
            self._note(now.outside)
            yield t, answer

    @torch.no_grad()
    def analog_with(self, call: Call, observer: Observer) -> Any:
        def part(region: Region, program: Program, index: int) -> tuple[Execution, Observer]:
            return region.network.execution(program, moving_inputs=True), observer

        now = _Pass(part)
        answer = self._pass(call, now)
        self._note(now.outside)
        return answer

    def _note(self, ran: set[str]) -> None:
        """Modules that ran outside of the regions. What no batch had that was converted with is warned of, once."""
        if (news := ran - self.outside) and self.report.calibrated is not None:
            names = ", ".join(sorted(news))
            remedy = "convert with batches that run them, or name them in regions="
            warnings.warn(f"{names}: {OUTSIDE}; {remedy}", UserWarning, stacklevel=2)
        self.outside |= ran

    @computing()
    def _pass(self, call: Call, now: _Pass) -> Any:
        """One run of the model's forward."""
        before = _now.set(now)
        try:
            args, kwargs = cloned(call)
            return self.model(*args, **kwargs)
        finally:
            _now.reset(before)

    @torch.no_grad()
    def arriving(self, name: str, call: Call) -> tuple[Program, list[list[Tensor]]]:
        """Of a region that is called several times in a step, at the first call."""
        spiking, heard = _Spiking(), []
        for spiking.t in range(1, self.config.num_steps + 1):
            self._pass(call, now := _Pass(spiking, name))
            heard.append(now.heard)
        return self.networks[name].plan.program, heard

    def _anytime(self, call: Call, confidence: float, stop: Stop | None, total: int) -> tuple[Any, Tensor]:
        return anytime_together(self, call, confidence, stop, total)

    def _record(self, call: Call, wanted: Sequence[str], total: int) -> dict[str, Recorded]:
        spiking = _Spiking(lambda network, _: NeuronStates(network, [s for s in wanted if s in network.sites]))
        steps = []
        for _ in self._steps(call, total, spiking):
            first = [states.recorded for (_, index), (_, states) in spiking.taken.items() if index == 0]
            steps.append({site: item for recorded in first for site, item in recorded.items()})
        return Recorded.in_time(steps)

    def whole(self, purpose: str) -> SpikingNetwork:
        one = next(iter(self.networks))
        raise ModelError(
            f"{purpose} needs a network that was converted whole; take a region's, as snn.networks[{one!r}]"
        )

    def extra_repr(self) -> str:
        return f"regions {', '.join(self.networks)}; T={self.config.num_steps}"


def submodule(model: nn.Module, name: str) -> nn.Module:
    """A submodule by its path, or an error that lists what there is."""
    try:
        return model.get_submodule(name)
    except AttributeError:
        known = ", ".join(n for n, _ in model.named_children())
        raise ModelError(f"{type(model).__name__} has no submodule {name!r}; it has {known}") from None


def shadow(model: nn.Module, regions: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of the model with others in place of some submodules; the caller's model is left as it is."""
    memo: dict[int, Any] = {id(submodule(model, name)): region for name, region in regions.items()}
    return copy.deepcopy(model, memo)
