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
from safetensors.torch import save as to_bytes

import spikecast
from benchmarks.fuzz.edits import LIES, bases, edit, taken_apart
from benchmarks.fuzz.written import signed
from spikecast.errors import ArtifactError, SpikecastError
from spikecast.storage import artifact, container, ops, schema

MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def original() -> bytes:
    """A small file with a bit of everything that a document can hold."""
    return signed(*bases()[1])


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
                entry[draw.choice(list(entry))] = copy.deepcopy(draw.choice(LIES))
        text = json.dumps(lie).encode()
        content = len(text).to_bytes(8, "little") + text + data
        refused += lie != header and not attempt(tmp_path / "net", content, seed)
    assert refused > 200


def program_of(document: Any) -> Any:
    return document["body"]["plans"][0]["program"]


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
        ops.schema_of(target)
    document, tensors = taken_apart(original)
    record = schema.decoded(json.dumps(document["body"]), schema.Network)
    network = artifact.network_from_record(record, tensors)
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


def put(*keys: Any, value: Any) -> Callable[[Any, Any], None]:
    """A lie: this value at that place of the document."""

    def lie(document: Any, tensors: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return lie


def threshold(*values: float, dtype: torch.dtype = torch.float32) -> Callable[[Any, Any], None]:
    def lie(document: Any, tensors: Any) -> None:
        tensors["thresholds/relu"] = torch.tensor(values, dtype=dtype).reshape(1, -1, 1)

    return lie


def without_leak(document: Any, tensors: Any) -> None:
    """What files of format 2 hold."""
    document["format"] = 2
    for neuron in document["body"]["neurons"].values():
        del neuron["leak"]


PLAN = ("body", "plans", 0)
PROGRAM = (*PLAN, "program")
WEIGHT = (*PROGRAM, "tensors", "head.weight")
RELU = ("body", "neurons", "relu")
FLAT = {"kind": "list", "items": [{"kind": "leaf"}] * 2}
DEEP: list[Any] = functools.reduce(lambda inner, _: [inner], range(300), [])


@pytest.mark.parametrize(
    ("lie", "complaint"),
    [
        (put("format", value=4), r"has format 4, this spikecast reads 3; convert and save again"),
        (without_leak, r"has format 2, this spikecast reads 3; convert and save again"),
        (put("format", value="3"), r"is damaged: .*Expected `int`, got `str` - at `\$.format`"),
        (put("body", "kind", value="regions"), r"unknown field `report` - at `\$.body`"),
        (put("body", "kind", value="os"), r"Invalid value 'os' - at `\$.body.kind`"),
        (put("extra", value=1), "unknown field `extra`"),
        (put("versions", value={"spikecast": 1, "torch": "2"}), r"`str`, got `int` - at `\$.versions\[...\]`"),
        (put("body", "config", "num_steps", value=0), "num_steps=0 must be"),
        (put("body", "config", "more", value=0), "unknown setting 'more'"),
        (put("body", "config", "overrides", value={"*": None}), "leaves a site analog that has neurons"),
        (put("body", "plans", value=[]), r"length >= 1 - at `\$.body.plans`"),
        (put(*RELU, "num_levels", value=99), "num_levels=99 must be"),
        (put(*RELU, "signed", value=False), "signed=False cannot work"),
        (put(*RELU, "coding", value="morse"), r"Invalid enum value 'morse' - at `\$.body.neurons\[...\].coding`"),
        (put("body", "neurons", value={}), "neurons are not those of its sites"),
        (put(*RELU, "threshold", value="nowhere"), "tensor 'nowhere' is missing"),
        (put(*RELU, "threshold", value={"key": "thresholds/relu"}), "Expected `str`, got `object`"),
        (threshold(0.0), "'thresholds/relu' are not all positive and finite"),
        (threshold(-1.0), "'thresholds/relu' are not all positive and finite"),
        (threshold(float("nan")), "'thresholds/relu' are not all positive and finite"),
        (threshold(float("inf")), "'thresholds/relu' are not all positive and finite"),
        (threshold(1, dtype=torch.int64), "are torch.int64"),
        (put(*PLAN, "sites", "relu", "meta", "shape", value=[3, 2, 8]), "thresholds of 'relu' have another shape"),
        (put(*PLAN, "sites", "relu", "axis", value=9), "axis of the site 'relu' is 9"),
        (put(*PLAN, "sites", "relu", "meta", "dtype", value="float8_e4m3fn"), "neurons of 'relu' are torch.float8"),
        (put(*PLAN, "sites", "relu", "meta", "dtype", value="int64"), "neurons of 'relu' are torch.int64"),
        (put(*PLAN, "sites", "relu", "lower", value=1.0), "no interval around 0"),
        (put(*PLAN, "sites", "relu", "upper", value=["float", "nan"]), "no interval around 0"),
        (put(*PLAN, "sites", "other", value=None), r"Expected `object`, got `null` - at `\$.body.plans\[0\].sites"),
        (put(*PROGRAM, "registered", "aten.add", value="os.system"), "Invalid enum value 'os.system'"),
        (put(*PROGRAM, "registered", "aten.add", value="sum"), "register_op gave 'aten.add' other roles than here"),
        (put(*PROGRAM, "guards", value=[["list", ["system", "ls"]]]), "an operation that this version"),
        (put(*PROGRAM, "guards", value=[["list", ["Equality", "ls", 1]]]), "speaks of 'ls'"),
        (put(*PROGRAM, "guards", value=[["list", ["FloorDiv", 1]]]), "sizes cannot be computed"),
        (put(*PROGRAM, "guards", value=[["list", ["FloorDiv", 1, 0]]]), "sizes cannot be computed .*by zero"),
        (put(*PROGRAM, "guards", value=[["list", ["Equality", 1, 2]]]), "do not meet its own conditions"),
        (put(*PROGRAM, "guards", value=[["list", ["Pow", 9, ["list", ["Pow", 9, 9]]]]]), "to the power of 387420489"),
        (put(*PROGRAM, "guards", value=[["list", ["Mul", *[2**40] * 60]]]), "a size beyond 64 bits"),
        (put(*PROGRAM, "guards", value=[["list", ["Mul", *[1] * 100]]]), "an operation that this version"),
        (put(*PROGRAM, "inputs", 0, "dims", value=["s", 9]), "'tensors_0' has other sizes than its form"),
        (put(*PROGRAM, "inputs", 0, "dims", value=["s", "s"]), "do not meet its own conditions"),
        (put(*PROGRAM, "call", value={"kind": "leaf"}), "the arguments of its call are not those of its inputs"),
        (put(*PROGRAM, "call", value=FLAT), "its call is no list of arguments"),
        (put(*PROGRAM, "outputs", 0, value=["ref", "nothing"]), "'nothing' is used before it is made"),
        (put(*PROGRAM, "nodes", 0, "args", 0, value=["ref", "relu"]), "'relu' is used before it is made"),
        (put(*PROGRAM, "nodes", 0, "args", 0, value=["torch", "load"]), "Invalid enum value 'load'"),
        (put(*PROGRAM, "nodes", 1, "name", value="tensors_0"), "two values are called 'tensors_0'"),
        (put(*PROGRAM, "nodes", 1, "meta", "shape", value=[1] * 65), r"length <= 64 - at .*nodes\[1\].meta.shape"),
        (put(*PROGRAM, "nodes", 1, "meta", "dtype", value="object"), "Invalid enum value 'object'"),
        (put(*WEIGHT, value={"key": "weights/head.weight", "shape": [10**12], "strides": [1]}), "do not fit"),
        (put(*WEIGHT, value={"key": "weights/head.weight", "shape": [2**40] * 2, "strides": [0, 0]}), "do not fit"),
        (put("body", "report", "notes", value=[3]), r"got `int` - at `\$.body.report.notes\[0\]`"),
        (put("body", "report", value=DEEP), "nested deeper than 100"),
        (put("body", "report", value=[]), r"Expected `object`, got `array` - at `\$.body.report`"),
        (put("body", "report", "notes", value=["a" * 10_001]), "a string of 10001 bytes"),
        (put("body", "report", "num_sites", value=10**400), "a number beyond 64 bits"),
        (put("body", "about", "n", value=2**64), "a number beyond 64 bits"),
        (put("\x1b[2J\n", value=1), r"unknown field `.x1b"),
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
    document["body"]["config"]["overrides"] = {"relu": {}, "r*": {}}
    assert attempt(tmp_path / "net", signed(document, tensors), "few")
    monkeypatch.setattr(artifact, "MAX_MATCHES", 3)
    with pytest.raises(ArtifactError, match="its 2 overrides are too many for its sites"):
        spikecast.load(tmp_path / "net")
    monkeypatch.setattr(container, "MAX_HEADER", 1000)
    with pytest.raises(ArtifactError, match="no spikecast file"):
        spikecast.load(tmp_path / "net")
    with pytest.raises(ArtifactError, match="its graph takes more than 1000 bytes"):
        container.write(tmp_path / "new", json.dumps(document), {})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("size", "loads"), [(10**6, True), (10**12, False)])
def test_a_huge_shape_is_only_a_number(original: bytes, size: int, loads: bool, tmp_path: Path) -> None:
    """It takes no memory; beyond 62 bits there is no such tensor."""
    document, tensors = taken_apart(original)
    program_of(document)["nodes"][1]["meta"]["shape"] = [size] * 3
    assert attempt(tmp_path / "net", signed(document, tensors), "shape") == loads


def many_values(document: Any) -> None:
    document["body"]["about"] = {"x": [{}] * 4_000_000}


def huge_weights(document: Any) -> None:
    for name in program_of(document)["tensors"]:
        program_of(document)["tensors"][name] = {"key": "weights/head.bias", "shape": [2**62], "strides": [0]}


def long_patterns(document: Any) -> None:
    document["body"]["config"]["overrides"] = {"*a" * 4000 + str(i): {} for i in range(500)}


def many_patterns(document: Any) -> None:
    document["body"]["config"]["overrides"] = {f"*{i}": {} for i in range(2000)}


@pytest.mark.parametrize("lie", [many_values, huge_weights, long_patterns, many_patterns])
def test_loading_takes_as_long_as_the_file_is(original: bytes, lie: Callable[[Any], None], tmp_path: Path) -> None:
    document, tensors = taken_apart(original)
    lie(document)
    (tmp_path / "net").write_bytes(signed(document, tensors))
    start = time.process_time()
    with pytest.raises(ArtifactError, match=r"holds more than|do not fit|overrides are too many"):
        spikecast.load(tmp_path / "net")
    assert time.process_time() - start < 2
