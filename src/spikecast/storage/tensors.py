"""Tensors on their way to a file and back, and the checksum that holds them and the document together."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from spikecast.errors import ArtifactError
from spikecast.storage.schema import Strided, short

MAX_REPEATED = 2**28  # entries of a tensor that repeats its numbers: whoever looks at all of them takes that long


class TensorStore:
    """Tensors on their way to a file. One that several names or plans share is stored once, and shared again."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.digests: dict[str, str] = {}
        self._keys: dict[Any, str] = {}  # (name, digest), or the place in memory -> key
        self._storages: set[int] = set()
        self._kept: list[Tensor] = []  # so that no other tensor comes to lie at a known place

    def add(self, name: str, tensor: Tensor) -> Any:
        """Keep a tensor; the answer is what `find` takes."""
        check_savable(name, tensor)
        packed, is_usual = _packed(tensor.detach().resolve_conj().resolve_neg())
        found, place = digest(packed), (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        # Equal tensors of other names stay apart: whoever changes one of them does not mean the other.
        key = self._keys.get(place, self._keys.get((name, found)))
        if key is None:
            key = name if name not in self.tensors else f"{name}#{len(self.tensors)}"
            if packed.untyped_storage().data_ptr() in self._storages:
                packed = packed.clone()  # safetensors refuses tensors that share memory
            self._storages.add(packed.untyped_storage().data_ptr())
            self.tensors[key], self.digests[key] = packed, found
            self._keys[place] = self._keys[name, found] = key
            self._kept.append(tensor)
        return key if is_usual else Strided(key, tuple(tensor.shape), tensor.stride())


class Outline(TensorStore):
    """Notes which tensors there are, where nothing is to be written: none is copied or summed up."""

    def add(self, name: str, tensor: Tensor) -> Any:
        check_savable(name, tensor)
        self.tensors[name] = tensor
        return name


def check_savable(name: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise ArtifactError(f"the tensor {name!r} is sparse, quantized or without data, which cannot be saved")


def _packed(tensor: Tensor) -> tuple[Tensor, bool]:
    """The tensor without repeats and gaps on the CPU, and whether its strides are the usual ones.

    A weight that lies in memory in another order takes another path through the kernels, with other last bits.
    """
    strides, plain = tensor.stride(), torch.contiguous_format
    if strides == torch.empty(tensor.shape, device="meta").stride():
        return tensor.cpu(), True
    once = [1 if stride == 0 else size for size, stride in zip(tensor.shape, strides, strict=True)]
    order = sorted(range(tensor.dim()), key=lambda axis: -strides[axis])
    dense = tensor.as_strided(once, strides).permute(order)
    if not dense.is_contiguous() or tensor.numel() == 0:  # gaps, which belong to some other tensor
        return tensor.cpu().clone(memory_format=plain), True
    return dense.cpu().clone(memory_format=plain), False


def find(entry: str | Strided, tensors: Mapping[str, Tensor]) -> Tensor:
    """The tensor that `TensorStore.add` spoke of."""
    key = entry if isinstance(entry, str) else entry.key
    if key not in tensors:
        raise ArtifactError(f"the tensor {short(key)} is missing")
    stored = tensors[key]
    if isinstance(entry, str):
        return stored
    last = sum((size - 1) * step for size, step in zip(entry.shape, entry.strides, strict=False))
    most = max(stored.numel(), MAX_REPEATED)
    if len(entry.shape) != len(entry.strides) or last >= stored.numel() or math.prod(entry.shape) > most:
        raise ArtifactError(f"the tensor {short(key)} has strides that do not fit it")
    return stored.as_strided(entry.shape, entry.strides)


def digest(tensor: Tensor) -> str:
    """The checksum of a tensor on the CPU: its type, its shape and its numbers."""
    found = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
    found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def digest_of_model(model: nn.Module) -> str:
    """The checksum of all parameters and buffers of a model, wherever they lie."""
    found = hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found.update(json.dumps([name, digest(tensor.detach().cpu().contiguous())]).encode())
    return found.hexdigest()


def sealed(text: str, digests: Mapping[str, str]) -> str:
    """A document with the checksum of itself and of the tensors as its first entry."""
    checksum = hashlib.sha256(text.encode())
    for name in sorted(digests):
        checksum.update(json.dumps([name, digests[name]]).encode())
    return f'{{"sha256":"{checksum.hexdigest()}",{text[1:]}'


def is_whole(text: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a sealed document and its tensors are what they were when it was sealed."""
    return text == sealed("{" + text.partition(",")[2], {name: digest(tensor) for name, tensor in tensors.items()})
