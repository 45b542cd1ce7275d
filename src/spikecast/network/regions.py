"""Models whose forward cannot be captured whole: named submodules become spiking, the Python around them stays.

The original forward runs once per time-step. Each region advances one step whenever it is called, with a state of its
own for each call site (its first call in a step, its second, ...).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from spikecast.batches import Binder, Call, InputFunction, calls
from spikecast.config import Config
from spikecast.conversion.calibrate import Calibration
from spikecast.conversion.prepare import Part, prepare
from spikecast.conversion.search import Search
from spikecast.conversion.shared import same_everywhere, shared_out
from spikecast.errors import DataError, ModelError
from spikecast.graph.execute.run import Execution, NeuronFunction, Watch
from spikecast.graph.structure import unflatten
from spikecast.network.plan import Plan
from spikecast.network.report import Report
from spikecast.network.spiking import SpikingNetwork, checked_steps
from spikecast.network.states import NeuronStates


class Region(nn.Module):
    """Stands in for a submodule: the ANN, the ANN under observation, or one spiking step, as the mode says."""

    def __init__(
        self, name: str, original: nn.Module, config: Config, captured: list[str], *, strict: bool = False
    ) -> None:
        super().__init__()
        self.name, self.config, self.strict = name, config, strict
        self.captured = captured  # regions in the order they are first called, shared by all of them
        self.original = (original,)  # in a tuple: the caller's module, not a part of us
        self.network: SpikingNetwork | None = None
        self.calibration: Calibration | None = None
        self.spiking = False
        self.t = 1
        self.call = 0  # how often the region has been called in this step
        self.states: dict[int, NeuronStates] = {}
        self.executions: dict[int, Execution] = {}
        self.meter: Callable[[Region, Execution], NeuronStates] | None = None  # makes neurons that count, if asked to
        self.heard: list[list[Tensor]] | None = None  # tensors of each call, while somebody listens

    @property
    def order(self) -> int:
        """Its place among the regions by first call; behind all others if it was never called."""
        return self.captured.index(self.name) if self.name in self.captured else len(self.captured)

    def begin(self, t: int) -> None:
        """A new step; t = 1 forgets the run before."""
        self.t, self.call = t, 0
        if t == 1:
            self.states = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.network is None:
            call = (args, kwargs)
            first = not self.captured  # only the first may read the model's own input as it is
            self.network = prepare(
                self.original[0], call, self.config, strict=self.strict, prefix=self.name, raw_inputs=first
            )
            self.captured.append(self.name)
        planned, tensors = self.network.prepare_call(args, kwargs)
        if self.heard is not None:
            self.heard.append(tensors)
        execution = self._execution(planned)
        execution.watch = None
        neurons = self._neurons(execution)
        execution.start(tensors)
        return unflatten(planned.program.output_structure, execution.advance(neurons))

    def _neurons(self, execution: Execution) -> NeuronFunction:
        assert self.network is not None
        index, self.call = self.call, self.call + 1
        if self.calibration is not None:
            return self.calibration
        if not self.spiking:
            return self.network.pass_through
        if index not in self.states:
            if self.t > 1:
                raise DataError(
                    f"region {self.name!r} is called more often in step {self.t} than in step 1; "
                    "take a region that is called equally often in each"
                )
            self.states[index] = NeuronStates(self.network) if self.meter is None else self.meter(self, execution)
        states = self.states[index]
        states.t = self.t
        if self.meter is not None:
            execution.watch = cast(Watch, states)
        return _Guarded(self.name, states)

    def _execution(self, planned: Plan) -> Execution:
        assert self.network is not None
        if id(planned) not in self.executions:
            self.executions[id(planned)] = self.network.execution(planned.program, moving_inputs=True)
        return self.executions[id(planned)]

    def _apply(self, fn: Any, recurse: bool = True) -> Region:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.executions = {}  # they hold the tensors of the former device
        return self


class _Guarded:
    """A region's neurons, which must see the same shapes at every step."""

    def __init__(self, region: str, states: NeuronStates) -> None:
        self.region, self.states = region, states

    def __call__(self, site: str, steps: Tensor) -> Tensor:
        held = self.states.estimates.get(site)
        if held is not None and held.shape != steps.shape[1:]:
            raise DataError(
                f"region {self.region!r}: the input of {site!r} has shape {tuple(steps.shape[1:])} at step "
                f"{self.states.t} and {tuple(held.shape)} before; take a region of fixed shapes"
            )
        return self.states(site, steps)


