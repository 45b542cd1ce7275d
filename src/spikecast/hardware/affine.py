"""Ops that are affine in the signals they read: which ones are, and how they come apart into synapses and a bias."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from spikecast.graph.program import Meta, Node, Program, Ref
from spikecast.graph.roles import Role
from spikecast.graph.turns import capturing

_LINEAR = (Role.SHAPE, Role.AFFINE, Role.SUM, Role.SYNAPSE)
_LOOK_UPS = {"aten.embedding", "aten.embedding_bag"}  # integers in: no signal passes


def is_wire(meta: Any) -> bool:
    """Whether a value carries signals: numbers with a fraction; indices and masks are known or recomputed as such."""
    return isinstance(meta, Meta) and (meta.dtype.is_floating_point or meta.dtype.is_complex)


def is_affine(node: Node, program: Program, known: Collection[str]) -> bool:
    """Whether an op is affine in what it reads, if all that carries no signals is among the `known` values."""
    flow = program.flow
    signals = flow.sources[node.name]
    if not signals or flow.roles[node.name] not in _LINEAR or node.op in _LOOK_UPS:
        return False
    results = node.meta if isinstance(node.meta, tuple) else (node.meta,)
    return all(name in known or name in signals for name in node.inputs) and all(map(is_wire, results))


def in_order(values: Iterable[Any]) -> Callable[[Ref], Any]:
    """A look-up for `Node.call` that answers an op's references one after the other, by place and not by name."""
    given = iter(values)
    return lambda _: next(given)


def split_affine(function: Callable[..., Any], *signals: Tensor) -> tuple[Any, Any]:
    """An affine function taken apart: its linear part on some signals, and its constant F(0).

    The linear part is the derivative along the signals, in which no bias can round. Forward-mode differentiation
    therefore gives the bias-free synapse of every op there is, and none needs a line of its own.
    """
    _warm_up()
    with forward_ad.dual_level():
        out = function(*(forward_ad.make_dual(torch.zeros_like(s), s) for s in signals))
        if not isinstance(out, list | tuple):
            return _unpack(out)
        parts = [_unpack(o) for o in out]
    return [linear for linear, _ in parts], [constant for _, constant in parts]


@cache
def _warm_up() -> None:
    """Let torch load its rules of differentiation; they warn of torch.jit, which is no concern of the caller."""
    with capturing(), warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore", FutureWarning)
        forward_ad.make_dual(torch.zeros(1), torch.zeros(1))


def _unpack(dual: Tensor) -> tuple[Tensor, Tensor]:
    primal, tangent = forward_ad.unpack_dual(dual)
    return torch.zeros_like(primal) if tangent is None else tangent, primal
