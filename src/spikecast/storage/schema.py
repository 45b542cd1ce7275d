"""What the document of a file holds: records of just these fields and types, which msgspec checks while it parses."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from spikecast.config import Coding
from spikecast.errors import ArtifactError, first_line
from spikecast.graph.roles import Role
from spikecast.network.report import Report

T = TypeVar("T")

MAX_DEPTH = 100  # of the whole document; Python's own recursion limit is ten times that
MAX_STRING = 10_000
MAX_VALUES = 2 * 10**6  # that is room for fifty thousand ops
MAX_RANK = 64  # torch's own
FORMAT: Final = 3
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]|[0-9]{20,}+', re.DOTALL)

Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Sizes = Annotated[tuple[Size, ...], msgspec.Meta(max_length=MAX_RANK)]
# The objects of torch that a document may name.
# fmt: off
Dtype = Literal[
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float8_e4m3fn", "float8_e5m2",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
]
# fmt: on
Format = Literal["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"]
TorchName = Literal[Dtype, Format, "strided", "device"]  # the device that the network is loaded to


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object with just these fields."""


class Item(Record, frozen=True, array_like=True):
    """A list that begins with its tag."""


# -- arguments: plain values are themselves


class Use(Item, frozen=True, tag="ref"):
    name: str


class Tuple(Item, frozen=True, tag="tuple"):
    items: tuple[Argument, ...]


class List(Item, frozen=True, tag="list"):
    items: tuple[Argument, ...]


class Special(Item, frozen=True, tag="float"):
    """A number that JSON has no word for."""

    value: Literal["inf", "-inf", "nan"]


class Torch(Item, frozen=True, tag="torch"):
    name: TorchName


Argument = None | bool | Whole | float | str | Use | Tuple | List | Special | Torch
Number = float | Special


# -- the form of arguments and answers, as graph.structure has it


class Leaf(Record, frozen=True, tag_field="kind", tag="leaf"):
    pass


class ListForm(Record, frozen=True, tag_field="kind", tag="list"):
    items: list[Form]


class TupleForm(ListForm, frozen=True, tag="tuple"):
    pass


class Entry(Record, frozen=True, array_like=True):
    key: str | Whole | bool
    form: Form


class DictForm(Record, frozen=True, tag_field="kind", tag="dict"):
    items: list[Entry]


class OrderedForm(DictForm, frozen=True, tag="ordered"):
    pass


class Field(Record, frozen=True, array_like=True):
    name: str
    form: Form


class NamedForm(Record, frozen=True, tag_field="kind", tag="namedtuple"):
    class_: str = msgspec.field(name="class")
    items: list[Field]


class DataclassForm(NamedForm, frozen=True, tag="dataclass"):
    pass


Form = Leaf | ListForm | TupleForm | DictForm | OrderedForm | NamedForm | DataclassForm


# -- a program


class Meta(Record, frozen=True):
    shape: Sizes
    dtype: Dtype
    batch_axis: Size | None


class Input(Record, frozen=True):
    name: str
    dims: tuple[Size | str, ...]
    meta: Meta


class Node(Record, frozen=True):
    name: str
    op: str
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    scope: str
    meta: Meta | tuple[Meta | None, ...] | None


class Strided(Record, frozen=True):
    """A tensor that does not lie in memory in the usual order."""

    key: str
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=2**62)], ...], msgspec.Meta(max_length=MAX_RANK)]
    strides: Sizes


class Program(Record, frozen=True):
    inputs: tuple[Input, ...]
    tensors: dict[str, str | Strided]
    nodes: tuple[Node, ...]
    outputs: tuple[Argument, ...]
    call: Form
    constants: tuple[Argument, ...]
    answer: Form
    guards: tuple[Argument, ...]
    batch_symbols: tuple[str, ...]
    registered: dict[str, Role]  # ops that a user taught
    parameters: tuple[str, ...] = ()  # names of the model's positional arguments


# -- a network


class Site(Record, frozen=True):
    source: str
    lower: Number
    upper: Number
    axis: Size | None
    meta: Meta


class Plan(Record, frozen=True):
    program: Program
    sites: dict[str, Site]
    fed: dict[str, str]
    moved: dict[str, str]


class Neuron(Record, frozen=True):
    """What the neurons of a site are set to; the interval they keep is the site's."""

    threshold: str
    coding: Coding
    num_levels: int
    burst: int
    signed: bool
    firing_boundary: float
    initial_potential: float
    leak: float


class Network(Record, frozen=True, tag_field="kind", tag="network"):
    about: dict[str, Any]
    config: dict[str, Any]  # which checks itself when it is made
    report: Report
    neurons: dict[str, Neuron]
    plans: Annotated[tuple[Plan, ...], msgspec.Meta(min_length=1)]


class Regions(Record, frozen=True, tag_field="kind", tag="regions"):
    about: dict[str, Any]
    config: dict[str, Any]
    # By submodule, in the order they are called.
    regions: Annotated[dict[Annotated[str, msgspec.Meta(min_length=1)], Network], msgspec.Meta(min_length=1)]
    notes: tuple[str, ...] = ()  # of its report, beside those of the regions
    outside: tuple[str, ...] = ()  # modules with weights that ran outside of them


class Document(Record, frozen=True, omit_defaults=True):
    """All of a file but its tensors; the checksum of both stands in front (`tensors.sealed`)."""

    format: Literal[3]
    versions: dict[str, str]
    body: Network | Regions
    sha256: str = ""


class Head(msgspec.Struct):
    """As much as a document of any version says."""

    format: int


def known(*kinds: Any) -> None:
    """Let msgspec study types that are read from files; to be called where they are defined.

    Else it does so at the first use, and two threads that meet a type for the first time crash the process (msgspec
    0.22: one reads what the other has not finished).
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


known(Document, Head)


def encoded(record: Any) -> str:
    """A record as JSON, not yet checked."""
    try:
        return msgspec.json.encode(record).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArtifactError(f"it holds what JSON cannot ({first_line(error)})") from None


def decoded(text: str | bytes, kind: type[T]) -> T:
    """The record in a JSON text, or one line that says what is wrong and where."""
    _check_bounds(text.encode() if isinstance(text, str) else text)
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        said = repr(first_line(error))[1:-1]  # it may quote the text, whose control characters are not for terminals
        raise ArtifactError(f"its document is not as it must be: {said}") from None


def _check_bounds(text: bytes) -> None:
    """Refuse what no network needs, before it is parsed: many values, depth, long strings, numbers beyond 64 bits."""
    if sum(map(text.count, b"[{,")) > MAX_VALUES:
        raise ArtifactError(f"its document holds more than {MAX_VALUES} values")
    depth = 0
    for token in _TOKENS.finditer(text):
        first, size = text[token.start()], token.end() - token.start()
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ArtifactError(f"its document is nested deeper than {MAX_DEPTH}")
        elif first in b"]}":
            depth -= 1
        elif first != ord('"'):
            raise ArtifactError("it holds a number beyond 64 bits")
        elif size > MAX_STRING + 2:
            raise ArtifactError(f"it holds a string of {size - 2} bytes; {MAX_STRING} are the limit")


def short(value: Any) -> str:
    """A value as a message can hold it."""
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."