class RegionNetwork(nn.Module):
    """A model with spiking regions. `run` returns the list of its answers after each step."""

    def __init__(self, model: nn.Module, regions: Mapping[str, Region], config: Config) -> None:
        super().__init__()
        self.config = config
        self.notes: list[str] = []
        self.about: dict[str, Any] = {}  # whatever is worth knowing of it, as JSON data; saved along with it
        self.regions = nn.ModuleDict({_key(name): region for name, region in regions.items()})
        self.model = shadow(model, regions)
        self.eval()

    def __iter__(self) -> Iterator[Region]:
        return (cast(Region, region) for region in self.regions.values())

    @property
    def networks(self) -> dict[str, SpikingNetwork]:
        """The spiking network of each region that has been called."""
        return {region.name: region.network for region in self if region.network is not None}

    @property
    def thresholds(self) -> dict[str, Tensor]:
        """Base threshold of each site of all regions."""
        return {name: theta for network in self.networks.values() for name, theta in network.thresholds.items()}

    def set_thresholds(self, thresholds: Mapping[str, Tensor]) -> None:
        """Give every site of all regions its base thresholds."""
        for part in self.networks.values():
            part.set_thresholds({site: thresholds[site] for site in part.sites})

    @property
    def report(self) -> Report:
        """What became of the ops inside the regions."""
        reports = {name: network.report for name, network in self.networks.items()}
        outside = "outside of the regions the original Python runs once per step"
        notes = [
            outside,
            *self.notes,
            *(f"{name}: {note}" for name, r in reports.items() for note in r.notes if "one step" not in note),
        ]
        rows = tuple(row for r in reports.values() for row in r.rows)
        return Report(rows, sum(r.num_sites for r in reports.values()), False, tuple(notes))

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns, after `config.num_steps` steps."""
        return self.run(*args, **kwargs)[-1]

    @torch.no_grad()
    def run(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> list[Any]:
        """The answers after each step."""
        return [answer for _, answer in self.steps(*args, num_steps=num_steps, **kwargs)]

    @torch.no_grad()
    def steps(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Iterator[tuple[int, Any]]:
        """Yield (t, answer after step t)."""
        total = checked_steps(self.config.num_steps if num_steps is None else num_steps)
        for t in range(1, total + 1):
            self._begin(t, spiking=True)
            yield t, self.model(*copy.copy(args), **kwargs)

    @torch.no_grad()
    def analog(self, *args: Any, **kwargs: Any) -> Any:
        """The answer with the neurons switched off."""
        self._begin(1, spiking=False)
        return self.model(*args, **kwargs)

    def _begin(self, t: int, *, spiking: bool, calibrations: Mapping[str, Calibration] | None = None) -> None:
        for region in self:
            region.spiking = spiking
            region.calibration = None if calibrations is None else calibrations.get(region.name)
            region.begin(t)

    @torch.no_grad()
    def observe(self, call: Call, calibrations: Mapping[str, Calibration]) -> None:
        """Let the ANN's activations of one batch pass the observers."""
        self._begin(1, spiking=False, calibrations=calibrations)
        self.model(*call[0], **call[1])
        self._begin(1, spiking=False)

    @torch.no_grad()
    def search(self, call: Call, thresholds: dict[str, Tensor], wanted: set[str]) -> None:
        """Refine thresholds region by region, on the inputs that the regions before it really make."""
        for region in sorted(self, key=lambda region: region.order):
            network = region.network
            if network is None or not wanted & set(network.sites):
                continue
            heard = self._listen(region, call)
            planned = network.plan
            search = Search(network.sites, network.neurons, network.config, thresholds, wanted & set(network.sites))
            if not network.foldable or any(
                t.shape != h.shape for step in heard for t, h in zip(step, heard[0], strict=True)
            ):
                network.add_note("thresholds were not searched: its batch cannot hold the steps")
                continue
            execution = network.execution(planned.program, moving_inputs=True)
            axes = [spec.meta.batch_axis for spec in planned.program.inputs]
            inputs = zip(axes, zip(*heard, strict=True), strict=True)
            execution.start([parts[0] if axis is None else torch.cat(parts, axis) for axis, parts in inputs])
            execution.advance(search, len(heard), folded_inputs=True)
            network.set_thresholds({name: search.thresholds[name] for name in network.sites})

    def _listen(self, region: Region, call: Call) -> list[list[Tensor]]:
        """The tensors of a region's first call in each step."""
        found: list[list[Tensor]] = []
        for t in range(1, self.config.num_steps + 1):
            self._begin(t, spiking=True)
            region.heard = []
            self.model(*call[0], **call[1])
            found.append(region.heard[0])
        region.heard = None
        return found

    def save(self, path: str | Path) -> None:
        """Write the regions to one file; `spikecast.load(path, model=...)` puts them back into the model."""
        from spikecast.storage.artifact import save_regions

        save_regions(self, path)

    def extra_repr(self) -> str:
        return f"regions {', '.join(region.name for region in self)}; T={self.config.num_steps}"


