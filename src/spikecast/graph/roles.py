"""What each op means for a spiking network: one table, one line per op, which `register_op` extends.

An op that is not here is treated as NONLINEAR and reported as unknown; nothing is left out silently.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

import torch

from spikecast.errors import ConfigError
from spikecast.graph.program import GETITEM, NEURON, Meta, Node, Ref


class Role(Enum):
    """How an op treats encoded values."""

    CONTROL = "control"  # integers, booleans, sizes: no activation passes through
    SHAPE = "shape"  # moves or averages: spikes stay (weighted) spikes
    AFFINE = "affine"  # scale or shift by constants
    SUM = "sum"  # adds activations
    PRODUCT = "product"  # multiplies activations elementwise
    MATMUL = "matmul"  # multiplies activations as matrices: both operands are fed by spikes
    SYNAPSE = "synapse"  # weights times activations: fed by spikes
    RECTIFIER = "rectifier"  # a clamp to an interval around 0: becomes a neuron
    NONLINEAR = "nonlinear"  # anything else: a graded unit
    NEURON = "neuron"  # sends spikes


def _table(groups: Mapping[Role, str]) -> dict[str, Role]:
    return {f"aten.{name}": role for role, names in groups.items() for name in names.split()}


ROLES: dict[str, Role] = _table(
    {
        Role.SHAPE: """
        reshape view flatten unflatten permute transpose t movedim swapaxes numpy_T mT squeeze unsqueeze expand
        expand_as broadcast_to slice select narrow split split_with_sizes chunk unbind tensor_split cat concat stack
        hstack vstack index_select index gather take_along_dim flip roll rot90 repeat repeat_interleave tile
        pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle unfold im2col col2im diagonal tril triu
        as_strided select_scatter slice_scatter diagonal_scatter copy clone contiguous to _to_copy type_as
        mean sum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
        _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
        _upsample_nearest_exact1d _upsample_nearest_exact2d upsample_linear1d upsample_bilinear2d upsample_trilinear3d
        upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa reflection_pad1d reflection_pad2d
        reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pad constant_pad_nd zeros_like cumsum
        meshgrid
        """,
        Role.AFFINE: """
        neg batch_norm where masked_fill embedding fill rsub ones_like full_like new_ones new_zeros new_full
        zeros ones full scalar_tensor arange linspace eye
        """,
        Role.SUM: "add sub index_add scatter_add diff",
        Role.PRODUCT: "mul addcmul dot",
        # With a constant factor these are synapses, as every linear layer is: see _weighted.
        Role.MATMUL: "matmul bmm mm mv baddbmm einsum addmm addbmm tensordot linear bilinear",
        Role.SYNAPSE: """
        conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d embedding_bag
        """,
        Role.RECTIFIER: "relu relu6 hardtanh clamp clamp_min clamp_max threshold",
        Role.NONLINEAR: """
        gelu silu mish sigmoid hardsigmoid hardswish tanh softmax _softmax _safe_softmax log_softmax _log_softmax
        softplus softsign softshrink hardshrink tanhshrink leaky_relu prelu _prelu_kernel rrelu elu selu celu glu
        log_sigmoid erf exp expm1 log log1p log2 sqrt rsqrt pow square abs sign reciprocal sin cos tan atan atan2
        sinh cosh layer_norm native_layer_norm group_norm native_group_norm instance_norm rms_norm local_response_norm
        linalg_vector_norm norm cosine_similarity var std var_mean std_mean max_pool1d max_pool2d max_pool3d
        max_pool2d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d amax amin max min maximum
        minimum logsumexp div floor ceil round trunc frac remainder fmod topk sort argmax argmin cumprod prod lerp
        grid_sampler grid_sampler_2d nan_to_num logit xlogy heaviside median
        """,
        Role.CONTROL: """
        eq ne lt le gt ge logical_not logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or bitwise_xor
        isnan isinf isfinite any all nonzero sym_size is_nonzero floor_divide __and__ __or__ bucketize searchsorted
        """,
    }
)
BUILT_IN = frozenset(ROLES)
# What a saved file may hold: a list of its own, not the table of roles. Bags read wherever their offsets lead.
SAVABLE: set[str] = {*BUILT_IN} - {"aten.embedding_bag"}
ADDED = frozenset(("aten.addmm", "aten.baddbmm", "aten.addbmm"))  # what is added to the product comes first

_INTERVALS: dict[str, tuple[float, float] | None] = {}  # of rectifiers that a user registered
_FACTORIES = {"aten.new_ones", "aten.new_zeros", "aten.new_full", "aten.zeros_like", "aten.ones_like", "aten.full_like"}


def register_op(
    name: str, role: Role | str, *, interval: tuple[float, float] | None = None, savable: bool = False
) -> None:
    """Teach an op: what it means for networks that are converted from now on.

    Args:
        name: Such as "aten.foo" or "mylib.foo".
        role: A Role or its name: control, shape, affine, sum, product, matmul, synapse, rectifier, nonlinear.
        interval: (low, high) of a rectifier, which is the clamp to it; it holds 0.
        savable: True lets this process save and load networks that hold the op; it then runs on what a file gives it.

    Example:
        >>> spikecast.register_op("aten.asinh", "nonlinear", savable=True)
    """
    if not re.fullmatch(r"[A-Za-z_]\w*\.[A-Za-z_]\w*", str(name)):
        raise ConfigError(f"register_op: {name!r} is no op; give its namespace and name, as in 'aten.foo'")
    if name in BUILT_IN:
        raise ConfigError(f"register_op: {name} is known as {ROLES[name].value}; only other ops can be taught")
    space, _, op = name.partition(".")
    if getattr(getattr(torch.ops, space), op, None) is None:
        raise ConfigError(f"register_op: this torch ({torch.__version__}) has no op {name}; define it first")
    chosen = _role_named(role)
    bounds = _checked_interval(interval, chosen)
    ROLES[name], _INTERVALS[name] = chosen, bounds
    (SAVABLE.add if savable else SAVABLE.discard)(name)


def _role_named(role: Role | str) -> Role:
    chosen = Role.__members__.get(role.upper()) if isinstance(role, str) else role
    if not isinstance(chosen, Role) or chosen is Role.NEURON:
        names = ", ".join(r.value for r in Role if r is not Role.NEURON)
        raise ConfigError(f"register_op: role={role!r} is not one of {names}")
    return chosen


def _checked_interval(interval: Any, role: Role) -> tuple[float, float] | None:
    if (interval is not None) != (role is Role.RECTIFIER):
        raise ConfigError(f"register_op: interval={interval!r} with the role {role.value}; only a rectifier has one")
    if interval is None:
        return None
    numbers = isinstance(interval, tuple | list) and len(interval) == 2
    if not numbers or not all(isinstance(bound, int | float) for bound in interval) or not _holds_zero(*interval):
        raise ConfigError(f"register_op: interval={interval!r} is not (low, high) with low <= 0 <= high, low < high")
    return float(interval[0]), float(interval[1])


def _holds_zero(low: float, high: float) -> bool:
    return low <= 0 <= high and low < high


def role_of(node: Node, metas: Mapping[str, Any], still: Collection[str]) -> Role | None:
    """The role of an op given which of its inputs are activations; None where the table does not know it.

    `still` holds the values that depend on no input: weights and what is made of them.
    """
    if node.target == NEURON:
        return Role.NEURON
    if node.is_size:
        return Role.CONTROL
    active = activations(node, metas, still)
    if node.target == GETITEM:
        parts = metas.get(node.args[0].name)
        return Role.SHAPE if active or (isinstance(parts, tuple) and any(map(_is_float, parts))) else Role.CONTROL
    role = ROLES.get(node.op)
    if node.op in _FACTORIES or (not active and node.op != "aten.embedding" and role is not None):
        return Role.CONTROL
    if role is None or role is Role.CONTROL:
        return Role.NONLINEAR if role else None
    if role is Role.RECTIFIER:
        return Role.RECTIFIER if interval(node) is not None else Role.NONLINEAR
    return _by_operands(node, role, active)


def _by_operands(node: Node, role: Role, active: list[str]) -> Role:
    """Where the number of activations among the operands decides."""
    if role is Role.SYNAPSE:
        kernel = [a.name for a in node.args[1:2] if isinstance(a, Ref)]
        return Role.NONLINEAR if kernel and kernel[0] in active else Role.SYNAPSE
    if role is Role.MATMUL:
        number = sum(r.name in active for r in matmul_operands(node))
        return (Role.AFFINE, Role.SYNAPSE, Role.MATMUL)[min(number, 2)]  # none: only what is added is an activation
    if role in (Role.SUM, Role.PRODUCT) and len(active) < 2:
        return Role.AFFINE
    if node.op == "aten.div" and isinstance(node.args[0], Ref) and active == [node.args[0].name]:
        return Role.NONLINEAR if node.kwargs.get("rounding_mode") else Role.AFFINE
    if _pads_with_other_than_zero(node):
        return Role.AFFINE
    return role


def activations(node: Node, metas: Mapping[str, Any], still: Collection[str]) -> list[str]:
    """The floating-point inputs of an op that depend on the network's input; x·x uses two."""
    return [n for n in node.inputs if n not in still and _is_float(metas.get(n))]


