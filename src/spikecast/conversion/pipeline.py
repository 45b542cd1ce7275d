"""convert(): capture, plan, calibrate, insert neurons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, overload

import torch
from torch import Tensor, nn

from spikecast.batches import Binder, Call, InputFunction, calls, check_model, first_samples, samples_in
from spikecast.config import Config
from spikecast.conversion.calibrate import Calibration
from spikecast.conversion.prepare import prepare
from spikecast.conversion.search import SAMPLES, Search
from spikecast.conversion.shared import same_everywhere, shared_out
from spikecast.errors import ConfigError
from spikecast.network.regions import RegionNetwork, convert_regions
from spikecast.network.spiking import SpikingNetwork


@overload
def convert(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: None = None,
) -> SpikingNetwork: ...


@overload
def convert(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: Sequence[str],
) -> RegionNetwork: ...


@overload
def convert(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: Sequence[str] | None,
) -> SpikingNetwork | RegionNetwork: ...


def convert(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: Sequence[str] | None = None,
) -> SpikingNetwork | RegionNetwork:
    """Turn a model into a spiking network; `batches` are typical inputs, from which the thresholds are found.

    `inputs` picks the model's input out of a batch; `strict` refuses ops that would not be fed by spikes; `regions`
    names submodules to convert where the whole forward cannot be captured. The model itself is not changed. Processes
    that torchrun started share the batches among them; each gives the same batches and gets the same network.
    """
    config = Config() if config is None else config
    if not isinstance(config, Config):
        raise ConfigError(f"config is a {type(config).__name__}; give a spikecast.Config, or Config.from_json(...)")
    check_model(model)
    if regions is not None:
        return convert_regions(model, batches, config, regions, inputs=inputs, strict=strict)
    binder = Binder(model, inputs)
    with torch.no_grad():
        bound = calls(batches, binder)
        first = next(bound)
        network = prepare(model, first, config, strict=strict)
        calibration = Calibration(network.sites, config)
        axis = next((i.meta.batch_axis for i in network.plan.program.inputs), None) or 0
        few: list[Call] = []
        for call, is_ours in shared_out(chain([first], bound), [calibration]):
            if is_ours:
                observe_call(network, calibration, call)
            room = SAMPLES - sum(samples_in(c, axis) for c in few)
            if room > 0:
                few.append(first_samples(call, room, axis))
        thresholds = calibration.thresholds()
        search_thresholds(network, few, thresholds, calibration.wants_search, axis)
        same_everywhere(thresholds)
        network.set_thresholds(thresholds)
    if binder.dropped:
        network.add_note(binder.dropped_note)
    return network


def observe_call(network: SpikingNetwork, calibration: Calibration, call: Call) -> None:
    """Let the ANN's own activations of one batch pass the observers."""
    planned, tensors = network.prepare_call(*call)
    execution = network.execution(planned.program)
    execution.start(tensors)
    execution.advance(calibration)


def search_thresholds(
    network: SpikingNetwork, few: Sequence[Call], thresholds: dict[str, Tensor], wanted: set[str], axis: int = 0
) -> None:
    """Refine thresholds in the loop, on the first samples of the loader."""
    if not wanted:
        return
    call = few[0] if len(few) == 1 else _joined(few, axis)
    planned, tensors = network.prepare_call(*call)
    search = Search(network.sites, network.neurons, network.config, thresholds, wanted)
    execution = network.execution(planned.program)
    execution.start(tensors)
    steps = network.config.num_steps
    if network.foldable:
        execution.advance(search, steps)
    else:
        execution.advance_apart(search, steps)


def _joined(few: Sequence[Call], axis: int) -> Call:
    """Several small calls as one, where their other sizes agree; else the first."""

    def join(values: list[Any]) -> Any:
        return torch.cat(values, axis) if all(isinstance(v, Tensor) for v in values) else values[0]

    try:
        args = tuple(join([c[0][i] for c in few]) for i in range(len(few[0][0])))
        return args, {k: join([c[1][k] for c in few]) for k in few[0][1]}
    except (RuntimeError, KeyError, IndexError):
        return few[0]