def convert_regions(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config,
    names: Sequence[str],
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
) -> RegionNetwork:
    """Convert the named submodules of a model."""
    order: list[str] = []
    parts = {name: submodule(model, name) for name in _checked_names(names)}
    for a, b in permutations(parts, 2):
        if parts[a] in parts[b].modules():
            raise ModelError(f"regions {a!r} and {b!r} share a module; name each part once")
    regions = {name: Region(name, part, config, order, strict=strict) for name, part in parts.items()}
    network = RegionNetwork(model, regions, config)
    calibrations: dict[str, Calibration] = {}
    first: Call | None = None
    binder = Binder(model, inputs)
    several: list[Calibration] = []
    for call, is_ours in shared_out(calls(batches, binder), several):
        if first is None:
            first = call
            network.analog(*call[0], **call[1])  # captures the regions
            for name in names:
                if name not in network.networks:
                    raise ModelError(f"region {name!r} is never called by {type(model).__name__}.forward; name another")
            calibrations = {name: Calibration(part.sites, config) for name, part in network.networks.items()}
            several += calibrations.values()
        if is_ours:
            network.observe(call, calibrations)
    thresholds = {site: theta for c in calibrations.values() for site, theta in c.thresholds().items()}
    network.set_thresholds(thresholds)
    if binder.dropped:
        network.notes.append(binder.dropped_note)
    wanted = {site for c in calibrations.values() for site in c.wants_search}
    if wanted and first is not None:
        network.search(first, thresholds, wanted)
    same_everywhere(thresholds)
    network.set_thresholds(thresholds)
    return network


def regions_of(
    model: nn.Module, networks: Mapping[str, SpikingNetwork], config: Config, about: dict[str, Any]
) -> RegionNetwork:
    """The network of a model whose regions, in the order they are called, have been converted before."""
    order = _checked_names(list(networks))
    parts = {name: submodule(model, name) for name in order}
    regions = {name: Region(name, part, config, order) for name, part in parts.items()}
    for name, region in regions.items():
        network = networks[name]
        axis = next((i.meta.batch_axis for i in network.plan.program.inputs), None) or 0
        network.allow_recapture(Part(parts[name], config, name, name == order[0]).recapture(axis))
        region.network = network
    whole = RegionNetwork(model, regions, config)
    whole.about = about
    return whole


def submodule(model: nn.Module, name: str) -> nn.Module:
    """A submodule by its path, or an error that lists what there is."""
    try:
        return model.get_submodule(name)
    except AttributeError:
        known = ", ".join(n for n, _ in model.named_children())
        raise ModelError(f"{type(model).__name__} has no submodule {name!r}; it has {known}") from None


def _checked_names(names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not names or not all(names):
        raise ModelError(f"regions={names!r} must be a list of submodule names, such as ['backbone', 'head']")
    for a, b in permutations(names, 2):
        if a == b or b.startswith(f"{a}."):
            raise ModelError(f"regions {a!r} and {b!r} overlap; name each part once")
    return list(names)


def shadow(model: nn.Module, regions: Mapping[str, Region]) -> nn.Module:
    """A copy of the model with regions in place of the submodules; the caller's model is left as it is."""
    memo: dict[int, Any] = {id(submodule(model, name)): region for name, region in regions.items()}
    return copy.deepcopy(model, memo)


def _key(name: str) -> str:
    return name.replace(".", "/")
