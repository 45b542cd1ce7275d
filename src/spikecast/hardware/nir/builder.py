"""Walks a network's circuit once and writes it as a NIR graph; what the profile cannot say is cut out, by name."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spikecast.errors import MissingExtraError
from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Ref
from spikecast.hardware.circuit.circuit import Circuit
from spikecast.hardware.circuit.parts import Layer
from spikecast.hardware.nir.linear import HANDLERS, Call, Unsaid, Value, by_channel, times
from spikecast.hardware.nir.terms import ONE, Op, Term, matrix_op, squared
from spikecast.network.spiking import SpikingNetwork

NeuronMaker = Callable[[Layer], Any]  # a NIR node for a layer of neurons, or Unsaid


def nir_package() -> Any:
    """The nir package, or what to install."""
    try:
        import nir
    except ImportError:
        raise MissingExtraError("NIR needs the packages nir and h5py; pip install 'spikecast[nir]'") from None
    return nir


@dataclass(frozen=True)
class Gap:
    """What stays on the host: the op by name, why, and the graph's nodes that lead to it and on from it."""

    name: str
    reason: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass
class Built:
    """A graph in the making."""

    nodes: dict[str, Any] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    host: list[Gap] = field(default_factory=list)
    neurons: dict[str, str] = field(default_factory=dict)  # node -> site
    placed: dict[str, str] = field(default_factory=dict)  # weight of the network -> node that holds it


