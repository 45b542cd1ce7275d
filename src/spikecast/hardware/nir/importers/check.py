"""Run by an importer's own Python: reads a NIR file with that importer, runs it, and writes what its neurons sent.

Nothing of spikecast is imported here, only torch, numpy, nir and the importer. Usage:
check.py IMPORTER FILE.nir IN.npz OUT.npz, where IN holds x [T, batch, ...], and OUT gets, for each of three stages,
the output and the spikes of each neuron node, and one JSON text about what the importer does otherwise.

The stages: "imported", as the importer made it (with the least that makes it run); "set", with the importer's own
settings put to soft reset, no leak and one spike; "meant", with its neurons replaced by the one the file means.
"""

import io
import json
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from graphlib import TopologicalSorter
from importlib.metadata import version
from typing import Any

import nir
import numpy as np
import torch
from torch import Tensor

Run = tuple[Tensor, dict[str, Tensor]]  # the output [T, batch, ...], and what each neuron node sent
STAGES = ("imported", "set", "meant")


def neurons_of(graph: Any) -> list[str]:
    return [name for name, node in graph.nodes.items() if type(node).__name__ == "IF"]


@dataclass
class Meant:
    """The IF neuron of the file: threshold 1, soft reset, fires at and above, once a step."""

    threshold: Tensor
    folded: int = 0  # how many samples there are, where time is folded into the batch
    stateful: bool = False  # whether the importer wants a state beside the spikes
    potential: Tensor | float = 0.0

    def step(self, x: Tensor) -> Tensor:
        potential = self.potential + x
        spikes = (potential >= self.threshold).to(x.dtype)
        self.potential = potential - spikes * self.threshold
        return spikes

    def forward(self, x: Tensor, state: Any = None) -> Any:
        if self.folded:  # [batch·T, ...], batch first
            steps = x.reshape(self.folded, -1, *x.shape[1:])
            return torch.stack([self.step(steps[:, t]) for t in range(steps.shape[1])], 1).flatten(0, 1)
        return (self.step(x), ()) if state is not None or self.stateful else self.step(x)


def run_snntorch(graph: Any, x: Tensor, stage: str) -> Run:
    import snntorch
    from snntorch.import_nir import import_from_nir

    net = import_from_nir(graph)
    for module in net.modules():
        if isinstance(module, snntorch.Leaky):
            module.init_hidden = True  # without it a neuron hands a pair to the next layer, which fails
            if stage == "set":
                module.beta = torch.ones(())
    return by_steps(net, graph, x, stage)


def run_spikingjelly(graph: Any, x: Tensor, stage: str) -> Run:
    from spikingjelly.activation_based import neuron
    from spikingjelly.activation_based.nir_exchange import import_from_nir

    net = import_from_nir(graph, dt=1.0)
    for module in net.modules():
        if isinstance(module, neuron.IFNode) and stage == "set":
            module.v_reset = None  # soft reset
    return by_steps(net, graph, x, stage, stateful=True)


def by_steps(net: Any, graph: Any, x: Tensor, stage: str, **settings: Any) -> Run:
    """An importer whose graph takes one step at a time."""
    seen = watch(net, graph, stage, **settings)
    state, outputs = None, []
    for step in x:
        answer = net(step) if state is None else net(step, state)
        out, state = answer if isinstance(answer, tuple) else (answer, None)
        outputs.append(out.detach())
    return torch.stack(outputs), {name: torch.stack(found) for name, found in seen.items()}


def run_sinabs(graph: Any, x: Tensor, stage: str) -> Run:
    import sinabs.activation
    import sinabs.layers
    from sinabs.nir import from_nir

    steps, batch = x.shape[:2]
    net = from_nir(graph, batch_size=batch)
    if stage != "imported":
        net.execution_order = topological(net, graph)
        for module in net.modules():
            if isinstance(module, sinabs.layers.IAFSqueeze):
                module.min_v_mem, module.spike_fn = None, sinabs.activation.SingleSpike
    seen = watch(net, graph, stage, folded=batch)
    out = net(x.transpose(0, 1).flatten(0, 1))
    out = out[0] if isinstance(out, tuple) else out

    def apart(folded: Tensor) -> Tensor:
        return folded.detach().reshape(batch, steps, *folded.shape[1:]).transpose(0, 1)

    return apart(out), {name: apart(found[0]) for name, found in seen.items()}


def topological(net: Any, graph: Any) -> list[Any]:
    """nirtorch 2.0 visits a graph depth first, so that a node may run before all that leads to it has run."""
    nodes = {node.name: node for node in net.execution_order}
    before = {name: [a for a, b in graph.edges if b == name] for name in nodes}
    return [nodes[name] for name in TopologicalSorter(before).static_order()]