def _is_float(meta: Any) -> bool:
    return isinstance(meta, Meta) and (meta.dtype.is_floating_point or meta.dtype.is_complex)


def interval(node: Node) -> tuple[float, float] | None:
    """The interval a clamp keeps values in; None where it lacks 0 or is not made of numbers."""
    low: Any
    high: Any
    match node.op:
        case "aten.relu":
            low, high = 0.0, None
        case "aten.relu6":
            low, high = 0.0, 6.0
        case "aten.hardtanh":
            low, high = node.argument(1, "min_val", -1.0), node.argument(2, "max_val", 1.0)
        case "aten.clamp":
            low, high = node.argument(1, "min"), node.argument(2, "max")
        case "aten.clamp_min":
            low, high = node.argument(1, "min"), None
        case "aten.clamp_max":
            low, high = None, node.argument(1, "max")
        case "aten.threshold":
            low, high = node.args[1], None
            if node.args[2] != low:
                return None
        case _:
            return _INTERVALS.get(node.op)
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if not all(isinstance(bound, int | float) for bound in (low, high)) or not _holds_zero(low, high):
        return None
    return float(low), float(high)


def matmul_operands(node: Node) -> list[Ref]:
    """The two factors of a matrix product, whatever is added to it."""
    if node.op == "aten.einsum":
        return [r for r in node.args[1] if isinstance(r, Ref)]
    first = int(node.op in ADDED)
    return [r for r in node.args[first : first + 2] if isinstance(r, Ref)]


def _pads_with_other_than_zero(node: Node) -> bool:
    if node.op == "aten.constant_pad_nd":
        return bool(node.argument(2, "value", 0))
    is_constant = node.op == "aten.pad" and node.argument(2, "mode", "constant") == "constant"
    return is_constant and bool(node.argument(3, "value", 0))
