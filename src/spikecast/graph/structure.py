"""Nested arguments and answers taken apart into leaves, and put together again.

A structure is plain JSON data, so a saved network still knows the form of its answer. Of a dataclass or a
named tuple only the names survive saving; what comes back then is a `Fields` or a `Row`: no file names a class
that is then made.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

Structure = dict[str, Any]


class _Named(Structure):
    """The structure of a dataclass or named tuple that was taken apart here; one that was read knows no class."""

    made: Any


class Steps(list[Any]):
    """What there is at each step, where it does not fit into one tensor: a leaf, no part of a structure."""


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """The leaves of nested tuples, lists, dicts, named tuples and dataclasses, and what holds them together."""
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


def _flatten(value: Any, leaves: list[Any]) -> Structure:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _named("namedtuple", type(value), {f: getattr(value, f) for f in value._fields}, leaves)
    if isinstance(value, list | tuple) and not isinstance(value, Steps):
        kind = "list" if isinstance(value, list) else "tuple"
        return {"kind": kind, "items": [_flatten(item, leaves) for item in value]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return _named("dataclass", type(value), fields, leaves)
    if isinstance(value, SimpleNamespace):  # what a dataclass became in a file
        items = [[key, _flatten(item, leaves)] for key, item in vars(value).items()]
        kind = "namedtuple" if isinstance(value, Row) else "dataclass"
        return {"kind": kind, "class": "types.SimpleNamespace", "items": items}
    if isinstance(value, Mapping) and all(isinstance(key, str | int) for key in value):
        items = [[key, _flatten(item, leaves)] for key, item in value.items()]
        return {"kind": "ordered" if isinstance(value, OrderedDict) else "dict", "items": items}
    leaves.append(value)
    return {"kind": "leaf"}


def _named(kind: str, cls: type, fields: dict[str, Any], leaves: list[Any]) -> Structure:
    items = [[key, _flatten(item, leaves)] for key, item in fields.items()]
    structure = _Named({"kind": kind, "class": f"{cls.__module__}.{cls.__qualname__}", "items": items})
    structure.made = cls
    return structure


def leaf_keys(structure: Structure) -> list[tuple[str, ...]]:
    """The keys and field names above each leaf, the outermost first; places in a list have none."""
    if structure["kind"] == "leaf":
        return [()]
    if structure["kind"] in ("list", "tuple"):
        return [keys for item in structure["items"] for keys in leaf_keys(item)]
    return [(str(key), *keys) for key, item in structure["items"] for keys in leaf_keys(item)]


def unflatten(structure: Structure, leaves: list[Any]) -> Any:
    """The nested value again, from its leaves in the same order."""
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: Structure, rest: Any) -> Any:
    kind = structure["kind"]
    if kind == "leaf":
        return next(rest)
    if kind in ("list", "tuple"):
        items = [_unflatten(item, rest) for item in structure["items"]]
        return items if kind == "list" else tuple(items)
    fields = {key: _unflatten(item, rest) for key, item in structure["items"]}
    if kind in ("dict", "ordered"):
        return fields if kind == "dict" else OrderedDict(fields)
    if not isinstance(structure, _Named):
        return Row(**fields) if kind == "namedtuple" else Fields(**fields)
    cls = structure.made
    if kind == "namedtuple":
        return cls._make(fields.values())
    is_whole = all(f.init for f in dataclasses.fields(cls))  # else its own code makes some of its fields
    return cls(**fields) if is_whole else Fields(**fields)


class Fields(SimpleNamespace):
    """The fields of a dataclass without its class: `.logits`, `["logits"]`, or `[0]`, the first that is not None.

    That is how the answers of Hugging Face count their fields.
    """

    def __getitem__(self, key: str | int | slice) -> Any:
        return vars(self)[key] if isinstance(key, str) else self._places()[key]

    def _places(self) -> tuple[Any, ...]:
        return tuple(value for value in vars(self).values() if value is not None)


class Row(Fields):
    """The fields of a named tuple without its class; by place all of them count, None too."""

    def _places(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())