def watch(net: Any, graph: Any, stage: str, **settings: Any) -> dict[str, list[Tensor]]:
    """Note what every neuron module sends; at the stage "meant" let `Meant`, with these settings, do its work."""
    seen: dict[str, list[Tensor]] = {}
    modules = dict(net.named_modules())
    for name in neurons_of(graph):
        module, seen[name] = modules[name], []
        if stage == "meant":
            threshold = torch.as_tensor(np.asarray(graph.nodes[name].v_threshold))
            module.forward = Meant(threshold, **settings).forward

        def hook(_module: Any, _args: Any, output: Any, found: list[Tensor] = seen[name]) -> None:
            found.append((output[0] if isinstance(output, tuple) else output).detach())

        module.register_forward_hook(hook)
    return seen


RUNNERS: dict[str, Callable[[Any, Tensor, str], Run]] = {
    "snntorch": run_snntorch,
    "spikingjelly": run_spikingjelly,
    "sinabs": run_sinabs,
}


def run(importer: str, make_graph: Callable[[], Any], x: Tensor, stage: str) -> Run:
    with torch.no_grad(), redirect_stdout(io.StringIO()):
        return RUNNERS[importer](make_graph(), x, stage)


def tiny(*layers: tuple[float, ...]) -> Any:
    """A chain of IF neurons, one unless weights are given; before each of them a sum of branches with these weights."""

    def weight(w: float) -> Any:
        return nir.Affine(weight=np.full((1, 1), w, np.float32), bias=np.zeros(1, np.float32))

    nodes, edges, last = {"input": nir.Input(np.array([1]))}, [], "input"
    for i, branches in enumerate(layers or [(1.0,)]):
        for j, w in enumerate(branches):
            nodes[f"w{i}_{j}"] = weight(w)
            edges += [(last, f"w{i}_{j}"), (f"w{i}_{j}", f"s{i}")]
        last = f"s{i}"
        nodes[last] = nir.IF(r=np.ones(1, np.float32), v_threshold=np.ones(1, np.float32))
    nodes["end"], nodes["output"] = weight(1.0), nir.Output(np.array([1]))
    return nir.NIRGraph(nodes, [*edges, (last, "end"), ("end", "output")])


# name: (graph, input of each step, spikes as the file means them, what another outcome says)
PROBES: dict[str, tuple[Callable[[], Any], list[float], list[int], str]] = {
    "strict threshold": (tiny, [1.0], [1], "a neuron at its threshold does not fire"),
    "hard reset": (tiny, [0.75] * 3, [0, 1, 1], "what is above the threshold is lost when a neuron fires"),
    "leak": (tiny, [0.26] * 4, [0, 0, 0, 1], "the potential leaks"),
    "several spikes": (tiny, [2.5], [1], "a neuron fires several times in one step"),
    "lost backlog": (tiny, [2.5, 0.1], [1, 1], "a potential still above the threshold does not fire in the next step"),
    "floor": (tiny, [-3.0, 3.5], [0, 0], "the potential is cut off below"),
    "delay": (lambda: tiny((1.0,), (1.5,)), [1.5], [1], "a layer sees its input a step late"),
    "lost branches": (lambda: tiny((1.0,), (0.5, 0.6)), [1.25], [1], "edges into one node are not all added up"),
}


def probe(importer: str, stage: str) -> list[dict[str, Any]]:
    """What the importer does otherwise than the file means, on single neurons."""
    found = []
    for name, (make, steps, expected, meaning) in PROBES.items():
        x = torch.tensor(steps).reshape(-1, 1, 1)
        try:
            _, seen = run(importer, make, x, stage)
            last = list(seen)[-1]
            got: Any = [int(v) for v in seen[last].reshape(-1)]
        except Exception as error:
            got = f"{type(error).__name__}: {error}"[:200]
        if got != expected:
            found.append({"name": name, "meaning": meaning, "expected": expected, "found": got})
    return found


def main(importer: str, path: str, given: str, out: str) -> None:
    """Run all stages; one that fails is reported by its error."""
    with np.load(given, allow_pickle=False) as data:
        x = torch.from_numpy(data["x"])
    arrays: dict[str, Any] = {}
    versions = {name: version(name) for name in (importer, "nir", "nirtorch", "torch")}
    report: dict[str, Any] = {"versions": versions, "differences": {}, "errors": {}}
    for stage in STAGES:
        report["differences"][stage] = probe(importer, stage)
        try:
            output, seen = run(importer, lambda: nir.read(path), x, stage)
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0]
            report["errors"][stage] = f"{type(error).__name__}: {line}"[:300]
            traceback.print_exc()
            continue
        arrays[f"{stage}/"] = output.float().numpy()
        for name, spikes in seen.items():
            arrays[f"{stage}/{name}"] = spikes.clamp(-127, 127).to(torch.int8).numpy()
    np.savez(out, report=np.frombuffer(json.dumps(report).encode(), np.uint8), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:5])
