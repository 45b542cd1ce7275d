"""convert(): capture, plan, calibrate, insert neurons."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import torch
from torch import Tensor, nn

from spikecast.batches import Binder, Call, InputFunction, calls, first_samples, joined, samples_in
from spikecast.config import Config
from spikecast.conversion.accepted import accepted, own_modes
from spikecast.conversion.allocate import MEASURED, allocate
from spikecast.conversion.calibrate import Calibration
from spikecast.conversion.find_regions import find_regions
from spikecast.conversion.prepare import prepare
from spikecast.conversion.regions import allow_recapture, prepare_regions
from spikecast.conversion.search import SAMPLES, search_thresholds
from spikecast.conversion.sensitivity import Answer
from spikecast.conversion.shared import same_everywhere, same_neurons, shared_out
from spikecast.errors import ConfigError, enough_memory
from spikecast.graph.turns import capturing
from spikecast.network.base import Network
from spikecast.network.regions import RegionNetwork
from spikecast.network.spiking import SpikingNetwork
from spikecast.progress import Listener, counted, length, tell, telling

if TYPE_CHECKING:
    from spikecast.storage.sandbox import Sandbox

NO_NEURONS = (
    "no neuron was put in, so nothing spikes, and no energy is saved but by costs that charge the input as spikes; "
    "Config(encode_input=True) sends the input as spikes"
)
FilePath = str | os.PathLike[str]
Device = str | torch.device | None


@overload
def convert(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: None = None,
    progress: bool | Listener = False,
) -> SpikingNetwork: ...


@overload
def convert(  # type: ignore[overload-overlap]  # "auto" is a sequence of letters too
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: Literal["auto"],
    progress: bool | Listener = False,
) -> Network: ...


@overload
def convert(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: Sequence[str],
    progress: bool | Listener = False,
) -> RegionNetwork: ...


def convert(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: Sequence[str] | None = None,
    progress: bool | Listener = False,
) -> Network:
    """Turn a model into a spiking network.

    The model itself is not changed. Of one in torch.compile, DataParallel, DistributedDataParallel or FSDP the model
    inside is taken, with its names. Processes that torchrun started share the batches among them: each gives the same
    batches and gets the same network.

    Args:
        model: Any module in eval mode that torch.export can follow.
        batches: Typical inputs, from which the thresholds are found: a DataLoader, or a list of tensors, of
            (input, label), of tuples, of dicts by argument name. A hundred samples do.
        config: The settings; one time-step with bursts of three spikes unless given.
        inputs: Picks the model's input out of a batch that is none of these.
        strict: True refuses ops that are not known, and weighted ops that would not be fed by spikes.
        regions: Names of submodules to convert, for a model whose forward cannot be followed whole; "auto" finds them.
        progress: True shows a bar on stderr. A function is called with (stage, done, total), in the first process only.

    Returns:
        The network; `print(network.report)` says what became of every op.

    Raises:
        SpikecastError: The model cannot be followed, or a batch or a setting does not fit; the message says what to do.

    Example:
        >>> snn = spikecast.convert(model, batches, Config(num_steps=4))
        >>> snn(x).shape, snn.run(x).shape
        (torch.Size([2, 10]), torch.Size([4, 2, 10]))
    """
    config = Config() if config is None else config
    if not isinstance(config, Config):
        raise ConfigError(f"config is a {type(config).__name__}; give a spikecast.Config, or Config.from_json(...)")
    model = accepted(model)
    binder = Binder.of_model(model, inputs)
    with own_modes(), telling(progress), enough_memory():
        bound = calls(batches, binder)
        first = next(bound)
        network: Network
        tell("capture", 0, 1)
        with capturing():
            if regions is None:
                network = prepare(model, first, config, strict=strict)
            elif regions == "auto":
                network = find_regions(model, first, config, strict=strict)
            else:
                network = prepare_regions(model, first, config, regions, strict=strict)
        tell("capture", 1, 1)
        calibrate(network, counted(chain([first], bound), "calibrate", _length(batches)), binder)
    network.inputs = inputs
    if binder.dropped:
        network.add_note(binder.dropped_note)
    if not network.sites:
        network.add_note(NO_NEURONS)
    _warn_of_saving(network)
    return network


def _warn_of_saving(network: Network) -> None:
    """Say now, not after hours of measuring, that a network cannot be saved."""
    from spikecast.storage.artifact import why_not_savable  # and msgspec with it

    reason = why_not_savable(network)
    if reason is not None:
        note = f"this network runs, but save() will refuse it: {reason}"
        network.add_note(note)
        warnings.warn(note, UserWarning, stacklevel=3)


NetworkType = TypeVar("NetworkType", bound=Network)


@own_modes()
def reconfigured(network: NetworkType, batches: Iterable[Any], config: Config) -> NetworkType:
    """A network with other settings, whose thresholds are found anew; the graph is not captured again."""
    if not config.plans_like(network.config):
        raise ConfigError(
            "reconfigure keeps neurons where they are, but encode_input or the sites that stay analog differ; "
            "convert the model again"
        )
    binder = network.binder()
    made = network.with_config(config)
    calibrate(made, counted(calls(batches, binder), "calibrate", _length(batches)), binder)
    return cast(NetworkType, made)


def calibrate(network: Network, bound: Iterable[Call], binder: Binder) -> None:
    """Give a network its thresholds: from a pass of the ANN over all calls, and a search on the first samples."""
    calibration = Calibration(network.sites, network.config)
    few = _First(network.batch_axis, SAMPLES)
    others = _First(network.batch_axis, MEASURED * network.config.has_goal, after=SAMPLES)
    seen = 0
    for call, is_ours in shared_out(bound, calibration):
        if is_ours:
            network.analog_with(call, calibration)
        few.add(call)
        others.add(call)
        seen += samples_in(call, network.batch_axis)
    for part in network.networks.values():
        part.report = dataclasses.replace(part.report, calibrated=seen)
    thresholds = calibration.thresholds()
    network.set_thresholds(thresholds)
    if network.config.has_goal:
        measured = others.calls if others.samples >= SAMPLES else [*few.calls, *others.calls]
        allocate(network, few.call, measured, thresholds, _answer(network.config, binder))
        thresholds = network.thresholds
        same_neurons(network)
    else:
        search_thresholds(network, few.call, thresholds, calibration.wants_search)
    same_everywhere(thresholds)
    network.set_thresholds(thresholds)


def _length(batches: Iterable[Any]) -> int | None:
    """How many batches there are, where that is known; a lone tensor is one."""
    return 1 if isinstance(batches, Tensor) else length(batches)


def _answer(config: Config, binder: Binder) -> Answer:
    """What the answers are; scores of classes where the batches say so by their labels."""
    if config.output != "auto":
        return config.output
    return "logits" if binder.labelled else "values"


class _First:
    """The first samples of the loader after some others; the first call where samples are not known."""

    def __init__(self, axis: int | None, most: int, after: int = 0) -> None:
        self.axis, self.most, self.after = axis, most, after
        self.samples = 0
        self.calls: list[Call] = []

    def add(self, call: Call) -> None:
        if self.axis is None:
            self.calls = self.calls or [call]
            return
        size = samples_in(call, self.axis)
        skipped = min(self.after, size)
        self.after -= skipped
        count = min(self.most - self.samples, size - skipped)
        if count > 0:
            self.calls.append(first_samples(call, count, self.axis, start=skipped))
            self.samples += count

    @property
    def call(self) -> Call:
        return self.calls[0] if len(self.calls) == 1 else joined(self.calls, self.axis or 0)


@overload
def load(
    path: FilePath,
    *,
    model: None = None,
    device: Device = None,
    sandbox: Literal[False] = False,
    max_memory: int | str | None = "4GiB",
) -> SpikingNetwork: ...


@overload
def load(
    path: FilePath,
    *,
    model: nn.Module,
    device: Device = None,
    sandbox: Literal[False] = False,
    max_memory: int | str | None = "4GiB",
) -> RegionNetwork: ...


@overload
def load(
    path: FilePath,
    *,
    model: nn.Module | None = None,
    device: Device = None,
    sandbox: bool | Sandbox = False,
    max_memory: int | str | None = "4GiB",
) -> Network: ...


def load(
    path: FilePath,
    *,
    model: nn.Module | None = None,
    device: Device = None,
    sandbox: bool | Sandbox = False,
    max_memory: int | str | None = "4GiB",
) -> Network:
    """The network in a file, as `save` wrote it; on the CPU unless a device is given.

    Args:
        path: The file; `hub://user/repo/file.spikecast` is fetched from the Hugging Face Hub first (extra `hub`).
        model: The model whose regions the network stands in for, where it was converted by region; any other needs no
            code.
        device: Where it is to run.
        sandbox: True, or a `Sandbox` with limits: a stranger's file is loaded and run in a process of its own.
        max_memory: Bytes, or text such as "4GiB", that one run may take. A run that would take more, or far more work
            than the file and the input are large, is refused before it does. None lifts both, for a file you trust.
            A sandbox has its own limit.

    Example:
        >>> snn.save("net.spikecast")
        >>> torch.equal(spikecast.load("net.spikecast")(x), snn(x))
        True
    """
    from spikecast.storage import artifact  # and msgspec with it
    from spikecast.storage.remote import fetched

    path = fetched(path)
    if sandbox:
        from spikecast.storage.sandboxed import in_sandbox

        return in_sandbox(path, model, device, sandbox)
    model = None if model is None else accepted(model)
    network = artifact.load(path, model=model, device=device, max_memory=max_memory)
    if model is not None:  # then it is by region: of any other, a model is refused
        allow_recapture(network, model)
    return network
