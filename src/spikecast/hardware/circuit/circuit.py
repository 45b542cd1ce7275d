"""The circuit of a converted network: layers of neurons, and the linear wiring that feeds each of them.

Between sources (neurons, inputs, host ops) and targets (neurons, outputs, host ops) everything is affine: the target
holds `constant + Σ linear(source)`, and a signal passes the linear part alone. What is not affine in the signals, as
softmax, LayerNorm or a product of two activations, is a host op: the circuit ends before it and starts behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError, ModelError
from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Program
from spikecast.graph.roles import Role
from spikecast.hardware.affine import in_order, is_affine, split_affine
from spikecast.hardware.circuit.parts import Feed, Frame, HostOp, Layer, Link, Path, Source
from spikecast.network.spiking import SpikingNetwork

MAX_PATHS = 4096  # x + x, twelve times over, has that many
MAX_MATRIX = 2**25


def whole(network: SpikingNetwork) -> SpikingNetwork:
    """The network, if it is one graph from input to answer; hardware has no Python code between regions."""
    if not isinstance(network, SpikingNetwork):
        raise ModelError(
            f"this takes a whole SpikingNetwork and was given {type(network).__name__}; give what convert made without "
            "regions=, or one region: snn.networks[...]"
        )
    return network


class Circuit:
    """A network as layers of neurons and the paths of weights between them, for one size of inputs.

    Args:
        network: A network that was converted whole.
        example: Arguments of a call with the sizes that are meant; those it was captured with unless given.
        kwargs: Arguments by name of that call.

    Example:
        >>> circuit = hardware.Circuit(snn)
        >>> [(layer.name, tuple(layer.shape)) for layer in circuit.layers]
        [('1', (4, 6, 6))]
    """

    def __init__(
        self, network: SpikingNetwork, example: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.network = whole(network)
        plan, tensors = (network.plan, None) if example is None else network.prepare_call(example, kwargs or {})
        self.program: Program = plan.program
        self.flow = plan.program.flow
        shapes = [i.meta.shape for i in self.program.inputs] if tensors is None else [t.shape for t in tensors]
        self.sizes = [tuple(shape) for shape in shapes]
        self.device = network.device or torch.device("cpu")
        self.tensors = network.tensors_of(self.program)
        self.batch = self._batch()
        self._frames: dict[int, Frame] = {}
        self.sources: dict[str, Source] = {}  # by value
        self.linear: set[str] = set()  # affine in the sources, and none of them
        self._classify()
        self.layers = tuple(self._layer(node) for node in self.flow.neurons.values())
        self.outputs = tuple(self.feed(name) for name in dict.fromkeys(self.program.output_names))
        hosts = (self.flow.by_name[s.value] for s in self.sources.values() if s.kind == "host")
        self.host_ops = tuple(self._host_op(node) for node in hosts if node.target != GETITEM)

    def layer(self, site: str) -> Layer:
        return next(layer for layer in self.layers if layer.name == site)

    def refuse_leak(self, reason: str) -> None:
        """For whoever cannot carry a leak."""
        for layer in self.layers:
            if layer.neuron.leak:
                raise ConfigError(f"site {layer.name!r} has leak={layer.neuron.leak}: {reason}; convert with leak=0.0")

    def label(self, value: str) -> str:
        """What a user calls a value: its module, its site if neurons send it, or the input.

        An op has its own name besides where its module has several, and alone where it has no module.
        """
        source = self.sources.get(value)
        if source is not None and source.site is not None:
            return source.site
        inputs = [spec.name for spec in self.program.inputs]
        if value in inputs:
            return "input" if len(inputs) == 1 else f"input_{inputs.index(value)}"
        scope = self.flow.by_name[value].scope
        alone = sum(node.scope == scope for node in self.program.nodes) == 1
        return scope if scope and alone else f"{scope} ({value})" if scope else value

    # -- what is what

    def _batch(self) -> int:
        """One sample at a time, unless the batch size is pinned."""
        if self.program.batch_symbols:
            return 1
        inputs = zip(self.program.inputs, self.sizes, strict=True)
        return next((size[i.meta.batch_axis] for i, size in inputs if i.meta.batch_axis is not None), 1)

    def _classify(self) -> None:
        for spec in self.program.inputs:
            self._add_source(spec.name, "input")
        for node in self.program.nodes:
            if node.target == NEURON:
                self._add_source(node.name, "neurons", node.kwargs["site"])
            elif self._is_linear(node):
                self.linear.add(node.name)
            elif node.name not in self.flow.constant:
                self._add_source(node.name, "host")

    def _is_linear(self, node: Node) -> bool:
        if node.target == GETITEM:
            return node.inputs[0] in self.linear  # part of what a host op answers is the host's as well
        return is_affine(node, self.program, self.flow.constant)  # no mask or index out of the data

    def _add_source(self, name: str, kind: Literal["neurons", "input", "host"], site: str | None = None) -> None:
        self.sources[name] = Source(name, kind, site, self.sample_shape(name), name in self.flow.moving())

    def sample_shape(self, name: str) -> tuple[int, ...]:
        """The shape of one sample of a value; () where it is no tensor."""
        form, axis = self.form(name), self._batch_axis(name)
        return tuple(n for i, n in enumerate(form.shape) if i != axis) if isinstance(form, Tensor) else ()

    def _batch_axis(self, name: str) -> int | None:
        """The axis that holds the samples and nothing else; None where they are merged into a longer one."""
        meta = self.program.metas[name]
        axis = meta.batch_axis if isinstance(meta, Meta) else None
        return axis if axis is not None and self.form(name).shape[axis] == self.batch == 1 else None

    def _layer(self, node: Node) -> Layer:
        site = self.network.sites[node.kwargs["site"]]
        source, threshold = self.sources[node.name], self.network.threshold(site.name)
        batch, axis = self._batch_axis(node.name), site.axis
        if batch is not None:
            threshold = threshold.squeeze(batch)
            axis = axis - 1 if axis is not None and axis > batch else axis
        feed = self.feed(node.args[0].name)
        return Layer(site.name, node.name, source.shape, axis, threshold, self.network.neurons[site.name], feed)

    def _host_op(self, node: Node) -> HostOp:
        reads = [name for name in dict.fromkeys(node.inputs) if name not in self.flow.constant]
        feeds = tuple(self.feed(name) for name in reads)
        return HostOp(node.name, node.op.removeprefix("aten."), node.scope, node.name in self.flow.moving(), feeds)

    @property
    def read_outs(self) -> tuple[Feed, ...]:
        """Where the value itself is wanted, not only what changes: outputs, and what the host reads."""
        return (*self.outputs, *(feed for op in self.host_ops for feed in op.feeds))

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

    # -- what is fixed once the batch size is

    def frame(self, batch: int | None = None) -> Frame:
        """The constants of a batch size; worked out on tensors without data, and on zeros where an op needs some."""
        batch = self.batch if batch is None else batch
        if batch not in self._frames:
            try:
                forms = self._forms(batch, torch.device("meta"))
            # No kernel for tensors without data (NotImplementedError), or a size that is read from data (RuntimeError).
            except (NotImplementedError, RuntimeError):
                forms = self._forms(batch, self.device)
            values: dict[str, Any] = dict(self.tensors)
            values.update((n.name, forms[n.name]) for n in self.program.nodes if n.meta is None)
            constant = self.flow.constant - values.keys()
            self._evaluate((n for n in self.program.nodes if n.name in constant), values, self.device)
            self._frames[batch] = Frame(values, forms)
        return self._frames[batch]

    @torch.no_grad()
    def _forms(self, batch: int, device: torch.device) -> dict[str, Any]:
        env: dict[str, Any] = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        for spec, size in zip(self.program.inputs, self.sizes, strict=True):
            axis = spec.meta.batch_axis if self.program.batch_symbols else None
            shape = [batch if i == axis else n for i, n in enumerate(size)]
            env[spec.name] = torch.zeros(shape, dtype=spec.meta.dtype, device=device)
        self._evaluate(self.program.nodes, env, device)
        return env

    def _evaluate(self, nodes: Iterable[Node], env: dict[str, Any], device: torch.device) -> None:
        """Run ops; neurons pass on what they read."""
        for node in nodes:
            if node.target == NEURON:
                env[node.name] = env[node.args[0].name]
            else:
                env[node.name] = node.call(lambda ref: env[ref.name], device)

    def form(self, name: str, batch: int | None = None) -> Any:
        """A tensor that tells a value's form, not its numbers; a tuple of them where an op has several results."""
        return self.frame(batch).forms[name]

    def blank(self, name: str, batch: int | None = None) -> Tensor:
        """Zeros of a value's form."""
        form = self.form(name, batch)
        return torch.zeros(form.shape, dtype=form.dtype, device=self.device)

    # -- what it does to signals

    @torch.no_grad()
    def value(self, feed: Feed, estimates: Mapping[str, Tensor], batch: int | None = None) -> Tensor:
        """What the target holds when the sources stand for these values, biases included; silent ones are left out."""
        env = dict(self.frame(batch).values)
        for source in feed.sources:
            name = source.value
            env[name] = estimates[name] if name in estimates else self.blank(name, batch)
        self._evaluate(feed.nodes, env, self.device)
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
        known = self.frame(batch).values
        for node, position, _ in links:
            values = [
                value if i == position else known[n] if n in known else self.blank(n, batch)
                for i, n in enumerate(node.inputs)
            ]
            value = node.call(in_order(values), self.device)
        return value

    def matrix(self, path: Path) -> Tensor:
        """The weights of a path, [entries of the target, entries of the source], of one sample; for small ones."""
        source, target = self.form(path.source.value), self.form(path.target)
        if source.numel() * target.numel() > MAX_MATRIX:
            raise DataError(
                f"the weights from {path.source.value!r} to {path.target!r} are {target.numel()} x {source.numel()}, "
                f"the bound is {MAX_MATRIX}; take the path's ops instead"
            )
        columns = list(self.columns(path.links, path.source.value))
        return torch.stack(columns, 1) if columns else torch.zeros(target.numel(), 0)

    def columns(self, links: Sequence[Link], source: str) -> Iterator[Tensor]:
        """What arrives, flattened, when one entry of the source after the other sends 1 and all else is silent."""
        shape = self.form(source).shape
        for i in range(shape.numel()):
            unit = self.blank(source).flatten()
            unit[i] = 1
            yield self.along(links, unit.reshape(shape)).flatten()

    def __repr__(self) -> str:
        neurons = sum(math.prod(layer.shape) for layer in self.layers)
        return f"Circuit({len(self.layers)} layers, {neurons} neurons, {len(self.host_ops)} host ops)"
