"""What the compiled loops of `kernels.cpu` share: how they are compiled, and how they reach into memory."""

# mypy: ignore-errors
# (what stands here is compiled by Numba, by its rules for types)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

f32 = np.float32
i32 = np.int32

# Rows of a geometry: sizes of the outer axes, then the strides along them of
SIZE, INPUT, OUTPUT, STATE, SCALES, FAN_OUT = range(6)


def compiled(**options: Any) -> Callable[[Any], Any]:
    """`numba.njit` kept on disk, unless there is nowhere to write."""

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        except RuntimeError:  # no locator available: a read-only installation and home
            return numba.njit(nogil=True, error_model="numpy", **options)(function)

    return decorate


def inner(**options: Any) -> Callable[[Any], Any]:
    """A part of compiled loops that Python does not call: without the ways in from there it compiles in half the time.

    It is not kept on disk: the loops that are kept have it inside.
    """
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(nogil=True, error_model="numpy", **wrappers, **options)


@intrinsic
def pointer(_context: Any, address: Any, offset: Any, sample: Any) -> Any:
    """A pointer to element `offset` of what lies at an address, all elements being like `sample`."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        first = builder.inttoptr(args[0], ir.PointerType(context.get_value_type(sample)))
        return builder.gep(first, [args[1]])

    return types.CPointer(sample)(types.int64, types.int64, sample), generate


@inner()
def block(address, offset, length, sample):
    """`length` numbers like `sample` from element `offset` on, as an array."""
    return numba.carray(pointer(address, offset, sample), (length,))