class Builder:
    """`normalised`: thresholds go into the weights, so that every neuron's is 1; else weights stay as they are."""

    def __init__(self, network: SpikingNetwork, make_neuron: NeuronMaker, *, normalised: bool = True) -> None:
        self.nir = nir_package()
        self.circuit = Circuit(network)
        self.program = self.circuit.program
        self.make_neuron, self.normalised = make_neuron, normalised
        self.layers = {layer.value: layer for layer in self.circuit.layers}
        self.values: dict[str, Value] = {}
        self.current = "synapse"  # the op that is being written, which names its node
        self.built = Built()

    def build(self) -> Built:
        for spec in self.program.inputs:
            self._enter(spec.name, "input" if len(self.program.inputs) == 1 else f"input_{spec.name}")
        for node in self.program.nodes:
            if node.name in self.circuit.flow.constant:
                continue
            try:
                self.values[node.name] = self._shared(node, self._said(node))
            except Unsaid as reason:
                self._leave_to_host(node, str(reason))
        for i, name in enumerate(dict.fromkeys(self.program.output_names)):
            if name in self.values:
                self._exit(self.values[name], "output" if i == 0 else f"output_{i}")
        return self.built

    # -- ops

    def _said(self, node: Node) -> Value:
        shape, self.current = self.circuit.sample_shape(node.name), label_of(node)
        if node.target == NEURON:
            return self._neuron(self.layers[node.name], shape)
        if node.name not in self.circuit.linear or node.op not in HANDLERS:
            raise Unsaid(self._why_not(node))
        data = [name for name in (node.name, *node.inputs) if name not in self.circuit.flow.constant]
        if not all(map(self._batch_is_first, data)):
            raise Unsaid("its samples do not lie along its first axis")
        args, kwargs = node.arguments(self._argument)
        return HANDLERS[node.op](Call(node, args, kwargs, shape, self._push, self._flatten))

    def _why_not(self, node: Node) -> str:
        op = node.op.removeprefix("aten.")
        if "max_pool" in op:
            return "a maximum is not linear; convert with average pooling"
        role = self.circuit.flow.roles[node.name]
        if node.name in self.circuit.linear:
            return f"{op} is linear, but no NIR primitive does it"
        return f"{op} is {role.value if role else 'an unknown op'}: a graded unit or a product"

    def _argument(self, ref: Ref) -> Any:
        if ref.name in self.values:
            return self.values[ref.name]
        constant = self.circuit.frame().values[ref.name]
        return constant.cpu() if isinstance(constant, Tensor) else constant

    def _neuron(self, layer: Layer, shape: tuple[int, ...]) -> Value:
        made = self.make_neuron(layer)
        value = self.values[layer.feed.target]
        threshold = per_channel(layer) if self.normalised else ONE
        if self.normalised:
            value = times(value, 1.0 / threshold)
        name = self._add(layer.name, made)
        self.built.neurons[name] = layer.name
        made.metadata = {**made.metadata, "spikecast.site": layer.name}
        self._connect(value, name)
        return Value((Term(name, threshold),), shape)

    def _shared(self, node: Node, value: Value) -> Value:
        """What several ops read is computed once."""
        if len(self.program.users.get(node.name, ())) < 2 or all(term.op is None for term in value.terms):
            return value
        return Value(tuple(Term(self._placed(t, value.shape)) if t.op else t for t in value.terms), value.shape)

    def _push(self, value: Value, op: Op, shape: tuple[int, ...]) -> Value:
        """A value behind one more op; the op's constant is added once."""
        square = squared(op) if op.weight.dim() == 4 else op
        if square is None:
            raise Unsaid(f"its kernel {tuple(op.weight.shape[2:])} is not square, which NIR's shapes need")
        op, terms = (dataclasses.replace(square, label=self.current) if square.label == "synapse" else square), []
        for i, term in enumerate(value.terms):
            own = op if i == 0 else dataclasses.replace(op, bias=torch.zeros_like(op.bias))
            merged = term.through(own)
            terms.append(merged or Term(self._placed(term, value.shape), op=own))
        return Value(tuple(terms), shape)

    def _flatten(self, value: Value, shape: tuple[int, ...]) -> Value:
        terms = []
        for term in value.terms:
            raw = term if term.op is None else Term(self._placed(term, value.shape))
            flat = self.nir.Flatten({"input": np.array(value.shape)}, start_dim=-len(value.shape), end_dim=-1)
            name = self._add("flatten", flat)
            self.built.edges.append((raw.source, name))
            scale = raw.scale.expand(value.channels)
            terms.append(Term(name, scale.repeat_interleave(math.prod(value.shape) // value.channels)))
        return Value(tuple(terms), shape)

    # -- nodes and edges

    def _placed(self, term: Term, shape: tuple[int, ...]) -> str:
        """The NIR node that holds a term; `shape` is what comes out."""
        op = term.op
        if op is None:
            if bool((term.scale == 1).all()):
                return term.source
            scales = torch.diag(term.scale.expand(math.prod(shape[:1])))
            op = dataclasses.replace(matrix_op(scales, len(shape)), label=f"scale_{term.source}")
        shape_in = [int(n) for n in self.built.nodes[term.source].output_type["output"]]
        name = self._add(op.label, self._node(op, shape_in))
        self.built.edges.append((term.source, name))
        if op.origin is not None:
            self.built.placed[op.origin] = name
        return name

    def _node(self, op: Op, shape_in: list[int]) -> Any:
        if op.weight.dim() == 2:
            return self.nir.Affine(weight=_array(op.weight), bias=_array(op.bias))
        return self.nir.Conv2d(
            input_shape=tuple(shape_in[1:]),
            weight=_array(op.weight),
            stride=op.stride,
            padding=op.padding,
            dilation=op.dilation,
            groups=1,
            bias=_array(op.bias),
        )

    def _connect(self, value: Value, target: str) -> None:
        """Edges into a node add up. Two unchanged ways from one source are one edge with both weights."""
        merged: dict[str | int, Term] = {}
        for i, term in enumerate(value.terms):
            key = term.source if term.op is None else i
            same = merged.get(key)
            merged[key] = Term(term.source, same.scale + term.scale) if same else term
        for term in merged.values():
            self.built.edges.append((self._placed(term, value.shape), target))

    def _exit(self, value: Value, name: str, metadata: dict[str, str] | None = None) -> str:
        node = self.nir.Output(np.array(value.shape))
        node.metadata = metadata or {}
        if len(value.terms) > 1 and len(value.shape) in (1, 3):  # importers do not add up what arrives at an output
            eye = matrix_op(torch.eye(value.channels), len(value.shape))
            gather = self._add("gather", self._node(eye, list(value.shape)))
            self._connect(value, gather)
            value = Value((Term(gather),), value.shape)
        made = self._add(name, node)
        self._connect(value, made)
        return made

    def _enter(self, value: str, name: str, metadata: dict[str, str] | None = None) -> str:
        shape = self.circuit.sample_shape(value)
        node = self.nir.Input(np.array(shape))
        node.metadata = metadata or {}
        made = self._add(name, node)
        self.values[value] = Value((Term(made),), shape)
        return made

    def _leave_to_host(self, node: Node, reason: str) -> None:
        """The graph ends before an op and starts again behind it."""
        label = label_of(node)
        if node.target == GETITEM:  # part of what a host op answers
            self._enter(node.name, f"from_{label}")
            return
        about = {"spikecast.host_op": label, "spikecast.op": node.op}
        reads = [n for n in dict.fromkeys(node.inputs) if n in self.values]
        ends = tuple(self._exit(self.values[n], f"to_{label}", about) for n in reads)
        starts: tuple[str, ...] = ()
        if isinstance(self.circuit.form(node.name), Tensor):
            starts = (self._enter(node.name, f"from_{label}", about),)
        self.built.host.append(Gap(label, reason, ends, starts))

    def _add(self, label: str, node: Any) -> str:
        """A name that every importer takes: letters, digits and underscores, and none twice."""
        plain = re.sub(r"\W+", "_", label).strip("_") or "node"
        plain = f"n_{plain}" if plain[0].isdigit() else plain
        names = chain([plain], (f"{plain}_{number}" for number in count(2)))
        name = next(name for name in names if name not in self.built.nodes)
        self.built.nodes[name] = node
        return name

    def _batch_is_first(self, value: str) -> bool:
        meta = self.program.metas[value]
        return isinstance(meta, Meta) and meta.batch_axis == 0 and self.circuit.form(value).shape[0] == 1


def label_of(node: Node) -> str:
    """What a user calls an op."""
    if node.target == NEURON:
        return str(node.kwargs["site"])
    return node.scope or node.name


def per_channel(layer: Layer) -> Tensor:
    """θ as one number per channel; NIR's weights cannot hold one per place."""
    if len(layer.shape) not in (1, 3):
        raise Unsaid(f"neurons of shape {layer.shape}; NIR's matrices and convolutions take vectors and maps")
    complaint = "its thresholds differ from place to place; convert with granularity='channel'"
    return by_channel(layer.threshold.cpu(), layer.shape, complaint)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().float().contiguous().numpy()
