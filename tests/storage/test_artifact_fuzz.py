"""Files that were damaged, or written by a liar, in thousands of ways: each is refused in one line, or loads."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as to_bytes
from torch import nn

import spikecast
from spikecast.errors import ArtifactError, SpikecastError
from spikecast.graph.program import Node, Ref
from spikecast.storage import artifact, codec
from tests.strategies import NASTY

MEBIBYTE = 2**20


class Net(nn.Module):
    """Small, and with a bit of everything that a document can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, tokens, mask, flag=0.5):
        x = torch.relu(self.conv(self.embed(tokens).transpose(1, 2)))
        x = nn.functional.max_pool1d(x, 2).masked_fill(mask.unsqueeze(1), -float("inf")).softmax(-1)
        left, right = x.chunk(2, 1)
        return {"y": self.head(torch.cat([right, left], 1).mean(-1)), "flag": flag, "rest": (mask, [x])}


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> bytes:
    torch.manual_seed(0)
    call = (torch.randint(0, 5, (3, 8)), torch.zeros(3, 4, dtype=torch.bool))
    network = spikecast.convert(Net().eval(), [call], spikecast.Config(num_steps=2, thresholds="quantile"))
    path = tmp_path_factory.mktemp("fuzz") / "net.spikecast"
    network.save(path)
    return path.read_bytes()


def attempt(path: Path, content: bytes, seed: object) -> bool:
    """Whether a file loads; where it does not, the complaint must be ours, and one line."""
    path.write_bytes(content)
    start, complaint = time.perf_counter(), ""
    try:
        assert isinstance(spikecast.load(path), spikecast.SpikingNetwork)
    except ArtifactError as error:
        complaint = str(error)
    except BaseException as error:
        raise AssertionError(f"mutation {seed}: {type(error).__name__}: {error}") from error
    assert time.perf_counter() - start < 10, seed
    assert not complaint or (str(path) in complaint and "\n" not in complaint and len(complaint) < 1000), seed
    return not complaint


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * MEBIBYTE // 1024


