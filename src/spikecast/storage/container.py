"""One file: safetensors for the numbers of a network, and in its header one JSON document for everything else.

The checksum in the document is that of the document and all tensors: it tells damage, not who wrote the file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any

import msgspec
import torch
from torch import Tensor

from spikecast.errors import ArtifactError, SpikecastError, first_line, is_want_of_memory
from spikecast.storage.files import blaming, file_start, replacing
from spikecast.storage.schema import FORMAT, Document, Head, Record, Size, Sizes, decoded, known, short
from spikecast.storage.tensors import is_whole

# A document takes some ten times its length once it is parsed. This is room for forty thousand ops.
MAX_HEADER = 32 * 2**20
_KEY = "spikecast"
_KINDS = {  # of numbers, as safetensors names them and in the order it has them in a file, the last first
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float32: "F32",
    torch.complex64: "C64",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint64: "U64",
}
_DTYPES = {name: dtype for dtype, name in _KINDS.items()}


def write(path: str | os.PathLike[str], text: str, tensors: Mapping[str, Tensor]) -> None:
    """Put a sealed document and its tensors into a file, whole or not at all."""
    with replacing(path) as file:
        for part in _parts(text, tensors):
            file.write(part)


def _parts(text: str, tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """A safetensors file piece by piece. The library would copy all of it, or make files of its own beside it."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _KINDS:
            raise ArtifactError(f"the tensor {name!r} has the type {tensor.dtype}, which safetensors has not")
    ranks = {dtype: rank for rank, dtype in enumerate(_KINDS)}
    ordered = sorted(tensors, key=lambda name: (-ranks[tensors[name].dtype], name))
    entries: dict[str, Any] = {"__metadata__": {_KEY: text}}
    end = 0
    for name in ordered:
        tensor, start = tensors[name], end
        end += tensor.numel() * tensor.itemsize
        entries[name] = {"dtype": _KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > MAX_HEADER:
        raise ArtifactError(f"its graph takes more than {MAX_HEADER} bytes; convert a smaller model")
    yield len(header).to_bytes(8, "little") + header
    for name in ordered:
        yield _bytes(tensors[name])


def read(path: str | os.PathLike[str], device: torch.device) -> tuple[Document, dict[str, Tensor]]:
    """The document and the tensors of a file that is whole and of our format."""
    _check_file(path)
    try:
        with open(path, "rb") as file:
            length = min(int.from_bytes(file.read(8), "little"), MAX_HEADER)
            header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
            text = _text(path, msgspec.json.decode(header.pop("__metadata__", b"{}"), type=dict[str, str]))
            entries = {name: msgspec.json.decode(entry, type=_Entry) for name, entry in header.items()}
            tensors = _tensors(file, entries)
    except (SpikecastError, MemoryError):
        raise
    except Exception as error:  # whatever msgspec says of a header, torch of a shape, and the system of a disk
        if is_want_of_memory(error):
            raise
        raise ArtifactError(f"{path} is cut short or damaged ({first_line(error)}); copy or save it again") from error
    if not is_whole(text, tensors):
        raise ArtifactError(f"{path} is damaged: its checksum does not match; copy or save it again")
    with blaming(f"{path} cannot be loaded", "save the network again"):
        document = decoded(text, Document)
    for name in tensors:  # one by one: the device need not hold its own beside all of ours
        tensors[name] = tensors[name].to(device)
    return document, tensors


class _Entry(Record, frozen=True):
    """Where a tensor lies behind the header."""

    dtype: str
    shape: Sizes
    data_offsets: tuple[Size, Size]


known(_Entry)


def _tensors(file: IO[bytes], entries: Mapping[str, _Entry]) -> dict[str, Tensor]:
    """All tensors, each read once, into memory of its own.

    The library maps the file. Its tensors are windows on what may change, at odd addresses that cost the last bits, and
    copies of them would take the memory twice.
    """
    found, end, size = {}, 0, os.fstat(file.fileno()).st_size - file.tell()
    for name, entry in sorted(entries.items(), key=lambda pair: pair[1].data_offsets):
        dtype = _DTYPES[entry.dtype]
        start, end = end, end + math.prod(entry.shape) * dtype.itemsize
        if entry.data_offsets != (start, end) or end > size:
            raise ValueError(f"the tensor {short(name)} does not lie where it must")
        found[name] = torch.empty(entry.shape, dtype=dtype)
        if file.readinto(_bytes(found[name])) != end - start:  # type: ignore[attr-defined]
            raise ValueError("it ends too early")
    if end != size:
        raise ValueError("it goes on behind its last tensor")
    return found


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a tensor that lies in it in the usual order."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _check_file(path: str | os.PathLike[str]) -> None:
    """See that there is a file and that it can be one of ours, before anything of it is read into memory."""
    size, start = file_start(path, "the file that snn.save wrote")
    header = int.from_bytes(start, "little")
    if size == 0:
        raise ArtifactError(f"{path} is empty; copy or save it again")
    if header > MAX_HEADER or header + 8 > size:
        raise ArtifactError(f"{path} is cut short, or no spikecast file; give a file that snn.save wrote, copied whole")


def _text(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> str:
    """The document of a file, if it is of the format that this version reads."""
    if _KEY not in metadata:
        raise ArtifactError(f"{path} is a safetensors file without a spikecast network; give one that snn.save wrote")
    with blaming(f"{path} is damaged", "copy or save it again"):
        number = decoded(metadata[_KEY], Head).format
        if metadata.keys() != {_KEY} and number == FORMAT:
            raise ArtifactError("its header has keys that are not ours")
    if number != FORMAT:
        raise ArtifactError(f"{path} has format {number}, this spikecast reads {FORMAT}; convert and save again")
    return metadata[_KEY]
