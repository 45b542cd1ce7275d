"""Changes of sound files: one thing of a document in another's place, hostile numbers, bits flipped, parts cut out."""

from __future__ import annotations

import copy
import json
import random
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as read_tensors
from torch import Tensor, nn

import spikecast
from benchmarks.fuzz import values

# What a liar would put where something else is due.
_WORDS = ["", "x", "relu", "0", "inf", "nan", "float32", "leaf", "../../etc/passwd", "\x00", "é" * 50, "a" * 20_000]
_WORDS += ["aten.relu_.default", "aten.from_file.default", "aten.full.default", "aten.add.out", "os.system"]
_WORDS += ["getitem", "spikecast.neuron"]
LIES: list[Any] = [None, True, False, 64, 10**12, 2**63, 2**64, 10**30, 0.0, -0.0, 0.5, 1e300, *values.INTS, *_WORDS]
LIES += [[], {}, [[]], [{}], {"ref": "x"}, {"ref": 3}, {"list": 3}, {"float": "nan"}, {"float": "2"}, {"dtype": "os"}]
LIES += [{"device": "cuda:7"}, {"kind": "leaf"}, {"kind": "dataclass", "class": "os.system", "items": []}, [None] * 100]
LIES += [["ref", "x"], ["ref", 3], ["list", 3], ["list", []], ["float", "nan"], ["float", "2"], ["torch", "os"]]
LIES += [["torch", "int8"], ["tuple", []]]


class _Tokens(nn.Module):
    """Small, and with a bit of everything that a document can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv, self.head = nn.Embedding(5, 4), nn.Conv1d(4, 4, 3, padding=1), nn.Linear(4, 3)

    def forward(self, tokens: Tensor, mask: Tensor, flag: float = 0.5) -> Any:
        x = torch.relu(self.conv(self.embed(tokens).transpose(1, 2)))
        x = nn.functional.max_pool1d(x, 2).masked_fill(mask.unsqueeze(1), -float("inf")).softmax(-1)
        left, right = x.chunk(2, 1)
        return {"y": self.head(torch.cat([right, left], 1).mean(-1)), "flag": flag, "rest": (mask, [x])}


@cache
def bases() -> list[tuple[Any, dict[str, Tensor]]]:
    """Sound documents and their tensors: one of images, one of tokens."""
    torch.manual_seed(0)
    images = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Upsample(scale_factor=2),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3), nn.GELU(), nn.Linear(3, 3),
    )  # fmt: skip
    calls: list[tuple[nn.Module, Any]] = [
        (images, torch.randn(2, 3, 4, 4)),
        (_Tokens(), (torch.randint(0, 5, (3, 8)), torch.zeros(3, 4, dtype=torch.bool))),
    ]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for model, batch in calls:
            path = Path(folder) / "net"
            spikecast.convert(model.eval(), [batch], spikecast.Config(num_steps=2, thresholds="quantile")).save(path)
            found.append(taken_apart(path.read_bytes()))
    return found


def taken_apart(content: bytes) -> tuple[Any, dict[str, Tensor]]:
    """The document of a file without its checksum, and its tensors."""
    length = int.from_bytes(content[:8], "little")
    document = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["spikecast"])
    del document["sha256"]
    return document, read_tensors(content)


def edited(draw: random.Random) -> tuple[Any, dict[str, Tensor]]:
    """A sound document with a few things changed; most of them are arguments of ops."""
    document, tensors = draw.choice(bases())
    document, tensors = copy.deepcopy(document), dict(tensors)
    for _ in range(draw.choice([1, 1, 2, 5])):
        try:
            nodes = document["body"]["plans"][0]["program"]["nodes"] if draw.random() < 0.6 else None
            edit(document if not nodes else draw.choice(nodes), draw)
        except (KeyError, TypeError, IndexError):  # an edit before took its place away
            break
    if draw.random() < 0.1:
        name = draw.choice(sorted(tensors))
        tensors[name] = tensors[name].to(draw.choice([torch.float16, torch.int64, torch.uint8, torch.float64]))
    return document, tensors


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def edit(document: Any, draw: random.Random) -> None:
    """Change one thing."""
    found = list(_places(document))
    holder, key = draw.choice(found)
    match draw.choice(["lie", "lie", "number", "number", "delete", "copy", "rename", "grow"]):
        case "lie":
            holder[key] = copy.deepcopy(draw.choice(LIES))
        case "number":
            numbers = [(h, k) for h, k in found if type(h[k]) in (int, float)]
            holder, key = draw.choice(numbers) if numbers else (holder, key)
            holder[key] = values.number(draw.choice([*values.INTS, *values.FLOATS]))
        case "delete":
            del holder[key]
        case "copy":
            other, name = draw.choice(found)
            holder[key] = copy.deepcopy(other[name])
        case "rename" if isinstance(holder, dict):
            holder[draw.choice(["", "unknown", "name", "site", "relu", "kind"])] = holder.pop(key)
        case _ if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(draw.choice([*LIES, holder[key]])))
        case _:
            holder["more"] = copy.deepcopy(draw.choice(LIES))


def damaged(draw: random.Random, content: bytes) -> bytes:
    """Bits flipped, bytes cut out, repeated or put in."""
    made = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8])):
        at = draw.randrange(len(made))
        match draw.randrange(5):
            case 0:
                made[at] ^= 1 << draw.randrange(8)
            case 1:
                del made[at : at + draw.choice([1, 10, 1000])]
            case 2:
                made[at:at] = draw.randbytes(draw.choice([1, 10, 100]))
            case 3:
                made[at : at + 4] = draw.choice([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f"])
            case _:
                del made[at:]
        made = made or bytearray(b"P")
    return bytes(made)
