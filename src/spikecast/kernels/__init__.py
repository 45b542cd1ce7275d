"""Fused twins of the eager neuron, chosen by device; every one gives the same bits as `theory.neuron.encode`."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError
from spikecast.kernels.count import Count, Counts, Encoded, count_levels
from spikecast.kernels.layout import broadcasts
from spikecast.theory.neuron import Neuron
from spikecast.theory.neuron import encode as encode_eager

__all__ = ["Backend", "Count", "Counts", "Encoded", "encode"]

Backend = Literal["auto", "eager", "fused"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_PLAIN = (Tensor, torch.nn.Parameter)


def encode(
    inputs: Tensor,
    threshold: Tensor,
    neuron: Neuron,
    *,
    state: Tensor | None = None,
    leaked: Tensor | None = None,
    start: int = 1,
    want_levels: bool = False,
    count: Count | None = None,
    backend: Backend = "auto",
    overwrite: bool = False,
) -> Encoded:
    """`theory.neuron.encode` by the fastest means there is for the tensor's device, or by the one that is named.

    With `count` the spikes are counted, without a tensor of levels where the kernel is fused. With `overwrite` the
    estimates may take the place of the inputs, which the caller does not need any more.
    """
    run: dict[str, Any] = {"state": state, "start": start}
    if not _is_fused(inputs, threshold, neuron, state, start, backend):
        run |= {"leaked": leaked, "want_levels": want_levels or count is not None}
        out = encode_eager(inputs, threshold, neuron, **run)
        counts = None if count is None or out.levels is None else count_levels(out.levels, out.estimates, count)
        return Encoded(out.estimates, out.levels if want_levels else None, counts, out.leaked)
    run |= {"want_levels": want_levels, "count": count}
    if inputs.is_cpu:  # a kernel's compiler is imported with it
        from spikecast.kernels import cpu

        return cpu.encode(inputs, threshold, neuron, overwrite=overwrite, **run)
    from spikecast.kernels import cuda

    return cuda.encode(inputs, threshold, neuron, **run)


def _is_fused(
    inputs: Tensor, threshold: Tensor, neuron: Neuron, state: Tensor | None, start: int, backend: Backend
) -> bool:
    """Whether a fused kernel runs; what is wrong or empty goes to the eager form, which knows what to say."""
    if backend not in ("auto", "eager", "fused"):
        raise ConfigError(f"backend={backend!r} is not one of 'auto', 'eager', 'fused'")
    if neuron.leak and backend == "fused":
        raise ConfigError(f"leak={neuron.leak} with backend='fused': no fused kernel has a leak; use backend='auto'")
    if backend == "eager" or neuron.leak:
        return False
    if not _is_plain(inputs) or inputs.dtype not in _DTYPES or torch.compiler.is_compiling():
        if backend == "fused":
            raise DataError(f"no fused kernel for {inputs.dtype} on {inputs.device}; use backend='auto'")
        return False
    if not inputs.is_cpu and not _has_triton(inputs.device):
        if backend == "fused":
            raise DataError(f"no fused kernel on {inputs.device} without Triton; install triton or use backend='auto'")
        return False
    inner = inputs.shape[1:]
    return (
        inputs.dim() > 0
        and inputs.numel() > 0
        and start >= 1
        and _lies_with(threshold, inputs)
        and broadcasts(threshold.shape, inner)
        and (state is None or (_lies_with(state, inputs) and state.shape == inner))
    )


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor lies in memory that a kernel is written for: the CPU's or CUDA's, and not a fake one."""
    return (tensor.is_cpu or tensor.is_cuda) and type(tensor) in _PLAIN


def _lies_with(tensor: Tensor, inputs: Tensor) -> bool:
    return _is_plain(tensor) and tensor.device == inputs.device


@lru_cache
def _has_triton(device: torch.device) -> bool:
    """Whether Triton is installed (not so on Windows and macOS) and compiles for the device (from Volta on)."""
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device)[0] >= 7
