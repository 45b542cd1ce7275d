"""What a multi-threshold neuron may send: three implementations of one spike, each with the weights that read it.

value        implementation 1: the transmitted value ±λ_i itself, one number per neuron and step
one_hot      implementation 2: binary spikes on a threshold axis of size 2n, one at most; weights W·λ_i
thermometer  for targets with plain comparators: all comparators up to the level; weights W·(λ_i - λ_{i+1})

They are made from the level that fired, after the guard of a rectifying neuron has had its say: the guard acts on the
comparators as it acts on the level. λ_i = θ/2**(i-1), so that an expanded weight is W·θ shifted, to the bit.
A burst sends one pulse after the other: levels [T, burst, ...] give [T, burst, ..., wires], and a synapse reads each.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError
from spikecast.theory.firing import level_index, level_value, thermometer_weights

Form = Literal["value", "one_hot", "thermometer"]


def size(form: Form, num_levels: int) -> int:
    """How many wires a neuron has in a form."""
    if form not in get_args(Form):
        raise ConfigError(f"form={form!r} must be one of {', '.join(map(repr, get_args(Form)))}")
    return 1 if form == "value" else 2 * num_levels


def axis_values(form: Form, num_levels: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What a spike on each wire of the threshold axis stands for, in units of θ."""
    if size(form, num_levels) == 1:
        return torch.ones(1, dtype=dtype)
    if form == "thermometer":
        return thermometer_weights(num_levels, dtype)
    levels = torch.arange(1, num_levels + 1)
    return level_value(torch.cat([levels, -levels]), dtype)


def spikes(levels: Tensor, num_levels: int, form: Form, dtype: torch.dtype = torch.float32) -> Tensor:
    """What is sent for signed level indices, [..., wires]: binary, or the value in units of θ."""
    if levels.numel() and int(levels.abs().max()) > num_levels:
        raise DataError(f"a level of {int(levels.abs().max())} is above num_levels={num_levels}; give the site's own")
    if size(form, num_levels) == 1:
        return level_value(levels, dtype).unsqueeze(-1)
    index = torch.arange(1, num_levels + 1, device=levels.device)
    fired = levels.long().unsqueeze(-1)
    size_of = fired.abs()
    hit = (index == size_of) if form == "one_hot" else (index >= size_of) & (size_of > 0)
    return torch.cat([hit & (fired > 0), hit & (fired < 0)], -1).to(dtype)


def levels_of(sent: Tensor, num_levels: int, form: Form) -> Tensor:
    """The signed level indices behind what was sent; the inverse of `spikes`."""
    return level_index(sent @ axis_values(form, num_levels, sent.dtype).to(sent.device))


def on_channels(sent: Tensor, axis: int) -> Tensor:
    """Spikes [..., C, ..., wires] with the threshold axis laid into the channels: [..., C·wires, ...]."""
    return sent.movedim(-1, axis + 1).flatten(axis, axis + 1)


def expanded_weight(
    weight: Tensor, threshold: Tensor, num_levels: int, form: Form, *, groups: int = 1, axis: int = 1
) -> Tensor:
    """The weights that read a form: each input channel becomes one per wire, times what a spike on it stands for.

    weight is that of a linear layer or of a convolution, [out, in/groups, ...], threshold one number or one per input
    channel. A transposed convolution, [in, out/groups, ...], has its input channels on axis 0.
    """
    wires = axis_values(form, num_levels, weight.dtype).to(weight.device)
    own = threshold.to(weight.dtype).flatten()
    if axis == 1:  # a layer's one threshold is that of each channel
        scaled = weight * by_input(own.expand(weight.shape[1] * groups), weight)
    else:
        scaled = weight * own.reshape(-1, *[1] * (weight.dim() - 1))
    factors = wires.reshape(-1, *[1] * (weight.dim() - axis - 1))
    return (scaled.unsqueeze(axis + 1) * factors).flatten(axis, axis + 1)


def by_input(scales: Tensor, weight: Tensor) -> Tensor:
    """Scales of input channels as weights [out, in/groups, ...] see them: a filter reads the channels of its group."""
    groups = scales.numel() // weight.shape[1]
    by_group = scales.reshape(groups, -1).repeat_interleave(weight.shape[0] // groups, 0)
    return by_group.reshape(*weight.shape[:2], *[1] * (weight.dim() - 2))
