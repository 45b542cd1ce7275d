"""What whole networks and networks by region have in common: the same names, and the same form of answers."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from spikecast.batches import Binder, Call, InputFunction
from spikecast.config import Config
from spikecast.errors import DataError, ModelError
from spikecast.graph.execute.observer import Neurons, Observer
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Program
from spikecast.network.answers import at_step
from spikecast.network.anytime import Stop
from spikecast.network.plan import Site
from spikecast.network.report import Report
from spikecast.network.states import NeuronStates, Recorded
from spikecast.theory.modes import is_exporting, refuse_followers
from spikecast.theory.neuron import Neuron

if TYPE_CHECKING:
    from spikecast.hardware.twin.twin import Twin
    from spikecast.network.counting.tally import Tally
    from spikecast.network.spiking import SpikingNetwork

# The neurons of one run of a network: plain ones, or such as count or compare on the way.
StatesOf = Callable[["SpikingNetwork", Execution], NeuronStates]


class Network(nn.Module, ABC):
    """A model of spiking neurons. `net(x)` answers after all steps, `net.run(x)` after each."""

    report: Report

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.about: dict[str, Any] = {}  # whatever is worth knowing of it, as JSON data; saved along with it
        self.inputs: InputFunction | None = None  # picks the input out of a batch, as given to convert

    # -- what it is made of

    @property
    @abstractmethod
    def networks(self) -> Mapping[str, SpikingNetwork]:
        """The captured networks by name: those of its regions, or itself under an empty name."""

    @property
    @abstractmethod
    def batch_axis(self) -> int | None:
        """The axis of the first input that holds the samples; None where only the model's own Python knows."""

    @property
    def sites(self) -> Mapping[str, Site]:
        """All layers of neurons by name, in the order they run."""
        return {name: site for part in self.networks.values() for name, site in part.sites.items()}

    @property
    def neurons(self) -> Mapping[str, Neuron]:
        """What the neurons of each site share, besides their thresholds."""
        return {name: neuron for part in self.networks.values() for name, neuron in part.neurons.items()}

    @property
    def thresholds(self) -> dict[str, Tensor]:
        """Base threshold of each site, shaped to broadcast against one step of its input."""
        return {name: part.threshold(name) for part in self.networks.values() for name in part.sites}

    def slots(self, num_steps: int | None = None) -> list[int]:
        """Pulse slots up to and with each step: a step takes as long as the longest burst of its neurons may be.

        Args:
            num_steps: T; the network's own unless given.

        Example:
            >>> snn.slots()  # bursts of three
            [3, 6, 9, 12]
        """
        longest = max((neuron.burst for neuron in self.neurons.values()), default=1)
        return [longest * t for t in range(1, self.config.steps_or(num_steps) + 1)]

    def set_thresholds(self, thresholds: Mapping[str, Tensor]) -> None:
        """Give every site its base thresholds.

        Args:
            thresholds: A tensor for each site, as `thresholds` has them.

        Example:
            >>> snn.set_thresholds({site: 1.1 * theta for site, theta in snn.thresholds.items()})
        """
        for part in self.networks.values():
            part.set_thresholds({site: thresholds[site] for site in part.sites})

    @property
    def device(self) -> torch.device | None:
        """Where the network lies; None where it has neither weights nor neurons."""
        return next((b.device for b in self.buffers()), None)

    @abstractmethod
    def add_note(self, note: str) -> None:
        """Say something in the report that no row says."""

    @abstractmethod
    def binder(self, inputs: InputFunction | None = None) -> Binder:
        """Who knows which part of a batch the network takes; `inputs` unless it was given to convert."""

    # -- running

    @abstractmethod
    def run_with(self, call: Call, num_steps: int, states_of: StatesOf | None = None, **limits: Any) -> Any:
        """The answer after each step; `states_of` makes the neurons, where they are not the plain ones."""

    @abstractmethod
    def analog_with(self, call: Call, observer: Observer) -> Any:
        """One pass of the ANN; the observer sees what arrives at every site and says what goes on from there."""

    @abstractmethod
    def arriving(self, name: str, call: Call) -> tuple[Program, list[list[Tensor]]]:
        """A graph of a captured network, and the tensors that arrive at it at each step; one entry if they stay."""

    @abstractmethod
    def steps(self, *args: Any, num_steps: int | None = None, **kwargs: Any) -> Iterator[tuple[int, Any]]:
        """Yield (t, answer after step t), one step at a time; the numbers are those of `run`.

        Args:
            *args: What the model is called with.
            num_steps: T; the network's own unless given.
            **kwargs: What the model is called with, by name.

        Example:
            >>> [t for t, answer in snn.steps(x, num_steps=2)]
            [1, 2]
        """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns, after `config.num_steps` steps; torch.export can follow it (docs/hardware.md).

        Args:
            *args: What the model takes.
            **kwargs: The same, by name.

        Example:
            >>> torch.equal(snn(x), snn.run(x)[-1])
            True
        """
        refuse_followers(args)
        if is_exporting():
            self.whole("torch.export")
        return at_step(self.run_with((args, kwargs), self.config.num_steps), -1)

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
        """The answer after each step: every tensor of it with a leading time axis, or a list where shapes differ.

        Args:
            *args: What the model is called with.
            num_steps: T; the network's own unless given.
            time_axis: The axis on which floating-point inputs hold frames, as those of an event camera, one for each
                step; the network answers for the mean of the frames so far, which is what rate coding means.
            max_batch: How many samples times steps may lie in memory at once; the answer does not depend on it.
            max_memory: How much they may take besides the weights and the answer: "1GiB", or bytes.
            compile: True hands the graph between the neurons to torch.compile, which takes minutes at the first call
                of each input form.
            **kwargs: What the model is called with, by name.

        Example:
            >>> snn.run(x, num_steps=3, max_memory="1GiB").shape
            torch.Size([3, 2, 10])
        """
        given = {"max_batch": max_batch, "max_memory": max_memory, "compile": compile or None}
        limits: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if time_axis is not None:
            return self.run_frames((args, kwargs), time_axis, num_steps)
        return self.run_with((args, kwargs), self.config.steps_or(num_steps), **limits)

    def metered(self, call: Call, tally: Tally, time_axis: int | None = None) -> Any:
        """The answers of `run`; what was done is added to the tally."""
        from spikecast.network.counting.meter import metered_run

        return metered_run(self, call, tally, time_axis)

    @abstractmethod
    def run_frames(self, call: Call, time_axis: int, num_steps: int | None, states_of: StatesOf | None = None) -> Any:
        """The answer after each frame of inputs that change over time; `states_of` as for `run_with`."""

    def analog(self, *args: Any, **kwargs: Any) -> Any:
        """The answer with the neurons switched off: the ANN, through the captured graph.

        Args:
            *args: What the model takes.
            **kwargs: The same, by name.

        Example:
            >>> torch.allclose(snn.analog(x), model(x), atol=1e-5)
            True
        """
        return self.analog_with((args, kwargs), Neurons(self.exact))

    def exact(self, site: str, inputs: Tensor) -> Tensor:
        """What a site would send if it could send exactly: its input, kept in its interval."""
        return self.sites[site].exact(inputs)

    def anytime(
        self,
        *args: Any,
        confidence: float = 0.95,
        stop: Stop | None = None,
        num_steps: int | None = None,
        **kwargs: Any,
    ) -> tuple[Any, Tensor]:
        """The answer of each sample as soon as it is sure, and the steps it took.

        Args:
            *args: What the model is called with.
            confidence: The probability of the likeliest class from which on a sample is sure, if the step before
                said that class too; above 0, up to 1.
            stop: stop(previous, now) says which samples are sure instead, one bool for each; for answers that are no
                scores of classes.
            num_steps: The most steps; the network's own unless given.
            **kwargs: What the model is called with, by name.

        Example:
            >>> answer, used = snn.anytime(x, confidence=0.1)
            >>> used.tolist()
            [2, 2]
        """
        return self._anytime((args, kwargs), confidence, stop, self.config.steps_or(num_steps))

    @abstractmethod
    def _anytime(self, call: Call, confidence: float, stop: Stop | None, total: int) -> tuple[Any, Tensor]:
        """What `anytime` answers within so many steps."""

    @torch.no_grad()
    def record(
        self, *args: Any, sites: Sequence[str] | None = None, num_steps: int | None = None, **kwargs: Any
    ) -> dict[str, Recorded]:
        """What the neurons of a layer stood for and what they sent: `estimates` [T, ...], `levels` [T, burst, ...].

        Levels are signed and count from 1, the largest; 0 is no spike. Of a region that the model calls several times
        in a step, the first call is recorded.

        Args:
            *args: What the model is called with.
            sites: Names of layers, as in `snn.sites`; all unless given.
            num_steps: T; the network's own unless given.
            **kwargs: What the model is called with, by name.

        Example:
            >>> site, recorded = next(iter(snn.record(x).items()))
            >>> recorded.levels.shape[:2]  # steps, burst
            torch.Size([4, 3])
        """
        wanted = list(self.sites) if sites is None else list(sites)
        for name in wanted:
            if name not in self.sites:
                raise DataError(f"no site is called {name!r}; sites are {', '.join(list(self.sites)[:6])}, …")
        return self._record((args, kwargs), wanted, self.config.steps_or(num_steps))

    @abstractmethod
    def _record(self, call: Call, wanted: Sequence[str], total: int) -> dict[str, Recorded]:
        """What `record` answers, for sites that exist."""

    # -- other views of it

    @abstractmethod
    def with_config(self, config: Config) -> Network:
        """The same graph and weights with neurons of other settings, which lack their thresholds."""

    def reconfigure(self, config: Config, batches: Iterable[Any]) -> Self:
        """This network with other levels, bursts, thresholds or another goal; the model is not captured again.

        The network itself stays as it is. Neurons stay where they are.

        Args:
            config: The settings; `encode_input`, and which sites are left analog, must be as they were.
            batches: Typical inputs, as for `convert`.

        Example:
            >>> snn.reconfigure(Config(num_steps=8, burst=1), batches).run(x).shape
            torch.Size([8, 2, 10])
        """
        from spikecast.conversion.pipeline import reconfigured

        return reconfigured(self, batches, config)

    @abstractmethod
    def whole(self, purpose: str) -> SpikingNetwork:
        """The network, if it was captured whole; a refusal that names the purpose where it was converted by region."""

    def twin(self, dtype: torch.dtype | None = None) -> Twin:
        """The same network in the spike view: signals on every wire, step by step, as hardware would run it.

        Args:
            dtype: As for `hardware.twin`.

        Example:
            >>> sorted(snn.twin().trace(x).levels) == sorted(snn.sites)
            True
        """
        from spikecast.hardware.twin.twin import Twin

        return Twin(self.whole("a twin"), dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__dict__ = copy.deepcopy(self.__dict__, memo)
        return made

    def __copy__(self) -> Self:
        raise ModelError("a copy that shares its neurons with the network is none: use copy.deepcopy(snn)")

    def __prepare_scriptable__(self) -> Self:
        raise ModelError(
            "torch.jit.script cannot read a network: take torch.export.export(snn, ...), or snn.save(path)"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ModelError("a network is not pickled: use snn.save(path) and spikecast.load(path), which run no code")

    def save(self, path: str | Path) -> None:
        """Write the network to one file that `spikecast.load` reads: safetensors and JSON, no pickle.

        Args:
            path: The file; an older one of that name is replaced when the new one is whole.

        Example:
            >>> snn.save("net.spikecast")
            >>> torch.equal(spikecast.load("net.spikecast")(x), snn(x))
            True
        """
        from spikecast.storage.artifact import save

        save(self, path)
