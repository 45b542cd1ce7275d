"""Conditions on sizes under which a captured graph is the model: small trees, so that they can be saved.

torch.export takes one branch of every `if` on a size. The condition it relied on becomes a guard; an input that
breaks it needs another capture, not a wrong answer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

# A number, the name of a size symbol, or [op, argument, ...].
Guard = int | float | str | list[Any]


def bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of sizes whose whole numbers stay within 64 bits: a file may ask for others, which take for ever."""

    def within(*sizes: Any) -> Any:
        if function is operator.pow and type(sizes[1]) is int and abs(sizes[1]) > 64:
            raise OverflowError(f"a size to the power of {sizes[1]}")
        found = function(*sizes)
        if type(found) is int and not -(2**63) <= found < 2**63:  # no symbol of torch.export, which is never as large
            raise OverflowError("a size beyond 64 bits")
        return found

    return within


_OPS: dict[str, Callable[..., Any]] = {
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
    "Add": lambda *xs: sum(xs),
    "Mul": lambda *xs: math.prod(xs),
    "Pow": operator.pow,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "TruncToInt": math.trunc,
    "ToFloat": float,
    "Max": max,
    "Min": min,
    "And": lambda *xs: all(xs),
    "Or": lambda *xs: any(xs),
    "Not": operator.not_,
}
OPS = {name: bounded(function) for name, function in _OPS.items()}


def from_sympy(expression: Any) -> Guard | None:
    """The tree of a sympy expression; None where it holds something a tree cannot say."""
    if expression.is_Symbol:
        return str(expression.name)
    if expression.is_Integer:
        return int(expression)
    if expression.is_Number:
        return float(expression)
    if expression.is_Boolean and not expression.args:
        return int(bool(expression))
    name = type(expression).__name__
    arguments = [from_sympy(argument) for argument in expression.args]
    if name not in OPS or any(argument is None for argument in arguments):
        return None
    return [name, *arguments]


def evaluate(guard: Guard, sizes: Mapping[str, int]) -> Any:
    """The value of a tree for given sizes. Unknown symbols and ops are KeyErrors."""
    if isinstance(guard, str):
        return sizes[guard]
    if isinstance(guard, list):
        return OPS[guard[0]](*(evaluate(argument, sizes) for argument in guard[1:]))
    return guard
