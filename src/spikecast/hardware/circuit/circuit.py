"""The circuit of a converted network: layers of neurons, and the linear wiring that feeds each of them.

Between sources (neurons, inputs, host ops) and targets (neurons, outputs, host ops) everything is affine: the target
holds `constant + Σ linear(source)`, and a signal passes the linear part alone. What is not affine in the signals, as
softmax, LayerNorm or a product of two activations, is a host op: the circuit ends before it and starts behind it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from spikecast.errors import DataError, ModelError
from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Program, Ref, resolve
from spikecast.graph.roles import Role, activations, role_of
from spikecast.hardware.circuit.forms import Forms, Frame, arguments
from spikecast.hardware.circuit.parts import Feed, HostOp, Layer, Link, Path, Source

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork

MAX_PATHS = 4096  # x + x, twelve times over, has that many
MAX_MATRIX = 2**25
_LINEAR = (Role.SHAPE, Role.AFFINE, Role.SUM, Role.SYNAPSE)
_LOOK_UPS = {"aten.embedding", "aten.embedding_bag"}  # integers in: no signal passes


class Circuit:
    """Read off a network for inputs of the sizes it was captured with, or of those of an example call."""

    def __init__(
        self, snn: SpikingNetwork, example: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.snn = snn
        plan, tensors = (snn.plan, None) if example is None else snn.prepare_call(example, kwargs or {})
        self.program: Program = plan.program
        self.tensors = snn.tensors_of(self.program)
        self.sizes = [tuple(i.meta.shape) for i in self.program.inputs]
        if tensors is not None:
            self.sizes = [tuple(t.shape) for t in tensors]
        self.batch = self._batch()
        self.forms = Forms(self.program, self.tensors, self.sizes, snn.device or torch.device("cpu"))
        self.still = self.forms.still
        self.moving = self.program.flow.moving(False)
        self.by_name = {node.name: node for node in self.program.nodes}
        self.roles = {n.name: role_of(n, self.program.metas, self.still) for n in self.program.nodes}
        self.sources: dict[str, Source] = {}  # by value
        self.linear: set[str] = set()  # affine in the sources, and none of them
        self._classify()
        self.layers = tuple(self._layer(n) for n in self.program.nodes if n.target == NEURON)
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
            elif node.name in self.still:
                continue
            elif self._is_affine(node):
                self.linear.add(node.name)
            else:
                self._add_source(node.name, "host", None, forms)

    def _is_affine(self, node: Node) -> bool:
        data = [name for name in node.inputs if name not in self.still]
        known = all(name in self.linear or name in self.sources for name in data)
        if node.target == GETITEM:
            return data[0] in self.linear  # part of what a host op answers is the host's as well
        if self.roles[node.name] not in _LINEAR or node.op in _LOOK_UPS or not known:
            return False
        return set(data) <= set(activations(node, self.program.metas, self.still))  # no mask or index out of the data

    def _add_source(self, name: str, kind: Literal["neurons", "input", "host"], site: str | None, forms: Any) -> None:
        form = forms[name]
        shape = self._sample_shape(name, form) if isinstance(form, Tensor) else ()
        self.sources[name] = Source(name, kind, site, shape, name in self.moving)

    def _sample_shape(self, name: str, form: Tensor) -> tuple[int, ...]:
        axis = self._batch_axis(name, form)
        return tuple(size for i, size in enumerate(form.shape) if i != axis)

    def _batch_axis(self, name: str, form: Tensor) -> int | None:
        """The axis that holds the samples and nothing else; None where they are merged into a longer one."""
        meta = self.program.metas[name]
        axis = meta.batch_axis if isinstance(meta, Meta) else None
        return axis if axis is not None and form.shape[axis] == self.batch == 1 else None

    def _layer(self, node: Node) -> Layer:
        site = self.snn.sites[node.kwargs["site"]]
        source, threshold, form = self.sources[node.name], self.snn.threshold(site.name), self._form(node.name)
        batch, axis = self._batch_axis(node.name, form), site.axis
        if batch is not None:
            threshold = threshold.squeeze(batch)
            axis = axis - 1 if axis is not None and axis > batch else axis
        feed = self.feed(node.args[0].name)
        return Layer(site.name, node.name, source.shape, axis, threshold, self.snn.neurons[site.name], feed)

    def _is_host(self, node: Node) -> bool:
        found = self.sources.get(node.name)
        return found is not None and found.kind == "host" and node.target != GETITEM

    def _host_op(self, node: Node) -> HostOp:
        reads = [name for name in dict.fromkeys(node.inputs) if name not in self.still]
        feeds = tuple(self.feed(name) for name in reads)
        return HostOp(node.name, node.op.removeprefix("aten."), node.scope, node.name in self.moving, feeds)

    def feed(self, target: str) -> Feed:
        """What arrives at a value, back to the nearest sources."""
        seen: set[str] = set()
        wanted = [target]
        while wanted:
            name = wanted.pop()
            if name not in seen:
                seen.add(name)
                wanted += self.by_name[name].inputs if name in self.linear else ()
        sources = tuple(source for name, source in self.sources.items() if name in seen)
        return Feed(target, sources, tuple(n for n in self.program.nodes if n.name in seen and n.name in self.linear))

    def paths(self, feed: Feed) -> list[Path]:
        """All ways from the sources to the target, from the target's end backwards; x + x has two."""
        found: list[Path] = []
        for name, links in self._ways(feed.target):
            found.append(Path(self.sources[name], links, feed.target))
            if len(found) > MAX_PATHS:
                raise ModelError(f"more than {MAX_PATHS} paths lead to {feed.target!r}; take its feed as a whole")
        return found

    def _ways(self, name: str) -> Iterator[tuple[str, tuple[Link, ...]]]:
        if name in self.sources:
            yield name, ()
        elif name in self.linear:
            node, role = self.by_name[name], self.roles[name] or Role.SHAPE
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
        return self._value(feed, estimates, self.batch if batch is None else batch)

    def _value(self, feed: Feed, estimates: Mapping[str, Tensor], size: int) -> Tensor:
        env = dict(self.forms.frame(size).values)
        for source in feed.sources:
            env[source.value] = estimates[source.value] if source.value in estimates else self.blank(source.value, size)
        self.forms.evaluate(feed.nodes, env)
        found: Tensor = env[feed.target]
        return found

    def constant(self, feed: Feed) -> Tensor:
        """What the target holds when every source is zero: all biases on the way."""
        return self.value(feed, {})

    @torch.no_grad()
    def signal(self, feed: Feed, signals: Mapping[str, Tensor], batch: int | None = None) -> Tensor:
        """What arrives at the target when these signals are sent: linear, no bias; silent sources are left out."""
        sent = {s.value: signals[s.value] for s in feed.sources if s.value in signals}
        if not sent:
            return self.blank(feed.target, batch)
        zeros = tuple(torch.zeros_like(x) for x in sent.values())

        def function(*values: Tensor) -> Tensor:
            return self._value(feed, dict(zip(sent, values, strict=True)), self.batch if batch is None else batch)

        return _tangent(function, zeros, tuple(sent.values()))

    @torch.no_grad()
    def along(self, links: Sequence[Link], signal: Tensor, batch: int | None = None) -> Tensor:
        """What arrives over the links of one path alone."""
        size = self.batch if batch is None else batch
        frame = self.forms.frame(size)

        def function(value: Any) -> Any:
            for link in links:
                value = self._through(link, value, frame, size)
            return value

        return _tangent(function, (torch.zeros_like(signal),), (signal,))

    def _through(self, link: Link, value: Any, frame: Frame, batch: int) -> Any:
        """One op on what comes along the path, with zeros for all else that depends on the data."""
        places = count()

        def look_up(ref: Ref) -> Any:
            if next(places) == link.position:
                return value
            return frame.values[ref.name] if ref.name in frame.values else self.blank(ref.name, batch)

        args, kwargs = arguments(link.node, look_up, self.forms.device)
        return resolve(link.node.target)(*args, **kwargs)

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
            unit = torch.zeros(source.numel(), dtype=source.dtype, device=self.snn.device)
            unit[i] = 1
            columns.append(self.along(path.links, unit.reshape(source.shape)).flatten())
        return torch.stack(columns, 1) if columns else torch.zeros(target.numel(), 0)

    def __repr__(self) -> str:
        neurons = sum(math.prod(layer.shape) for layer in self.layers)
        return f"Circuit({len(self.layers)} layers, {neurons} neurons, {len(self.host_ops)} host ops)"


def _tangent(function: Any, at: tuple[Tensor, ...], signals: tuple[Tensor, ...]) -> Tensor:
    """The linear part of an affine function on some signals: its derivative along them, in which no bias can round.

    By two backward passes: what they compute is linear in v, and its derivative by v is the transpose again. The
    forward mode of torch would do, but starts by compiling with a deprecated part of it.
    """
    with torch.enable_grad():
        at = tuple(a.detach().requires_grad_() for a in at)
        out = function(*at)
        v = torch.zeros_like(out, requires_grad=True)
        back: tuple[Tensor | None, ...] = torch.autograd.grad(out, at, v, create_graph=True, allow_unused=True)
        used = [(b, signal) for b, signal in zip(back, signals, strict=True) if b is not None and b.requires_grad]
        found = (
            torch.autograd.grad([b for b, _ in used], v, [s for _, s in used], allow_unused=True) if used else (None,)
        )
    return torch.zeros_like(out).detach() if found[0] is None else found[0].detach()
