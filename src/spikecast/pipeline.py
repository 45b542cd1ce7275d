"""convert(): capture, plan, calibrate, insert neurons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.calibration.batches import Binder, Call, InputFunction, calls, check_model, first_samples, samples_in
from spikecast.calibration.calibrate import Calibration
from spikecast.calibration.search import SAMPLES, Search
from spikecast.config import Config
from spikecast.errors import CaptureError, ModelError
from spikecast.graph.capture import capture
from spikecast.graph.clean import clean
from spikecast.graph.execute import Execution
from spikecast.graph.foldable import why_not_foldable
from spikecast.graph.inputs import call_leaves
from spikecast.graph.plan import Plan, plan
from spikecast.graph.program import Program
from spikecast.graph.report import report_of
from spikecast.graph.simplify import simplify
from spikecast.graph.structure import flatten
from spikecast.network import SpikingNetwork, neuron_of


def convert(
    model: nn.Module,
    batches: Iterable[Any],
    config: Config | None = None,
    *,
    inputs: InputFunction | None = None,
    strict: bool = False,
    regions: Sequence[str] | None = None,
) -> SpikingNetwork:
    """Turn a model into a spiking network; `batches` are typical inputs, from which the thresholds are found.

    `inputs` picks the model's input out of a batch; `strict` refuses ops that would not be fed by spikes; `regions`
    names submodules to convert where the whole forward cannot be captured. The model itself is not changed.
    """
    config = Config() if config is None else config
    check_model(model)
    if regions is not None:
        from spikecast.regions import convert_regions

        return convert_regions(model, batches, config, regions, inputs=inputs, strict=strict)  # type: ignore[return-value]
    binder = Binder(model, inputs)
    with torch.no_grad():
        bound = calls(batches, binder)
        first = next(bound)
        network = prepare(model, first, config, strict=strict)
        calibration = Calibration(network.sites, config)
        axis = next((i.meta.batch_axis for i in network.plan.program.inputs), None) or 0
        few: list[Call] = []
        for call in _chain(first, bound):
            observe_call(network, calibration, call)
            room = SAMPLES - sum(samples_in(c, axis) for c in few)
            if room > 0:
                few.append(first_samples(call, room, axis))
        thresholds = calibration.thresholds()
        search_thresholds(network, few, thresholds, calibration.wants_search, axis)
        network.set_thresholds(thresholds)
    if binder.dropped:
        network.add_note(f"keys of the batches that forward does not take were dropped: {', '.join(sorted(binder.dropped))}")
    return network


def prepare(model: nn.Module, call: Call, config: Config, *, strict: bool = False) -> SpikingNetwork:
    """The network of a model without its thresholds: captured, checked against the model, planned."""
    program, planned, reason, axis = _captured(model, call, config)
    notes = () if reason is None else (f"runs one step at a time: {reason}",)
    report = report_of(planned, program, foldable=reason is None, notes=notes)
    if strict:
        report.refuse_analog()
    device = next((t.device for t in program.tensors.values()), torch.device("cpu"))
    blank = {name: torch.ones((1,) * site.meta.rank, device=device) for name, site in planned.sites.items()}
    network = SpikingNetwork(planned, config, blank, report)
    versions = [p._version for p in model.parameters()]

    def recapture(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Plan:
        if [p._version for p in model.parameters()] != versions:
            raise ModelError("the model has changed since conversion, and this call needs another capture; convert again")
        return plan(captured_program(model, (tuple(args), dict(kwargs)), axis), config)

    network.allow_recapture(recapture)
    return network


def _captured(model: nn.Module, call: Call, config: Config) -> tuple[Program, Plan, str | None, int]:
    """The model's graph with neurons, why its batch cannot hold time-steps if it cannot, and its batch axis.

    The batch is the first axis of the inputs, or the second where samples along the first see each other.
    """
    tensors = call_leaves(*call)[0]
    program, planned, reason = _captured_along(model, call, config, 0)
    if reason is not None and tensors[0].dim() > 2 and program.batch_symbols:
        other = _captured_along(model, call, config, 1)
        if other[2] is None:
            return *other, 1
    return program, planned, reason, 0


def _captured_along(
    model: nn.Module, call: Call, config: Config, axis: int
) -> tuple[Program, Plan, str | None]:
    program = captured_program(model, call, axis)
    planned = plan(program, config)
    if not program.batch_symbols:
        return program, planned, "its batch size is pinned"
    return program, planned, why_not_foldable(planned, call_leaves(*call)[0])


def captured_program(model: nn.Module, call: Call, axis: int = 0) -> Program:
    """The model's graph, ready for neurons, once it has been seen to answer what the model answers."""
    program = simplify(clean(capture(model, *call, batch_axis=axis)))
    execution = Execution(program, program.tensors)
    execution.start(call_leaves(*call)[0])
    ours = execution.advance(lambda site, steps: steps)
    theirs = flatten(model(*call[0], **call[1]))[0]
    for out, expected in zip(ours, theirs, strict=True):
        if isinstance(expected, Tensor) and expected.is_floating_point():
            error = float((out - expected).double().norm() / expected.double().norm().clamp_min(1e-30))
            if not error <= 1e-3:
                raise CaptureError(
                    f"the captured graph answers otherwise than the model (relative error {error:.1e}); it may draw "
                    "random numbers or depend on state: make its forward a function of its input"
                )
    return program


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
    neurons = {name: neuron_of(site, network.config) for name, site in network.sites.items()}
    search = Search(network.sites, neurons, network.config, thresholds, wanted)
    execution = network.execution(planned.program)
    execution.start(tensors)
    steps = network.config.num_steps + 1  # the first one is the ANN
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


def _chain(first: Call, rest: Iterable[Call]) -> Iterable[Call]:
    yield first
    yield from rest
