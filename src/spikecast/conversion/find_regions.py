"""regions="auto": the largest parts of a model that can be captured, found from the root down."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.batches import Call
from spikecast.config import Config
from spikecast.conversion.prepare import prepare
from spikecast.errors import CaptureError, ModelError, SpikecastError, StrictError
from spikecast.graph.calls import call_leaves, cloned
from spikecast.graph.structure import flatten, unflatten
from spikecast.network.base import Network
from spikecast.network.regions import RegionNetwork, shadow, submodule
from spikecast.network.spiking import SpikingNetwork

_PLAIN = (Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, Enum)


@torch.no_grad()
def find_regions(model: nn.Module, call: Call, config: Config, *, strict: bool = False) -> Network:
    """The model captured whole where it can be, else by its largest parts that can; without thresholds."""
    try:
        return prepare(model, call, config, strict=strict)
    except CaptureError as error:
        whole = error
    finder = _Finder(model, config, strict)
    finder.search(call)
    while not finder.stands_in(call):  # a part that was taken cannot be exchanged: its own parts are next
        finder.search(call)
    resized = finder.resized(call)
    if config.num_steps > 1:
        for name in resized:
            del finder.found[name]
    if not finder.found:
        raise ModelError(
            f"regions='auto' finds no part of {type(model).__name__} that can be captured and has weights; "
            "keep Python code that depends on values out of the modules with weights"
        ) from whole
    network = RegionNetwork(model, finder.found, config)
    share = finder.share(call)
    network.add_note(
        f"regions found: {', '.join(finder.found)}; {share:.1%} of the multiply-accumulates of the whole forward are "
        "inside (of the first batch, counted by torch, borders included)"
    )
    for name in resized:
        what = "left out" if config.num_steps > 1 else "one step only"
        network.add_note(f"{name}: {what}, since the size of its input depends on what the network sees")
    return network


class _Finder:
    """Runs a copy of the model that says what is called, and tries each part at its first call."""

    def __init__(self, model: nn.Module, config: Config, strict: bool) -> None:
        self.model, self.config, self.strict = model, config, strict
        self.tried: dict[str, SpikingNetwork | None] = {}  # None: no region
        self.found: dict[str, SpikingNetwork] = {}  # in the order they are called
        self.sizes: dict[str, list[list[torch.Size]]] = {}  # of the inputs of each call of each region

    def search(self, call: Call) -> None:
        """One run of the forward. What was tried in an earlier one is not tried again."""
        self.found = {}
        names = [name for name, _ in self.model.named_modules() if name]
        self._run(call, {name: partial(self._called, name) for name in names})

    def _run(self, call: Call, before: Mapping[str, Any], after: Mapping[str, Any] | None = None) -> None:
        """Run a copy with hooks; it shares the model's weights, not its buffers, to which it may write."""
        watched = copy.deepcopy(self.model, {id(p): p for p in self.model.parameters()})
        for name, hook in before.items():
            watched.get_submodule(name).register_forward_pre_hook(hook, with_kwargs=True)
        for name, hook in (after or {}).items():
            watched.get_submodule(name).register_forward_hook(hook)
        args, kwargs = cloned(call)
        watched(*args, **kwargs)

    def _called(self, name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        part = submodule(self.model, name)
        taken = [submodule(self.model, other) for other in self.found]
        if any(part in one.modules() or one in part.modules() for one in taken):
            return
        if name not in self.tried:
            self._try(name, part, (args, kwargs))
        network = self.tried[name]
        if network is not None:
            self.found[name] = network

    def _try(self, name: str, part: nn.Module, call: Call) -> None:
        self.tried[name] = None
        if not part.state_dict() or not _is_plain(flatten(call)[0]):
            return
        first = not self.found  # only the first may read the model's own input as it is
        try:
            network = prepare(part, call, self.config, strict=self.strict, prefix=name, raw_inputs=first)
        except StrictError:
            raise
        except SpikecastError:
            return
        if network.plan.program.dropped:  # the model around it may read what is left out of the answer
            return
        if any(row.macs for row in network.report.rows):
            self.tried[name] = network
        else:  # nor is there anything to convert inside
            self.tried |= dict.fromkeys(inner for inner, _ in part.named_modules(prefix=name))

    def stands_in(self, call: Call) -> bool:
        """Whether the model runs with the captured networks in place; one that hinders it is no region."""
        stand_ins = {name: _StandIn(network) for name, network in self.found.items()}
        try:
            args, kwargs = cloned(call)
            shadow(self.model, stand_ins)(*args, **kwargs)
        except (SpikecastError, AttributeError, TypeError):
            # A later call that cannot be captured, or a look at an attribute or an item of the part.
            hinders = [n for n, s in stand_ins.items() if s.failed]
            if not hinders:
                raise
            self.tried |= dict.fromkeys(hinders)
            return False
        self.sizes = {name: stand_in.sizes for name, stand_in in stand_ins.items()}
        return True

    def resized(self, call: Call) -> list[str]:
        """Regions whose number of calls or sizes of inputs change where the regions before answer less exactly."""
        stand_ins = {name: _StandIn(network, noise=0.5) for name, network in self.found.items()}
        try:
            args, kwargs = cloned(call)
            shadow(self.model, stand_ins)(*args, **kwargs)
        except Exception:  # a forward that refuses such values tells nothing
            return []
        return [name for name, stand_in in stand_ins.items() if stand_in.sizes != self.sizes[name]]

    def share(self, call: Call) -> float:
        """Share of the multiply-accumulates that is inside of the regions, by one count for inside and outside."""
        from torch.utils.flop_counter import FlopCounterMode  # and Triton with it

        counter = FlopCounterMode(display=False)
        at_entry, inside = 0, 0

        def enter(*_: Any) -> None:
            nonlocal at_entry
            at_entry = counter.get_total_flops()

        def leave(*_: Any) -> None:
            nonlocal inside
            inside += counter.get_total_flops() - at_entry

        with warnings.catch_warnings(), counter:
            warnings.simplefilter("ignore")  # modules that are called again by themselves confuse its table
            self._run(call, dict.fromkeys(self.found, enter), dict.fromkeys(self.found, leave))
        return inside / max(counter.get_total_flops(), 1)


class _StandIn(nn.Module):
    """Stands in for a part while the model runs: answers like it, or not quite, and notes the sizes of its inputs."""

    def __init__(self, network: SpikingNetwork, noise: float = 0.0) -> None:
        super().__init__()
        self.network = (network,)  # in a tuple: not a part of us
        self.noise, self.random = noise, torch.Generator().manual_seed(0)
        self.sizes: list[list[torch.Size]] = []
        self.failed = False
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.sizes.append([tensor.shape for tensor in call_leaves(args, kwargs)[0]])
        try:
            leaves, form = flatten(self.network[0].analog(*args, **kwargs))
        except SpikecastError:
            self.failed = True
            raise
        return unflatten(form, [self._disturbed(leaf) for leaf in leaves])

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            self.failed = True
            raise

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        self.failed = True
        raise TypeError("a network stands in for a part, and has no parts of its own")

    def __getitem__(self, _: Any) -> Any:
        return len(self)

    def _disturbed(self, leaf: Any) -> Any:
        if not self.noise or not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        factor = 1 + self.noise * torch.randn(leaf.shape, generator=self.random)
        return leaf * factor.to(leaf)


def _is_plain(leaves: Any) -> bool:
    """Whether nothing among them hides tensors, as an object of the user's own may."""
    return all(isinstance(leaf, _PLAIN) for leaf in leaves)
