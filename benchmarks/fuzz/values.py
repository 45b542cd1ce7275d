"""Arguments of ops that fit their types: sane ones, and such as only a liar would write.

An argument is written as in the document of a file: ["ref", name], ["list", [...]], ["float", "nan"], ["torch", name].
A tensor is a text such as "f2344": its type, and its sizes, one digit each.
"""

from __future__ import annotations

import random
from typing import Any, get_args

from spikecast.storage import schema

INTS = [0, 1, -1, 2, -2, 3, 7, 99, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1e-18, -1e-18, 1e-45, 1e30, -1e300, -1.0, 0.5, 2.0**63, "nan", "inf", "-inf"]
STRINGS = ["none", "tanh", "trunc", "floor", "valid", "same", "constant", "reflect", "replicate", "circular"]
STRINGS += ["left", "right", "x", "", "ij,jk->ik", "abcd,abcd->", "abcd->aabb", "...", "a,b,c->abc", "é"]
NAMES = list(get_args(schema.TorchName))
DTYPES = list(get_args(schema.Dtype))
STORED = [name for name in DTYPES if name != "complex128"]  # which safetensors lacks
FILLS = ["randn", "index", 0, 1, -1, -(2**63), 2**63 - 1, "nan", "inf", 1e30, 1e-30]
LETTERS = {"f": "float32", "d": "float64", "h": "float16", "i": "int64", "b": "bool", "u": "uint8"}


def number(value: Any) -> Any:
    """A number as a document has it."""
    return ["float", value] if isinstance(value, str) else value


def tensor(text: str) -> dict[str, Any]:
    """What "f2344" stands for."""
    fill = {"f": "randn", "d": "randn", "h": "randn"}.get(text[0], "index")
    return {"dtype": LETTERS[text[0]], "shape": [int(digit) for digit in text[1:]], "fill": fill}


def hostile_tensor(draw: random.Random, like: dict[str, Any]) -> dict[str, Any]:
    """A tensor in place of another: of another type, other sizes, other numbers, or with strides that repeat it."""
    made = dict(like)
    for _ in range(draw.choice([1, 1, 2, 3])):
        shape = list(made["shape"])
        match draw.choice(["dtype", "fill", "fill", "size", "rank", "strides", "last"]):
            case "dtype":
                made["dtype"] = draw.choice(STORED)
            case "fill":
                made["fill"] = draw.choice(FILLS)
            case "size" if shape:
                shape[draw.randrange(len(shape))] = draw.choice([0, 1, 2, 5, 17])
                made |= {"shape": shape, "strides": None}
            case "rank":
                made |= {"shape": draw.choice([[], [0], [1], shape[1:], [1, *shape], shape[::-1]]), "strides": None}
            case "strides" if shape:
                made["view"] = [draw.choice([size, size, size, 2**20, 2**40, 2**62]) for size in shape]
                made["strides"] = [0 if draw.random() < 0.7 else 1 for _ in shape]
            case "last" if len(shape) == 4 and 0 not in shape:
                _, c, h, w = shape
                made |= {"view": shape, "strides": [c * h * w, 1, c * w, c]}
    return made


def argument(draw: random.Random, kind: str, *, hostile: float) -> Any:
    """An argument of a type, as torch writes its types; a text "f2344" where it is a tensor."""
    if kind.startswith("Optional["):
        return None if draw.random() < 0.4 else argument(draw, kind[9:-1], hostile=hostile)
    if kind.startswith("List["):
        count = draw.choice([1, 2, 2, 3, 4, 6, 0]) if draw.random() > hostile else draw.choice([0, 1, 2, 5, 64, 70])
        return ["list", [argument(draw, kind[5:-1], hostile=hostile) for _ in range(count)]]
    wild = draw.random() < hostile
    match kind:
        case "Tensor":
            return draw.choice(["f2344", "f2344", "f234", "f23", "f33", "i23", "b2344", "u2344", "f3", "i2"])
        case "int":
            return draw.choice(INTS if wild else [0, 1, 2, 3, -1])
        case "float":
            return number(draw.choice(FLOATS if wild else [1.0, 2.0, 0.5]))
        case "number":
            return number(draw.choice([*INTS, *FLOATS] if wild else [1, 2, 0.5]))
        case "bool":
            return draw.random() < 0.5
        case "str":
            return draw.choice(STRINGS)
        case "ScalarType":
            return ["torch", draw.choice(DTYPES)]
        case "Layout":
            return ["torch", "strided"]
        case "Device":
            return ["torch", "device"]
        case "MemoryFormat":
            return ["torch", draw.choice(get_args(schema.Format))]
    return draw.choice([None, 0, "", True])


def changed(draw: random.Random, value: Any) -> Any:
    """A hostile value of the same kind as a sane one."""
    match value:
        case ["list", items]:
            items = list(items)
            if not items or draw.random() < 0.2:
                return ["list", draw.choice([[], items * 2, items[1:], [1] * 70, [draw.choice(INTS)]])]
            at = draw.randrange(len(items))
            items[at] = changed(draw, items[at])
            return ["list", items]
        case ["float", _]:
            return number(draw.choice(FLOATS))
        case ["torch", _]:
            return ["torch", draw.choice(NAMES)]
        case bool():
            return not value
        case int():
            return number(draw.choice([*INTS, *INTS, *INTS, *FLOATS]))
        case float() | None:
            return number(draw.choice([*FLOATS, *INTS]))
        case str():
            return draw.choice(STRINGS)
    return value
