"""What a sandbox and its caller say to each other: plain data as JSON, and numbers in memory that both can see.

Neither side believes the other: whatever arrives is checked as a file would be, and nothing of it is executed.
"""

from __future__ import annotations

import math
import mmap
import os
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from spikecast.errors import ArtifactError
from spikecast.graph.structure import Steps, flatten, unflatten
from spikecast.network.counting.tally import Tally
from spikecast.network.report import Report
from spikecast.storage import codec, schema
from spikecast.storage.schema import Item, Record

_ALIGNED = 64  # bytes: where a tensor may begin
_CPU = torch.device("cpu")


class Numbers(Item, frozen=True, tag="tensor"):
    """A tensor in the shared memory."""

    start: schema.Size
    dtype: schema.Dtype
    shape: schema.Sizes


class Each(Item, frozen=True, tag="steps"):
    """What there is at each step, where it does not fit into one tensor."""

    items: tuple[Value, ...]


Value = schema.Argument | Numbers | Each


class Nested(Record, frozen=True):
    """Arguments or an answer."""

    form: schema.Form
    leaves: tuple[Value, ...]


class Request(Record, frozen=True):
    """Run the network on a call."""

    what: Literal["run_with", "run_frames", "analog", "anytime", "record", "metered"]
    call: Nested
    settings: dict[str, Any]


class Answer(Record, frozen=True, tag="answer"):
    value: Nested
    tally: Tally | None = None


class Failure(Record, frozen=True, tag="failure"):
    """An error: its type, where it is one of ours, and its line."""

    kind: str
    line: str


class Hello(Record, frozen=True, tag="hello"):
    """What a caller wants to know of a network that it cannot see."""

    about: dict[str, Any]
    config: dict[str, Any]
    report: Report
    sites: dict[str, schema.Site]
    neurons: dict[str, schema.Neuron]
    thresholds: Nested
    batch_axis: schema.Size
    call: schema.Form
    constants: tuple[schema.Argument, ...]
    parameters: tuple[str, ...]
    dtype: schema.Dtype | None  # of its weights


Reply = Answer | Failure | Hello
schema.known(Request, Reply)


class Shared:
    """Memory that two processes see: one writes, then the other reads. It is a file without a name."""

    def __init__(self, file: int, size: int) -> None:
        self.file, self.size, self.end = file, size, 0

    def pack(self, value: Any) -> Nested:
        """Nested tensors and plain values as data; the tensors are written behind what was packed before."""
        leaves, form = flatten(value)
        return Nested(form, tuple(map(self._packed, leaves)))  # type: ignore[arg-type]

    def _packed(self, leaf: Any) -> Value:
        if isinstance(leaf, Steps):
            return Each(tuple(map(self._packed, leaf)))
        if not isinstance(leaf, Tensor):
            return codec.encode(leaf)
        if leaf.layout != torch.strided or leaf.device != _CPU:
            raise ArtifactError(f"a tensor is {leaf.layout} on {leaf.device}; a sandbox takes dense ones on the CPU")
        plain = leaf.detach().resolve_conj().resolve_neg().contiguous()
        start, size = self.end, plain.numel() * plain.itemsize
        self.end = -(-(start + size) // _ALIGNED) * _ALIGNED
        if self.end > self.size:
            raise ArtifactError(f"its tensors take more than {self.size} bytes")
        if size:
            # by way of a map: a process that may write to no file may still write here
            with mmap.mmap(self.file, self.end) as memory:
                memory[start : start + size] = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
        return Numbers(start, str(plain.dtype).removeprefix("torch."), tuple(plain.shape))  # type: ignore[arg-type]

    def unpack(self, nested: Nested) -> Any:
        """The value again, in memory of its own; no larger than what is shared."""
        left = [self.size]
        leaves = [self._unpacked(leaf, left) for leaf in nested.leaves]
        return unflatten(msgspec.to_builtins(nested.form), leaves)

    def _unpacked(self, leaf: Any, left: list[int]) -> Any:
        if isinstance(leaf, Each):
            return Steps(self._unpacked(item, left) for item in leaf.items)
        if not isinstance(leaf, Numbers):
            return codec.decode(leaf, _CPU)
        dtype = codec.DTYPES[leaf.dtype]
        size = math.prod(leaf.shape) * dtype.itemsize
        left[0] -= size
        if left[0] < 0:
            raise ArtifactError("its tensors are larger than the memory they lie in")
        if size == 0:
            return torch.empty(leaf.shape, dtype=dtype)
        found, done = bytearray(size), 0
        # Read, not mapped: who wrote it could cut the file off, and end us with it.
        while done < size and (read := os.preadv(self.file, [memoryview(found)[done:]], leaf.start + done)):
            done += read
        if done < size:
            raise ArtifactError("its tensors are not where it says")
        is_bool = dtype == torch.bool  # whose bytes must be 0 or 1
        made = torch.frombuffer(found, dtype=torch.uint8 if is_bool else dtype).reshape(leaf.shape)
        return made != 0 if is_bool else made

    def clear(self) -> None:
        """Give the memory back."""
        self.end = 0
        os.ftruncate(self.file, 0)
        os.ftruncate(self.file, self.size)


def one_line(text: str) -> str:
    """What another process says, as a message can hold it."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]
