"""From a model and one call of it to a network that lacks only its thresholds: capture, check, plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.batches import Call, check_model
from spikecast.config import Config
from spikecast.conversion.accepted import own_modes
from spikecast.conversion.contents import contents, difference
from spikecast.conversion.foldable import why_not_foldable
from spikecast.conversion.planning import plan
from spikecast.errors import CaptureError, DataError, ModelError, ResourceError, enough_memory, first_line
from spikecast.graph.calls import call_leaves, cloned
from spikecast.graph.capture.clean import clean
from spikecast.graph.capture.export import capture
from spikecast.graph.capture.layout import channels_last
from spikecast.graph.capture.recurrent import refusing_packed
from spikecast.graph.capture.simplify import simplify
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Program
from spikecast.graph.structure import flatten, unflatten
from spikecast.network.plan import Plan
from spikecast.network.report import report_of
from spikecast.network.spiking import Recapture, SpikingNetwork

TAKES = "give what it takes"


@torch.no_grad()
def prepare(
    model: nn.Module,
    call: Call,
    config: Config,
    *,
    strict: bool = False,
    prefix: str = "",
    raw_inputs: bool = True,
) -> SpikingNetwork:
    """The network of a model without its thresholds: captured, checked against the model, planned."""
    part = Part(model, config, prefix, raw_inputs)
    program, planned, reason, axis = _captured(part, call)
    notes = () if reason is None else (f"runs one step at a time: {reason}",)
    report = report_of(planned, program, foldable=reason is None, notes=(*notes, *_fixed_sizes(program)))
    if strict:
        report.refuse_analog()
    network = SpikingNetwork.planned(planned, config, report, prefix)
    network.allow_recapture(part.recapture(axis))
    if program.dropped:
        network.add_note(f"left out of the answer, which holds no caches and no loss: {', '.join(program.dropped)}")
    if program.written:
        names = ", ".join(program.written)
        network.add_note(f"forward writes to its buffers, which a network keeps as they were at conversion: {names}")
    return network


@dataclass(frozen=True)
class Part:
    """A model to capture: the whole, or a region of one."""

    model: nn.Module
    config: Config
    prefix: str
    raw_inputs: bool

    def captured(self, call: Call, axis: int) -> tuple[Program, Plan]:
        program = captured_program(self.model, call, axis, self.prefix)
        return program, plan(program, self.config, raw_inputs=self.raw_inputs)

    def recapture(self, axis: int) -> Recapture:
        """How to capture the model again for another call, as long as it is the same."""
        before = contents(self.model)

        def recapture(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Plan:
            check_model(self.model)
            changed = difference(before, contents(self.model))
            if changed:
                raise ModelError(
                    f"the model has changed since conversion ({changed} is not as it was), and this call needs "
                    "another capture; convert it again"
                )
            return self.captured((tuple(args), dict(kwargs)), axis)[1]

        return recapture


def recapture_of(model: nn.Module, config: Config, network: SpikingNetwork, *, raw_inputs: bool) -> Recapture:
    """How to capture a part of a model again that a loaded network stands for."""
    return Part(model, config, network.name, raw_inputs).recapture(network.batch_axis)


def _fixed_sizes(program: Program) -> Iterator[str]:
    """Says of an input with more than features that only its number of samples may be another."""
    for tensor in program.inputs:
        others = [dim for dim in tensor.dims if dim not in program.batch_symbols]
        if len(others) > 1 and all(isinstance(dim, int) for dim in others):
            shape = ", ".join("any" if dim in program.batch_symbols else str(dim) for dim in tensor.dims)
            yield f"the sizes of an input are fixed: ({shape}); another size means another capture of the model"


def _captured(part: Part, call: Call) -> tuple[Program, Plan, str | None, int]:
    """The graph, the plan, why the batch cannot hold time-steps if it cannot, and the batch axis.

    The batch is the first axis of the inputs, or the second where samples along the first see each other.
    """
    tensors = call_leaves(*call)[0]
    program, planned = part.captured(call, 0)
    reason = _why_not(planned, tensors)
    may_be_second = program.batch_symbols or any(_reads_batch_second(m) for m in part.model.modules())
    if reason is not None and tensors[0].dim() > 2 and may_be_second:
        other, other_planned = part.captured(call, 1)
        if _why_not(other_planned, tensors) is None:
            return other, other_planned, None, 1
    return program, planned, reason, 0


def _reads_batch_second(module: nn.Module) -> bool:
    """Whether a module has its batch second: then it pins the first axis, which is its sequence."""
    return isinstance(module, nn.RNNBase) and not module.batch_first


def _why_not(planned: Plan, tensors: Sequence[Tensor]) -> str | None:
    return why_not_foldable(planned, tensors) if planned.program.batch_symbols else "its batch size is pinned"


@own_modes()
def captured_program(model: nn.Module, call: Call, axis: int = 0, prefix: str = "") -> Program:
    """The model's graph, ready for neurons, once it has been seen to answer what the model answers."""
    with torch.compiler.set_stance("force_eager"):  # parts of the forward that are compiled have a graph of their own
        theirs = flatten(_own_answer(model, call))[0]  # first: what the model itself refuses is no matter of capturing
        captured = capture(model, *call, batch_axis=axis, prefix=prefix)
    program = channels_last(simplify(clean(captured)))
    execution = Execution(program, program.tensors)
    execution.start(call_leaves(*call)[0])
    ours = execution.advance(Neurons(lambda site, steps: steps))
    for out, expected in zip(ours, theirs, strict=True):
        if isinstance(out, Tensor) and isinstance(expected, Tensor) and expected.is_floating_point():
            error = _relative_error(out, expected)
            allowed = max(1e-3, 8 * torch.finfo(expected.dtype).eps)
            if not error <= allowed and not error <= 4 * _own_rounding(model, call, theirs):
                raise CaptureError(
                    f"the captured graph answers otherwise than the model (relative error {error:.1e}); it may draw "
                    "random numbers or depend on state: make its forward a function of its input"
                )
    return program


