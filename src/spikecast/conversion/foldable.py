"""Whether time-steps can lie in the batch: samples must not see each other, and the batch must stay in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spikecast.errors import ModelError, first_line
from spikecast.graph.calls import batch_size, folded, take
from spikecast.graph.execute.observer import Neurons
from spikecast.graph.execute.run import Execution
from spikecast.graph.program import Ref
from spikecast.network.plan import Plan

TOLERANCE = 1e-3  # or a few roundings, where the type is coarser than that


@torch.no_grad()
def why_not_foldable(plan: Plan, tensors: Sequence[Tensor]) -> str | None:
    """Two different samples, once as two steps of one batch and once apart: None where nothing tells them apart."""
    program = plan.program
    if batch_size(program, tensors) is None:
        return "its inputs have no batch axis"
    one, two = _two_samples(plan, tensors)
    seen: dict[str, Tensor] = {}

    def exact(site: str, steps: Tensor) -> Tensor:
        seen[site] = steps
        return plan.sites[site].exact(steps)

    answers = []
    for sample in (one, two):
        execution = Execution(program, program.tensors)
        execution.start(sample)
        outputs = execution.advance(Neurons(exact))
        answers.append((dict(seen), outputs))
    both = folded(program, [one, two])
    try:
        execution = Execution(program, program.tensors, moving_inputs=True)
        execution.start(both)
        outputs = execution.advance(Neurons(exact), 2, folded_inputs=True)
        for site, steps in seen.items():
            if any(_differ(steps[i], answers[i][0][site][0]) for i in (0, 1)):
                return f"samples of a batch see each other at {site!r}"
        for out, value in zip(program.outputs, outputs, strict=True):
            if isinstance(out, Ref) and isinstance(value, Tensor) and out.name in execution.moving:
                steps = execution.unfold(out.name, value, 2)
                index = program.outputs.index(out)
                if any(_differ(steps[i], answers[i][1][index]) for i in (0, 1)):
                    return "samples of a batch see each other in the answer"
    except (ModelError, RuntimeError) as error:
        return first_line(error)
    return None


def _two_samples(plan: Plan, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Two samples of the call that differ; where it has only one, the other is that one turned round."""
    program = plan.program
    if (batch_size(program, tensors) or 0) >= 2:
        return take(program, tensors, 0, 1), take(program, tensors, 1, 2)
    one = take(program, tensors, 0, 1)
    return one, [t.flip(-1) if t.dim() > 1 else t for t in one]


def _differ(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return True
    if not a.is_floating_point():
        return not torch.equal(a, b)
    finite = torch.isfinite(b)
    distance = torch.where(finite, a - b, 0.0).double().norm()
    tolerance = max(TOLERANCE, 8 * torch.finfo(b.dtype).eps)
    return float(distance) > tolerance * float(torch.where(finite, b, 0.0).double().norm()) + 1e-12