def test_damage_is_noticed(original: bytes, tmp_path: Path) -> None:
    """One bit is enough, wherever it is."""
    draw, path = random.Random(0), tmp_path / "net"
    assert attempt(path, original, "none")
    for seed in range(700):
        content = bytearray(original)
        for _ in range(draw.choice([1, 1, 1, 8])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        if content != original:
            assert not attempt(path, bytes(content), seed)


def test_cuts_and_insertions_are_noticed(original: bytes, tmp_path: Path) -> None:
    draw, path = random.Random(1), tmp_path / "net"
    for seed in range(500):
        at = draw.choice([draw.randrange(len(original)), draw.randrange(200)])
        if seed % 2:
            content = original[:at]
        elif seed % 4:
            content = original[:at] + draw.randbytes(draw.choice([1, 8, 100])) + original[at:]
        else:
            content = original[:at] + original[at + draw.choice([1, 8, 100]) :]
        assert not attempt(path, content, seed)


def test_noise_is_refused(tmp_path: Path) -> None:
    draw = random.Random(2)
    for seed in range(200):
        size = draw.choice([0, 1, 7, 8, 9, 100, 5000])
        noise = draw.randbytes(size)
        header = [noise[:8], draw.randrange(size + 20).to_bytes(8, "little"), (2).to_bytes(8, "little") + b"{}"]
        assert not attempt(tmp_path / "net", draw.choice(header) + noise[8:], seed)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def edit(document: Any, draw: random.Random) -> None:
    """Change one thing."""
    found = list(places(document))
    container, key = draw.choice(found)
    match draw.choice(["nasty", "nasty", "delete", "swap", "copy", "rename", "grow"]):
        case "nasty":
            container[key] = copy.deepcopy(draw.choice(NASTY))
        case "delete":
            del container[key]
        case "swap" | "copy":
            other, name = draw.choice(found)
            container[key] = copy.deepcopy(other[name])
        case "rename" if isinstance(container, dict):
            container[draw.choice(["", "unknown", "name", "site", "relu", "kind"])] = container.pop(key)
        case _:
            if isinstance(container, list):
                container.insert(key, copy.deepcopy(draw.choice([*NASTY, container[key]])))
            else:
                container["more"] = copy.deepcopy(draw.choice(NASTY))


def signed(document: Any, tensors: dict[str, torch.Tensor]) -> bytes:
    """A file with a checksum that is right."""
    digests = {name: artifact._digest(tensor) for name, tensor in tensors.items()}
    return to_bytes(tensors, {"spikecast": artifact.sealed(json.dumps(document), digests)})


def taken_apart(original: bytes) -> tuple[Any, dict[str, torch.Tensor]]:
    length = int.from_bytes(original[:8], "little")
    header = json.loads(original[8 : 8 + length])
    document = json.loads(header["__metadata__"]["spikecast"])
    del document["sha256"]
    return document, read_tensors(original)


def test_lies_are_refused_or_harmless(original: bytes, tmp_path: Path) -> None:
    """The checksum is right, what it vouches for is not."""
    document, tensors = taken_apart(original)
    text = json.dumps(document)
    assert attempt(tmp_path / "net", signed(document, tensors), "none")
    loaded = 0
    for seed in range(1000):
        draw, lie = random.Random(seed), json.loads(text)
        for _ in range(draw.choice([1, 1, 2, 5])):
            edit(lie, draw)
        loaded += attempt(tmp_path / "net", signed(lie, tensors), seed)
    assert 20 < loaded < 500  # most lies are seen; some, such as another scope, do no harm


def test_lies_about_tensors_are_refused(original: bytes, tmp_path: Path) -> None:
    """What the header says of types, shapes and places."""
    length = int.from_bytes(original[:8], "little")
    header, data = json.loads(original[8 : 8 + length]), original[8 + length :]
    kinds = ["F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "C64", "F8_E4M3", "F8_E8M0", "F4", "F6_E2M3", "U16", "X"]
    refused = 0
    for seed in range(300):
        draw, lie = random.Random(seed), copy.deepcopy(header)
        entry = lie[draw.choice([name for name in lie if name != "__metadata__"])]
        match draw.choice(["dtype", "shape", "nasty", "offsets"]):
            case "dtype":
                entry["dtype"] = draw.choice(kinds)
            case "shape":
                entry["shape"] = draw.choice([[], [0], [2**62, 4], [1] * 100, [10**12], [*entry["shape"][::-1], 1]])
            case "offsets":
                entry["data_offsets"] = draw.choice([[0, 0], [0, len(data)], [5, 3], [0, 2**63], [2**64 - 1, 2**64]])
            case _:
                entry[draw.choice(list(entry))] = copy.deepcopy(draw.choice(NASTY))
        text = json.dumps(lie).encode()
        content = len(text).to_bytes(8, "little") + text + data
        refused += lie != header and not attempt(tmp_path / "net", content, seed)
    assert refused > 200


def program_of(document: Any) -> Any:
    return document["network"]["plans"][0]["program"]


REFUSED = [
    *("aten.relu_.default", "aten.add.out", "aten.add_.Tensor", "aten.set_.source_Tensor", "aten.copy_.default"),
    *("os.system", "aten.from_file.default", "python.eval", "prims.add.default", "torchvision.nms.default", "eval"),
    *("aten.add.__class__", "aten.add", "aten.add.Tensor.x", "aten..default", "", "builtins.exec.x", "size.exec"),
    *("aten.add.str", "aten.mul.left_t", "aten.any.str", "aten.add.t", "aten.item.default", "aten.bernoulli.default"),
    *(
        "aten.__init__.default",
        "torch.ops.aten.add.Tensor",
        "ATEN.add.Tensor",
        "aten.add.nothing",
        "aten.clamp_.default",
    ),
]


@pytest.mark.parametrize("target", REFUSED)
def test_ops_off_the_list_are_refused(original: bytes, target: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="op"):
        codec.schema_of(target)
    document, tensors = taken_apart(original)
    network = artifact.network_from_document(document["network"], tensors)
    nodes = [dataclasses.replace(n, target=target) if n.op == "aten.linear" else n for n in network.plan.program.nodes]
    plan = dataclasses.replace(network.plan, program=network.plan.program.with_nodes(nodes))
    broken = spikecast.SpikingNetwork(plan, network.config, network.neurons, network.thresholds, network.report)
    path = tmp_path / "net"
    with pytest.raises(SpikecastError) as caught:
        broken.save(path)
    assert repr(target) in str(caught.value)
    assert str(path) in str(caught.value)
    assert not list(tmp_path.iterdir())
    next(n for n in program_of(document)["nodes"] if n["op"] == "aten.linear.default")["op"] = target
    assert not attempt(path, signed(document, tensors), target)


X, Y = Ref("x"), Ref("y")


@pytest.mark.parametrize(
    ("node", "fits"),
    [
        (Node("n", "aten.add.Tensor", (X, Y)), True),
        (Node("n", "aten.add.Tensor", (X, 2.0), {"alpha": 3}), True),
        (Node("n", "aten.add.Tensor", (X,)), False),
        (Node("n", "aten.add.Tensor", (X, Y, 3)), False),
        (Node("n", "aten.add.Tensor", (X, Y), {"self": X}), False),
        (Node("n", "aten.add.Tensor", (X, Y), {"beta": 3}), False),
        (Node("n", "aten.softmax.int", (X, 2, torch.float32)), True),
        (Node("n", "aten.softmax.int", (X, 2, -1)), False),  # torch takes it for a dtype and crashes
        (Node("n", "aten.reshape.default", (X, (Y, -1))), True),
        (Node("n", "aten.reshape.default", (X, ("a",))), False),
        (Node("n", "aten.index.Tensor", (X, (None, Y))), True),
        (Node("n", "aten.rrelu.default", (X, 0.1, 0.2, False, "generator")), False),
        (Node("n", "aten.batch_norm.default", (X, None, None, Y, Y, False, 0.1, 1e-5, False)), True),
        (Node("n", "aten.batch_norm.default", (X, None, None, Y, Y, True, 0.1, 1e-5, False)), False),  # changes Y
        (Node("n", "aten.batch_norm.default", (X, None, None, None, None, True, 0.1, 1e-5, False)), True),
        (Node("n", "size.mul", (X, 2)), True),
        (Node("n", "size.mul", ("a", 10**12)), False),
        (Node("n", "size.int", (X, 2)), False),
        (Node("n", "getitem", (X, 0)), True),
        (Node("n", "getitem", (X, "__class__")), False),
        (Node("n", "spikecast.neuron", (X,), {"site": "s"}), True),
        (Node("n", "spikecast.neuron", (X,), {}), False),
    ],
)
def test_arguments_must_fit_the_op(node: Node, fits: bool) -> None:
    if fits:
        codec._check_call(node)
    else:
        with pytest.raises(ArtifactError, match=f"'{node.target}' cannot take the arguments"):
            codec._check_call(node)


def put(*keys: Any, value: Any) -> Callable[[Any, Any], None]:
    """A lie: this value at that place of the document."""

    def lie(document: Any, tensors: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return lie


def threshold(*values: float, dtype: torch.dtype = torch.float32) -> Callable[[Any, Any], None]:
    def lie(document: Any, tensors: Any) -> None:
        tensors["thresholds/relu"] = torch.tensor(values, dtype=dtype)

    return lie


NETWORK = ("network", "plans", 0)
PROGRAM = (*NETWORK, "program")
WEIGHT = (*PROGRAM, "tensors", "head.weight")
DEEP: list[Any] = functools.reduce(lambda inner, _: [inner], range(300), [])


@pytest.mark.parametrize(
    ("lie", "complaint"),
    [
        (put("format", value=3), r"made by a newer spikecast \(format 3, this one reads 1\); upgrade"),
        (put("format", value=0), "is damaged: its format is 0"),
        (put("format", value="1"), "its format is '1', where int is due"),
        (put("kind", value="regions"), "the key 'network', which this version"),
        (put("extra", value=1), "the key 'extra', which this version of spikecast does not know"),
        (put("versions", value={"spikecast": 1, "torch": "2"}), "versions is 1, where str is due"),
        (put("network", "config", "num_steps", value=0), "num_steps=0 must be"),
        (put("network", "config", "overrides", value={"*": None}), "leaves a site analog that has neurons"),
        (put("network", "plans", value=[]), "no plans"),
        (put("network", "thresholds", "more", value="thresholds/relu"), "thresholds are not those of its sites"),
        (put("network", "thresholds", "relu", value="nowhere"), "tensor 'nowhere' is missing"),
        (put("network", "thresholds", "relu", value={"key": "thresholds/relu"}), "a threshold is dict"),
        (threshold(0.0), "'relu' are not all positive and finite"),
        (threshold(-1.0), "'relu' are not all positive and finite"),
        (threshold(float("nan")), "'relu' are not all positive and finite"),
        (threshold(float("inf")), "'relu' are not all positive and finite"),
        (threshold(1, dtype=torch.int64), "are torch.int64"),
        (put(*NETWORK, "sites", "relu", "axis", value=9), "axis of the site 'relu' is 9"),
        (put(*NETWORK, "sites", "relu", "interval", value=[1.0, 2.0]), "no interval around 0"),
        (put(*NETWORK, "sites", "other", value=None), "the site 'other' is None"),
        (put(*NETWORK, "roles", "relu", value="os.system"), "the role 'os.system' is unknown"),
        (put(*PROGRAM, "guards", value=[["system", "ls"]]), "an operation that this version"),
        (put(*PROGRAM, "guards", value=[["Equality", "ls", 1]]), "speaks of 'ls'"),
        (put(*PROGRAM, "outputs", 0, value={"ref": "nothing"}), "'nothing' is used before it is made"),
        (put(*PROGRAM, "nodes", 0, "args", 0, value={"ref": "relu"}), "'relu' is used before it is made"),
        (put(*PROGRAM, "nodes", 1, "name", value="tensors_0"), "two values are called 'tensors_0'"),
        (put(*PROGRAM, "nodes", 1, "meta", "shape", value=[1] * 65), "65 axes"),
        (put(*PROGRAM, "nodes", 1, "meta", "dtype", value="object"), "dtype 'object' is unknown"),
        (put(*WEIGHT, value={"key": "weights/head.weight", "shape": [10**12], "strides": [1]}), "do not fit"),
        (put(*WEIGHT, value={"key": "weights/head.weight", "shape": [2**40] * 2, "strides": [0, 0]}), "do not fit"),
        (put("network", "report", "notes", value=[3]), "the notes of the report is 3"),
        (put("network", "report", value=DEEP), "nested deeper than 100"),
        (put("network", "report", value=[]), "the report is list"),
        (put("network", "report", "notes", value=["a" * 10_001]), "a string of 10001 characters"),
        (put("network", "report", "num_sites", value=10**400), "a number beyond 64 bits"),
    ],
)
def test_lies_are_named(original: bytes, lie: Callable[[Any, Any], None], complaint: str, tmp_path: Path) -> None:
    document, tensors = taken_apart(original)
    lie(document, tensors)
    path = tmp_path / "net"
    path.write_bytes(signed(document, tensors))
    with pytest.raises(ArtifactError, match=complaint) as caught:
        spikecast.load(path)
    assert str(path) in str(caught.value)


def test_text_that_is_no_document(original: bytes, tmp_path: Path) -> None:
    _, tensors = taken_apart(original)
    for text in ("", "{", "[" * 100_000, '{"a":' * 100_000, "null", "[]", "NaN", '{"format":1e999}', "1" * 5000):
        (tmp_path / "net").write_bytes(to_bytes(tensors, {"spikecast": text}))
        with pytest.raises(ArtifactError, match=r"is damaged: .*; copy or save it again"):
            spikecast.load(tmp_path / "net")


def test_work_is_bounded(original: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document, tensors = taken_apart(original)
    document["network"]["config"]["overrides"] = {"relu": {}, "r*": {}}
    assert attempt(tmp_path / "net", signed(document, tensors), "few")
    monkeypatch.setattr(artifact, "MAX_MATCHES", 3)
    with pytest.raises(ArtifactError, match="its 2 overrides are too many for its sites"):
        spikecast.load(tmp_path / "net")
    monkeypatch.setattr(artifact, "MAX_HEADER", 1000)
    with pytest.raises(ArtifactError, match="no spikecast file"):
        spikecast.load(tmp_path / "net")
    with pytest.raises(ArtifactError, match="its graph takes more than 1000 bytes"):
        artifact.write(tmp_path / "new", "network", document, artifact.TensorStore())
    assert not (tmp_path / "new").exists()


def test_a_huge_shape_is_only_a_number(original: bytes, tmp_path: Path) -> None:
    document, tensors = taken_apart(original)
    program_of(document)["nodes"][1]["meta"]["shape"] = [10**12] * 3
    program_of(document)["tensors"]["head.weight"] = {"key": "weights/head.bias", "shape": [10**12], "strides": [0]}
    assert attempt(tmp_path / "net", signed(document, tensors), "shape")
