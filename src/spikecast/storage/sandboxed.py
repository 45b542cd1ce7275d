"""A network that lives in a sandbox: it answers like any other, and shows no graph and no weights."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec
import torch
from torch import Tensor

from spikecast.batches import Binder, Call, InputFunction
from spikecast.config import Config
from spikecast.errors import ArtifactError, ConfigError, ModelError
from spikecast.graph.program import Program
from spikecast.network.answers import at_step
from spikecast.network.anytime import Stop, anytime_together
from spikecast.network.base import Network, StatesOf
from spikecast.network.counting.tally import Tally
from spikecast.network.states import Recorded
from spikecast.storage import codec
from spikecast.storage.artifact import neurons_of, site_of
from spikecast.storage.files import blaming, file_start
from spikecast.storage.messages import Hello
from spikecast.storage.sandbox import Process, Sandbox

_CPU = torch.device("cpu")


class SandboxedNetwork(Network):
    """A saved network that is loaded and run in a process of its own, under limits; on the CPU.

    It runs, is measured and reports. What needs its graph or its weights it refuses: `save`, `twin`, `to`, exports.
    """

    def __init__(self, path: str | os.PathLike[str], limits: Sandbox) -> None:
        process = Process(os.path.abspath(path), limits)
        hello = process.start()
        with blaming(f"{path} cannot be loaded", "do not trust it", Exception):
            super().__init__(Config.from_json(hello.config))
            self._process, self.about, self.report = process, hello.about, hello.report
            self._batch_axis, self._captured = hello.batch_axis, _captured(hello)
            self._like = None if hello.dtype is None else torch.empty(0, dtype=codec.DTYPES[hello.dtype])
            self._sites = {name: site_of(name, site) for name, site in hello.sites.items()}
            self._neurons = neurons_of(hello.neurons, self._sites)
            self._thresholds: dict[str, Tensor] = process.shared.unpack(hello.thresholds)
            self.binder()
        self.eval()

    # -- what it is made of

    @property
    def networks(self) -> NoReturn:
        self._refuse("shows no graph and no weights")

    @property
    def batch_axis(self) -> int:
        return self._batch_axis

    @property
    def sites(self) -> Mapping[str, Any]:
        return self._sites

    @property
    def neurons(self) -> Mapping[str, Any]:
        return self._neurons

    @property
    def thresholds(self) -> dict[str, Tensor]:
        return dict(self._thresholds)

    @property
    def device(self) -> torch.device:
        return _CPU

    def add_note(self, note: str) -> None:
        self._refuse("takes no notes")

    def binder(self, inputs: InputFunction | None = None) -> Binder:
        return Binder.of_call(self._captured, self._like, inputs or self.inputs)

    # -- running

    def run_with(self, call: Call, num_steps: int, states_of: StatesOf | None = None, **limits: Any) -> Any:
        return self._ask("run_with", call, states_of, num_steps=num_steps, **limits)

    def run_frames(self, call: Call, time_axis: int, num_steps: int | None, states_of: StatesOf | None = None) -> Any:
        return self._ask("run_frames", call, states_of, time_axis=time_axis, num_steps=num_steps)

    def metered(self, call: Call, tally: Tally, time_axis: int | None = None) -> Any:
        settings = {"num_steps": tally.num_steps, "time_axis": time_axis}
        answer, found = self._process.ask("metered", call, settings)
        steps = [len(numbers) for line in found.lines.values() for numbers in line.columns.values()] if found else [0]
        if any(number != tally.num_steps for number in steps):
            raise ArtifactError(f"{self._process.path} counts for another number of steps; do not trust it")
        tally.merge(found)
        return answer

    def analog(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("analog", (args, kwargs), None)

    def steps(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Iterator[tuple[int, Any]]:
        """Yield (t, answer after step t); the sandbox computes all steps first."""
        total = self.config.steps_or(num_steps)
        answers = self.run_with((args, kwargs), total)
        yield from ((t, at_step(answers, t - 1)) for t in range(1, total + 1))

    def _anytime(self, call: Call, confidence: float, stop: Stop | None, total: int) -> tuple[Any, Tensor]:
        if stop is not None:  # a function of the caller's stays with the caller
            return anytime_together(self, call, confidence, stop, total)
        answer, used = self._ask("anytime", call, None, confidence=confidence, num_steps=total)
        return answer, used

    def _record(self, call: Call, wanted: Sequence[str], total: int) -> dict[str, Recorded]:
        found = self._ask("record", call, None, sites=list(wanted), num_steps=total)
        return {name: Recorded(*found[name]) for name in wanted}

    def _ask(self, what: str, call: Call, states_of: StatesOf | None, **settings: Any) -> Any:
        if states_of is not None:
            self._refuse("lets nobody look on at a run")
        return self._process.ask(what, call, settings)[0]

    # -- what only a network that is trusted can do

    def analog_with(self, call: Call, observer: Any) -> NoReturn:
        self._refuse("lets nobody look on at a run")

    def arriving(self, name: str, call: Call) -> NoReturn:
        self._refuse("shows no graph")

    def with_config(self, config: Config) -> NoReturn:
        self._refuse("cannot be calibrated anew")

    def whole(self, purpose: str) -> NoReturn:
        self._refuse(f"shows no graph, which {purpose} needs")

    def save(self, path: Any) -> NoReturn:
        self._refuse("cannot be saved: copy its file")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> NoReturn:
        self._refuse("stays on the CPU, in the type it has")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self._refuse("cannot be copied")

    def _refuse(self, what: str) -> NoReturn:
        raise ModelError(f"a network in a sandbox {what}; load it without the sandbox if you trust the file")

    def extra_repr(self) -> str:
        limits = self._process.limits
        return f"{self._process.path} in a sandbox of {limits.memory}, {limits.seconds:g} s a call"


def in_sandbox(path: str | os.PathLike[str], model: Any, device: Any, limits: bool | Sandbox) -> SandboxedNetwork:
    """A file's network in a sandbox."""
    if model is not None:
        raise ConfigError("sandbox with model=: a network by region runs the model's own Python, here; leave one out")
    if device is not None and torch.device(device) != _CPU:
        raise ConfigError(f"sandbox with device={device!r}: a sandbox computes on the CPU; leave one out")
    if not isinstance(limits, bool | Sandbox):
        raise ConfigError(f"sandbox={limits!r} must be True, or spikecast.Sandbox(memory=..., seconds=...)")
    if sys.platform == "win32":
        raise ConfigError("sandbox: Windows has no limits that a process can set itself; use a container, or Linux")
    file_start(path, "the file that snn.save wrote")
    return SandboxedNetwork(path, limits if isinstance(limits, Sandbox) else Sandbox())


def _captured(hello: Hello) -> Program:
    """As much of the graph as is needed to bind a batch: how the network was called."""
    constants = [*codec.decode_all(hello.constants, _CPU)]
    structure = {"kind": "call", "form": msgspec.to_builtins(hello.call), "constants": constants}
    return Program((), (), (), {}, structure, {"kind": "leaf"}, parameters=hello.parameters)