def _own_answer(model: nn.Module, call: Call) -> Any:
    """What the model answers; neither its buffers nor the caller's tensors change, even if it writes to them."""
    args, kwargs = cloned(call)
    state = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with refusing_packed(model), enough_memory():
            return model(*args, **kwargs)
    except (CaptureError, ResourceError):
        raise
    except Exception as error:
        said = f"{type(model).__name__} itself cannot take the call: {first_line(error)}"
        remedy = TAKES
        if any(isinstance(argument, list | tuple) for argument in args):  # maybe inputs that stand beside their label
            remedy = "if there is a label, yield ((a, b), label) with integers, or (x, label), or give inputs="
        raise DataError(f"{said}; {remedy}") from error
    finally:
        for buffer, before in state:
            if not torch.equal(buffer, before):
                buffer.copy_(before)


def _own_rounding(model: nn.Module, call: Call, answer: list[Any]) -> float:
    """How far the model's own answer moves when its input moves in the last bit; 0 where it never says the same twice.

    Deep networks with random weights make a thousandth of it.
    """
    again = flatten(_own_answer(model, call))[0]
    leaves, form = flatten(call)
    nudged = unflatten(form, [_nudged(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves])
    moved = flatten(_own_answer(model, nudged))[0]
    parts = [part for part in zip(again, moved, answer, strict=True) if isinstance(part[0], Tensor)]
    if any(_relative_error(same, before) > 0 for same, _, before in parts):
        return 0.0
    return max(_relative_error(other, before) for _, other, before in parts)


def _nudged(tensor: Tensor) -> Tensor:
    """Each number one step of its type nearer to its neighbour."""
    if tensor.dtype not in (torch.float32, torch.float64):
        return tensor
    return torch.nextafter(tensor, tensor.flatten().roll(1).view_as(tensor))


def _relative_error(found: Tensor, expected: Tensor) -> float:
    """Relative L2 error; an inf or NaN counts as right where both have it."""
    same = (found == expected) | (found.isnan() & expected.isnan())
    difference = torch.where(same, 0.0, (found - expected).double())
    finite = torch.where(expected.isfinite(), expected, 0.0).double()
    return float(difference.norm() / finite.norm().clamp_min(1e-30))
