"""What each op of a converted network is on a chip: synapses, graded units, products, neurons.

The kinds are read off the program alone, so that a network loaded from a file has them too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Program, Ref, replace_refs, resolve
from spikecast.graph.roles import ROLES, Role, role_of

_LINEAR = (Role.SHAPE, Role.AFFINE, Role.SUM, Role.SYNAPSE)
# Where the two factors of a product stand among its tensors, if not in front: what is added comes first.
_FACTORS = {f"aten.{name}": (1, 2) for name in ("addcmul", "addmm", "baddbmm", "addbmm")}
_MAY_ADD = {*_FACTORS, "aten.linear"}


class Unit(Enum):
    """How an op turns what arrives at one step into what it sends."""

    FIXED = "fixed"  # known before step 1: weights, sizes, integer inputs and what is made of them
    NEURON = "neuron"  # spikes (Thm 4.4)
    LINEAR = "linear"  # synapses without bias; the bias is a source (Thm 4.5)
    PRODUCT = "product"  # a graded unit with two inputs and three products (Thm 4.3)
    GRADED = "graded"  # a graded unit (Thm 4.2)
    PART = "part"  # one of several results


def units(program: Program) -> dict[str, Unit]:
    """The unit of each op. An op that the table of roles does not know is a graded unit."""
    metas, still = program.metas, program.flow.constant
    fixed = still | {i.name for i in program.inputs if not is_wire(i.meta)}
    found: dict[str, Unit] = {}
    for node in program.nodes:
        found[node.name] = _unit(node, metas, still, fixed)
        if found[node.name] is Unit.FIXED:
            fixed.add(node.name)
    return found


def _unit(node: Node, metas: Mapping[str, Any], still: set[str], fixed: set[str]) -> Unit:
    if node.target == NEURON:
        return Unit.NEURON
    names = node.inputs
    known = all(name in fixed for name in names)
    if node.name in still or (known and isinstance(node.meta, Meta) and not is_wire(node.meta)):
        return Unit.FIXED
    if node.target == GETITEM:
        return Unit.PART
    wires = [name for name in names if name not in fixed and is_wire(metas[name])]
    others_known = all(name in fixed or is_wire(metas[name]) for name in names)
    if not wires or not others_known or not _all_wires(node.meta):
        return Unit.GRADED
    role = role_of(node, metas, still)
    if role in _LINEAR:
        return Unit.LINEAR
    return Unit.PRODUCT if role in (Role.PRODUCT, Role.MATMUL) and _is_bilinear(node) else Unit.GRADED


def is_wire(meta: Any) -> bool:
    """Whether a value carries signals: numbers with a fraction; indices and masks are known or recomputed as such."""
    return isinstance(meta, Meta) and (meta.dtype.is_floating_point or meta.dtype.is_complex)


def _all_wires(meta: Any) -> bool:
    return all(is_wire(m) for m in meta) if isinstance(meta, tuple) else is_wire(meta)


def _is_bilinear(node: Node) -> bool:
    count = len(node.inputs)
    return node.op != "aten.bilinear" and (count == 2 or (count == 3 and node.op in _MAY_ADD))


def factors(node: Node) -> tuple[int, int]:
    """Where the two factors of a product stand among the values it reads."""
    assert node.op in ROLES
    return _FACTORS.get(node.op, (0, 1))


def call(node: Node, values: Sequence[Any]) -> Any:
    """The op on values for its references, in their order."""
    given = iter(values)

    def take(_: Ref) -> Any:
        return next(given)

    args = replace_refs(node.args, take)
    return resolve(node.target)(*args, **replace_refs(dict(node.kwargs), take))


def recast(value: Any, dtype: torch.dtype | None, device: torch.device) -> Any:
    """Arguments that name a device or, if `dtype` is given, a floating-point type, with ours instead."""
    if isinstance(value, torch.device):
        return device
    if isinstance(value, torch.dtype) and dtype is not None and value.is_floating_point:
        return dtype
    if isinstance(value, Tensor) and dtype is not None and value.is_floating_point():
        return value.to(dtype)
    if isinstance(value, list | tuple):
        return type(value)(recast(item, dtype, device) for item in value)
    if isinstance(value, dict):
        return {key: recast(item, dtype, device) for key, item in value.items()}
    return value


def split_affine(node: Node, values: Sequence[Any], signals: Sequence[int]) -> tuple[Any, Any]:
    """An affine op taken apart: its linear part on the signals (their places are given), and its constant F(0).

    The linear part of an affine op is its derivative. Forward-mode differentiation therefore gives the bias-free
    synapse of every op there is, and none needs a line of its own.
    """
    places = set(signals)
    _warm_up()
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(torch.zeros_like(v), v) if i in places else v for i, v in enumerate(values)]
        out = call(node, duals)
        parts = [_unpack(o) for o in (out if isinstance(out, list | tuple) else (out,))]
    if isinstance(out, list | tuple):
        return [linear for linear, _ in parts], [constant for _, constant in parts]
    return parts[0]


@cache
def _warm_up() -> None:
    """Let torch load its rules of differentiation; they warn of torch.jit, which is no concern of the caller."""
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore", FutureWarning)
        forward_ad.make_dual(torch.zeros(1), torch.zeros(1))


def _unpack(dual: Tensor) -> tuple[Tensor, Tensor]:
    found = forward_ad.unpack_dual(dual)
    primal, tangent = found.primal, found.tangent
    return torch.zeros_like(primal) if tangent is None else tangent, primal
