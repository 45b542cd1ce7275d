"""One network: converted, held against itself, saved and loaded."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import spikecast
from benchmarks.coverage.models import Case
from benchmarks.coverage.page import halves
from spikecast import Config
from spikecast.conversion import prepare
from spikecast.errors import CaptureError
from spikecast.graph.capture.export import capture
from spikecast.graph.structure import flatten
from spikecast.network.base import Network
from spikecast.network.spiking import SpikingNetwork

EARLY, LATE = 2, 16
# One spike in a step, so that the number of steps is what makes the answer better. Quantiles take one pass.
# Many random layers amplify errors, so range counts for more than resolution: twice the threshold.
CONFIG = Config(num_steps=LATE, burst=1, thresholds="quantile", threshold_scale=2.0)
SAMPLES, ASKED = 4, 2


def examine(case: Case) -> Iterator[dict[str, Any]]:
    """What can be said of it, the last word at the end; it raises where the network does not convert.

    Random weights of a deep, narrow network blow errors up where its last maps have a few pixels only. One whose error
    does not halve is tried again with larger images.
    """
    found = _examine(case)
    yield found
    if case.larger is not None and not halves(found):
        yield _examine(case.larger)


def _examine(case: Case) -> dict[str, Any]:
    began = time.process_time()
    torch.manual_seed(0)
    model = case.build()
    first, asked = images(case, SAMPLES), images(case, ASKED)
    settle(model, first)
    took: list[float] = []
    with patch.object(prepare, "capture", _timed(capture, took)):
        snn = converted(model, first, case)
    found: dict[str, Any] = {
        "shape": case.shape,
        "parameters": sum(p.numel() for p in model.parameters()),
        "capture": sum(took),
        "share": snn.report.spiking_share,
        "regions": not isinstance(snn, SpikingNetwork),
        "notes": list(snn.report.notes),
    }
    errors = distances(answers(snn, asked, case, LATE), answers(model, asked, case, 1)[0])
    found |= {"early": errors[EARLY - 1], "late": errors[LATE - 1]}
    found |= {"same": is_kept(snn, model, asked, case), "seconds": time.process_time() - began}
    return found | {"memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}  # the most there was, in GB


def converted(model: nn.Module, first: Any, case: Case) -> Network:
    """The network; of a model that cannot be captured whole, its largest parts that can."""
    if case.regions:
        return spikecast.convert(model, [(first,)], CONFIG, regions=case.regions)
    try:
        return spikecast.convert(model, [first], CONFIG)
    except CaptureError:
        return spikecast.convert(model, [first], CONFIG, regions="auto")


def images(case: Case, count: int) -> Any:
    """Images that differ in more than noise, whose mean is the same everywhere; a list for a detector."""
    size = case.shape[-1]
    made = 0.5 * torch.randn(count, *case.shape)
    coarse = F.interpolate(torch.randn(count, 3, 4, 4), size, mode="bilinear")
    made += 1.5 * (coarse if made.dim() == 4 else coarse[:, :, None])
    return list(made.sigmoid()) if case.regions else made


def settle(model: nn.Module, *batches: Any) -> nn.Module:
    """A random model whose BatchNorm statistics fit its own activations, ready to be converted."""
    model.eval()
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train().momentum = None  # the plain mean of what it sees
    with torch.no_grad():
        for batch in batches if norms else ():
            model(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model.eval()


@torch.no_grad()
def answers(network: nn.Module, asked: Any, case: Case, steps: int) -> list[Tensor]:
    """What it answers after each step, one row for each sample; of a detector what its head says."""
    if case.regions:
        name = next(region for region in case.regions if region.endswith("head"))
        inner = network.model if isinstance(network, Network) else network
        run = (lambda: network.run(asked, num_steps=steps)) if isinstance(network, Network) else lambda: network(asked)
        return heard(cast(nn.Module, inner).get_submodule(name), run)
    if isinstance(network, Network):
        leaves = flatten(network.run(asked, num_steps=steps))[0]
        return [_rows([leaf[t] for leaf in leaves]) for t in range(steps)]
    return [_rows(flatten(network(asked))[0])]


def heard(module: nn.Module, run: Callable[[], Any]) -> list[Tensor]:
    """What a module answers each time it is called while `run` runs."""
    found: list[Tensor] = []
    note = module.register_forward_hook(lambda _, args, out: found.append(_rows(flatten(out)[0])))
    try:
        run()
    finally:
        note.remove()
    return found


def _rows(leaves: list[Any]) -> Tensor:
    """All numbers of an answer that are not counted, one row for each sample."""
    kept = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return torch.cat([leaf.flatten(1).double() for leaf in kept], 1)


def distances(found: list[Tensor], expected: Tensor) -> list[float]:
    """The mean relative distance from the ANN after each step."""
    return [float(((rows - expected).norm(dim=1) / expected.norm(dim=1)).mean()) for rows in found]


def is_kept(snn: Network, model: nn.Module, asked: Any, case: Case) -> bool:
    """Whether the network out of its file answers with the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.spikecast"
        snn.save(path)
        loaded = spikecast.load(path, model=None if isinstance(snn, SpikingNetwork) else model)
    ours, theirs = (answers(network, asked, case, EARLY) for network in (snn, loaded))
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _timed(function: Callable[..., Any], took: list[float]) -> Callable[..., Any]:
    """The function, noting how much of the processor's time each call takes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            took.append(time.process_time() - began)

    return call
