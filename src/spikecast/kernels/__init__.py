"""Fused twins of the eager neuron, chosen by device; every one gives the same bits as `theory.neuron.encode`."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from spikecast.errors import ConfigError, DataError
from spikecast.kernels.count import Count, Counts, count_levels
from spikecast.kernels.layout import broadcasts
from spikecast.theory.neuron import Encoded, Neuron
from spikecast.theory.neuron import encode as encode_eager

__all__ = ["Backend", "Count", "Counts", "encode", "encode_counted"]

Backend = Literal["auto", "eager", "fused"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_PLAIN = (Tensor, torch.nn.Parameter)


def encode(
    inputs: Tensor,
    threshold: Tensor,
    neuron: Neuron,
    *,
    state: Tensor | None = None,
    start: int = 1,
    want_levels: bool = False,
    backend: Backend = "auto",
    overwrite: bool = False,
) -> Encoded:
    """`theory.neuron.encode` by the fastest means there is for the tensor's device, or by the one that is named.

    With `overwrite` the estimates may take the place of the inputs, which the caller does not need any more.
    """
    if not _is_fused(inputs, threshold, state, start, backend):
        return encode_eager(inputs, threshold, neuron, state=state, start=start, want_levels=want_levels)
    return _encode_fused(inputs, threshold, neuron, state, start, want_levels, None, overwrite)[0]


def encode_counted(
    inputs: Tensor,
    threshold: Tensor,
    neuron: Neuron,
    count: Count,
    *,
    state: Tensor | None = None,
    start: int = 1,
    want_levels: bool = False,
    backend: Backend = "auto",
    overwrite: bool = False,
) -> tuple[Encoded, Counts]:
    """`encode`, and how many spikes there were, without a tensor of spikes where the kernel is fused."""
    if _is_fused(inputs, threshold, state, start, backend):
        encoded, counts = _encode_fused(inputs, threshold, neuron, state, start, want_levels, count, overwrite)
        assert counts is not None
        return encoded, counts
    encoded = encode_eager(inputs, threshold, neuron, state=state, start=start, want_levels=True)
    assert encoded.levels is not None
    counts = count_levels(encoded.levels, encoded.estimates, count)
    return Encoded(encoded.estimates, encoded.levels if want_levels else None), counts


def _encode_fused(
    inputs: Tensor,
    threshold: Tensor,
    neuron: Neuron,
    state: Tensor | None,
    start: int,
    want_levels: bool,
    count: Count | None,
    overwrite: bool = False,
) -> tuple[Encoded, Counts | None]:
    """The fused form of the tensor's device, whose compiler is imported with it."""
    if inputs.is_cpu:
        from spikecast.kernels import cpu

        return cpu.encode(
            inputs, threshold, neuron,
            state=state, start=start, want_levels=want_levels, count=count, overwrite=overwrite,
        )  # fmt: skip
    from spikecast.kernels import cuda

    return cuda.encode(inputs, threshold, neuron, state=state, start=start, want_levels=want_levels, count=count)


def _is_fused(inputs: Tensor, threshold: Tensor, state: Tensor | None, start: int, backend: Backend) -> bool:
    """Whether a fused kernel runs; what is wrong or empty goes to the eager form, which knows what to say."""
    if backend not in ("auto", "eager", "fused"):
        raise ConfigError(f"backend={backend!r} is not one of 'auto', 'eager', 'fused'")
    if backend == "eager":
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
