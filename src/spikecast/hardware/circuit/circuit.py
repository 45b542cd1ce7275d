"""The circuit of a converted network: layers of neurons, and the linear wiring that feeds each of them.

Between sources (neurons, inputs, host ops) and targets (neurons, outputs, host ops) everything is affine: the target
holds `constant + Σ linear(source)`, and a signal passes the linear part alone. What is not affine in the signals, as
softmax, LayerNorm or a product of two activations, is a host op: the circuit ends before it and starts behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor

from spikecast.errors import DataError, ModelError
from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Program
from spikecast.graph.roles import Role
from spikecast.hardware.affine import in_order, is_affine, split_affine
from spikecast.hardware.circuit.forms import Forms
from spikecast.hardware.circuit.parts import Feed, HostOp, Layer, Link, Path, Source
from spikecast.network.spiking import SpikingNetwork

MAX_PATHS = 4096  # x + x, twelve times over, has that many
MAX_MATRIX = 2**25


def whole(network: SpikingNetwork) -> SpikingNetwork:
    """The network, if it is one graph from input to answer; hardware has no Python code between regions."""
    if not isinstance(network, SpikingNetwork):
        raise ModelError(
            f"hardware takes a whole SpikingNetwork, not a {type(network).__name__}; give what convert made without "
            "regions=, or one region: snn.networks[...]"
        )
    return network


class Circuit:
    """Read off a network for inputs of the sizes it was captured with, or of those of an example call."""

    def __init__(
        self, network: SpikingNetwork, example: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.network = whole(network)
        plan, tensors = (network.plan, None) if example is None else network.prepare_call(example, kwargs or {})
        self.program: Program = plan.program
        self.flow = plan.program.flow
        shapes = [i.meta.shape for i in self.program.inputs] if tensors is None else [t.shape for t in tensors]
        self.sizes = [tuple(shape) for shape in shapes]
        self.batch = self._batch()
        self.device = network.device or torch.device("cpu")
        self.tensors = network.tensors_of(self.program)
        self.forms = Forms(self.program, self.tensors, self.sizes, self.device)
        self.sources: dict[str, Source] = {}  # by value
        self.linear: set[str] = set()  # affine in the sources, and none of them
        self._classify()
        self.layers = tuple(self._layer(node) for node in self.flow.neurons.values())
        self.outputs = tuple(self.feed(name) for name in dict.fromkeys(self.program.output_names))
        self.host_ops = tuple(self._host_op(n) for n in self.program.nodes if self._is_host(n))

    def layer(self, site: str) -> Layer:
        return next(layer for layer in self.layers if layer.name == site)

    # -- what is what

    def _batch(self) -> int:
        """One sample at a time, unless the batch size is pinned."""
        if self.program.batch_symbols:
            return 1
        axes = zip(self.program.inputs, self.sizes, strict=True)
        return next((s[i.meta.batch_axis] for i, s in axes if i.meta.batch_axis is not None), 1)

    def _classify(self) -> None:
        forms = self.forms.frame(self.batch).forms
        for spec in self.program.inputs:
            self._add_source(spec.name, "input", None, forms)
        for node in self.program.nodes:
            if node.target == NEURON:
                self._add_source(node.name, "neurons", node.kwargs["site"], forms)
            elif self._is_linear(node):
                self.linear.add(node.name)
            elif node.name not in self.flow.constant:
                self._add_source(node.name, "host", None, forms)

    def _is_linear(self, node: Node) -> bool:
        if node.target == GETITEM:
            return node.inputs[0] in self.linear  # part of what a host op answers is the host's as well
        return is_affine(node, self.program, self.flow.constant)  # no mask or index out of the data

    def _add_source(self, name: str, kind: Literal["neurons", "input", "host"], site: str | None, forms: Any) -> None:
        form = forms[name]
        shape = self.sample_shape(name, form)
        self.sources[name] = Source(name, kind, site, shape, name in self.flow.moving())

    def sample_shape(self, name: str, form: Any) -> tuple[int, ...]:
        """The shape of one sample of a value; () where it is no tensor."""
        if not isinstance(form, Tensor):
            return ()
        axis = self._batch_axis(name, form)
        return tuple(size for i, size in enumerate(form.shape) if i != axis)

    def _batch_axis(self, name: str, form: Tensor) -> int | None:
        """The axis that holds the samples and nothing else; None where they are merged into a longer one."""
        meta = self.program.metas[name]
        axis = meta.batch_axis if isinstance(meta, Meta) else None
        return axis if axis is not None and form.shape[axis] == self.batch == 1 else None

    def _layer(self, node: Node) -> Layer:
        site = self.network.sites[node.kwargs["site"]]
        source, threshold, form = self.sources[node.name], self.network.threshold(site.name), self._form(node.name)
        batch, axis = self._batch_axis(node.name, form), site.axis
        if batch is not None:
            threshold = threshold.squeeze(batch)
            axis = axis - 1 if axis is not None and axis > batch else axis
        feed = self.feed(node.args[0].name)
        return Layer(site.name, node.name, source.shape, axis, threshold, self.network.neurons[site.name], feed)

    def _is_host(self, node: Node) -> bool:
        source = self.sources.get(node.name)
        return source is not None and source.kind == "host" and node.target != GETITEM

    def _host_op(self, node: Node) -> HostOp:
        reads = [name for name in dict.fromkeys(node.inputs) if name not in self.flow.constant]
        feeds = tuple(self.feed(name) for name in reads)
        return HostOp(node.name, node.op.removeprefix("aten."), node.scope, node.name in self.flow.moving(), feeds)

    def feed(self, target: str) -> Feed:
        """What arrives at a value, back to the nearest sources."""
        seen: set[str] = set()
        wanted = [target]
        while wanted:
            name = wanted.pop()
            if name not in seen:
                seen.add(name)
                wanted += self.flow.by_name[name].inputs if name in self.linear else ()
        sources = tuple(source for name, source in self.sources.items() if name in seen)
        return Feed(target, sources, tuple(n for n in self.program.nodes if n.name in seen and n.name in self.linear))

    def paths(self, feed: Feed) -> list[Path]:
        """All ways from the sources to the target, from the target's end backwards; x + x has two."""
        ways = list(islice(self._ways(feed.target), MAX_PATHS + 1))
        if len(ways) > MAX_PATHS:
            raise ModelError(f"more than {MAX_PATHS} paths lead to {feed.target!r}; take its feed as a whole")
        return [Path(self.sources[name], links, feed.target) for name, links in ways]

    def _ways(self, name: str) -> Iterator[tuple[str, tuple[Link, ...]]]:
        if name in self.sources:
            yield name, ()
        elif name in self.linear:
            node, role = self.flow.by_name[name], self.flow.roles[name] or Role.SHAPE
            for position, read in enumerate(node.inputs):
                for source, links in self._ways(read):
                    yield source, (*links, Link(node, position, role))

    # -- what it does to signals

    def _form(self, name: str) -> Tensor:
        form = self.forms.frame(self.batch).forms[name]
        assert isinstance(form, Tensor)
        return form

    def blank(self, name: str, batch: int | None = None) -> Tensor:
        """Zeros of a value's form."""
        return self.forms.blank(name, self.batch if batch is None else batch)

    @torch.no_grad()
    def value(self, feed: Feed, estimates: Mapping[str, Tensor], batch: int | None = None) -> Tensor:
        """What the target holds when the sources stand for these values, biases included; silent ones are left out."""
        env = dict(self.forms.frame(self.batch if batch is None else batch).values)
        for source in feed.sources:
            name = source.value
            env[name] = estimates[name] if name in estimates else self.blank(name, batch)
        self.forms.evaluate(feed.nodes, env)
        value: Tensor = env[feed.target]
        return value

    def constant(self, feed: Feed) -> Tensor:
        """What the target holds when every source is zero: all biases on the way."""
        return self.value(feed, {})

    @torch.no_grad()
    def signal(self, feed: Feed, signals: Mapping[str, Tensor], batch: int | None = None) -> Tensor:
        """What arrives at the target when these signals are sent: linear, no bias; silent sources are left out."""
        sent = {s.value: signals[s.value] for s in feed.sources if s.value in signals}
        if not sent:
            return self.blank(feed.target, batch)

        def function(*values: Tensor) -> Tensor:
            return self.value(feed, dict(zip(sent, values, strict=True)), batch)

        linear: Tensor = split_affine(function, *sent.values())[0]
        return linear

    @torch.no_grad()
    def along(self, links: Sequence[Link], signal: Tensor, batch: int | None = None) -> Tensor:
        """What arrives over the links of one path alone."""
        linear: Tensor = split_affine(lambda value: self.walk(links, value, batch), signal)[0]
        return linear

    def walk(self, links: Sequence[Link], value: Any, batch: int | None = None) -> Any:
        """A value through some ops, with zeros for all else that depends on the data."""
        known = self.forms.frame(self.batch if batch is None else batch).values
        for node, position, _ in links:
            values = [
                value if i == position else known[n] if n in known else self.blank(n, batch)
                for i, n in enumerate(node.inputs)
            ]
            value = node.call(in_order(values), self.device)
        return value

    def matrix(self, path: Path) -> Tensor:
        """The weights of a path, [entries of the target, entries of the source], of one sample; for small ones."""
        source, target = self._form(path.source.value), self._form(path.target)
        if source.numel() * target.numel() > MAX_MATRIX:
            raise DataError(
                f"the weights from {path.source.value!r} to {path.target!r} are {target.numel()} x {source.numel()}, "
                f"the bound is {MAX_MATRIX}; take the path's ops instead"
            )
        columns = []
        for i in range(source.numel()):
            unit = torch.zeros(source.numel(), dtype=source.dtype, device=self.device)
            unit[i] = 1
            columns.append(self.along(path.links, unit.reshape(source.shape)).flatten())
        return torch.stack(columns, 1) if columns else torch.zeros(target.numel(), 0)

    def __repr__(self) -> str:
        neurons = sum(math.prod(layer.shape) for layer in self.layers)
        return f"Circuit({len(self.layers)} layers, {neurons} neurons, {len(self.host_ops)} host ops)"
