"""Files whose graphs are made to crash, to read foreign memory or never to end: each is refused in one line.

The attacks are run in one child process, which this file is when it is a script: without the checks it dies.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as to_bytes
from torch import nn

import spikecast
from spikecast.errors import ArtifactError
from spikecast.storage.tensors import digest, sealed

LEAST, HUGE = -(2**63), 2**40
X = ["ref", "tensors_0"]  # float32 [2, 4]
LAST = ["ref", "last"]  # stands for the result of the op before
Op = tuple[str, list[Any], dict[str, Any], Any]


def shape(*sizes: int) -> list[Any]:
    return ["list", [*sizes]]


def meta(*sizes: int, dtype: str = "float32", batch_axis: int | None = None) -> dict[str, Any]:
    return {"shape": sizes, "dtype": dtype, "batch_axis": batch_axis}


def full(*sizes: int, value: Any = 1.0, dtype: str = "float32") -> Op:
    return "aten.full.default", [shape(*sizes), value], {"dtype": ["torch", dtype]}, meta(*sizes, dtype=dtype)


def divided(op: str, by: Any, **kwargs: Any) -> list[Op]:
    """The least whole number divided by -1 or 0."""
    one = meta(1, dtype="int64")
    if by == "tensor":
        number = ["ref", "0"]
        return [
            full(1, value=-1, dtype="int64"),
            full(1, value=LEAST, dtype="int64"),
            (op, [LAST, number], kwargs, one),
        ]
    return [full(1, value=LEAST, dtype="int64"), (op, [LAST, by], kwargs, one)]


def upsampled(op: str, size: list[int], *args: Any, dtype: str = "float32") -> list[Op]:
    return [
        full(1, 3, 64, 64, value=1, dtype=dtype),
        (op, [LAST, shape(*size), *args], {}, meta(1, 3, *size, dtype=dtype)),
    ]


GRID = [full(1, 1, 2, 2), ("aten.grid_sampler_2d.default", [LAST, LAST, 7, 0, False], {}, meta(1, 1, 2, 2))]
BAG: list[Op] = [
    full(4, 2),
    full(2, value=0, dtype="int64"),
    ("aten.arange.start_step", [0, -(10**9), -5 * 10**8], {}, meta(2, dtype="int64")),
    ("aten.embedding_bag.default", [["ref", "0"], ["ref", "1"], LAST], {}, [meta(1, 2)] + [meta(0, dtype="int64")] * 3),
]
SIZE: Op = ("aten.sym_size.int", [X, 1], {}, None)

CRASHES: dict[str, tuple[list[Op], str]] = {
    "div": (divided("aten.div.Tensor_mode", "tensor", rounding_mode="trunc"), "whole numbers by 0 or -1"),
    "div by a number": (divided("aten.div.Scalar_mode", -1, rounding_mode="trunc"), "whole numbers by 0 or -1"),
    "floor_divide": (divided("aten.floor_divide.default", "tensor"), "whole numbers by 0 or -1"),
    "remainder": (divided("aten.remainder.Tensor", "tensor"), "whole numbers by 0 or -1"),
    "fmod": (divided("aten.fmod.Scalar", -1), "whole numbers by 0 or -1"),
    "fmod by 0": (divided("aten.fmod.Scalar", 0), "whole numbers by 0 or -1"),
    "upsample aa": (upsampled("aten._upsample_bilinear2d_aa.default", [8, 8], False, 1e-18, 1e-18), "a scale of 1e-18"),
    "upsample far": (upsampled("aten.upsample_nearest2d.default", [8, 8], 1e-5, 2.0), "a scale of 1e-05 from 64 to 8"),
    "upsample nearest": (
        [
            full(1, 3, 64, 64, value=1, dtype="uint8"),
            (
                "aten.clone.default",
                [LAST],
                {"memory_format": ["torch", "channels_last"]},
                meta(1, 3, 64, 64, dtype="uint8"),
            ),
            (
                "aten.upsample_nearest2d.default",
                [LAST, shape(128, 128), 1e-18, 1e-18],
                {},
                meta(1, 3, 128, 128, dtype="uint8"),
            ),
        ],
        "a scale of 1e-18",
    ),
    "embedding_bag": (BAG, "not on the list"),
    "empty": ([("aten.empty.memory_format", [shape(9)], {}, meta(9))], "not on the list"),
    "grid_sampler": (GRID, r"the modes \(7, 0\)"),
    "native_group_norm": (
        [
            full(4, 4, 8),
            (
                "aten.native_group_norm.default",
                [LAST, None, None, 0, 1, 1, 1, 1e-5],
                {},
                [meta(4, 4, 8)] + [meta(0, 1)] * 2,
            ),
        ],
        "1 groups of",
    ),
    "a number for a dtype": ([("aten.to.prim_dtype", [X, 99], {}, meta(2, 4))], "has no op"),
}

ENDLESS: dict[str, tuple[list[Op], str]] = {
    "size.pow": ([SIZE, *[("size.pow", [LAST, 1000], {}, None)] * 9], "to the power of 1000"),
    "size.mul": ([SIZE, *[("size.mul", [LAST, LAST], {}, None)] * 40], "beyond 64 bits"),
    "full": ([full(HUGE, 64)], "may take"),
    "cat": ([full(1000), *[("aten.cat.default", [["list", [LAST] * 2]], {}, meta(1000))] * 40], "the file says"),
    "honest cat": (
        [full(1000)] + [("aten.cat.default", [["list", [LAST] * 2]], {}, meta(1000 * 2**n)) for n in range(1, 36)],
        "may take|far more work",
    ),
    "einsum": (
        [full(40_000), ("aten.einsum.default", ["a,b->ab", ["list", [LAST] * 2]], {}, meta(40_000, 40_000))],
        "may take",
    ),
    "expand": (
        [
            full(1),
            ("aten.expand.default", [LAST, shape(2**60)], {}, meta(2**60)),
            ("aten.sum.default", [LAST], {}, meta()),
        ],
        "may take",
    ),
    "products": (
        [
            full(1, 1),
            ("aten.expand.default", [LAST, shape(2**14, 2**14)], {}, meta(2**14, 2**14)),
            ("aten.mm.default", [LAST, LAST], {}, meta(2**14, 2**14)),
        ],
        "far more work",
    ),
    "broadcast": (
        [
            full(2**15, 1),
            ("aten.t.default", [LAST], {}, meta(1, 2**15)),
            ("aten.add.Tensor", [LAST, ["ref", "0"]], {}, meta(2**15, 2**15)),
        ],
        "may take",
    ),
    "batches": (
        [
            full(2**14, 1, 1, 64),
            full(2**14, 64, 1),
            ("aten.matmul.default", [["ref", "0"], LAST], {}, meta(2**14, 2**14, 1, 1)),
        ],
        "may take",
    ),
    "parts": ([full(4), ("aten.tensor_split.sections", [LAST, HUGE], {}, [meta(1)] * 4)], f"{HUGE} parts, not 4"),
    "diff": (
        [
            full(1),
            ("aten.expand.default", [LAST, shape(2**28)], {}, meta(2**28)),
            ("aten.diff.default", [LAST, HUGE], {}, meta(0)),
        ],
        f"{HUGE} repeats",
    ),
    "pool": (
        [
            full(1, 1),
            ("aten.expand.default", [LAST, shape(1, 2**12, 2**12)], {}, meta(1, 2**12, 2**12)),
            ("aten.avg_pool2d.default", [LAST, shape(2**11, 2**11), shape(1, 1)], {}, meta(1, 2**11 + 1, 2**11 + 1)),
        ],
        "far more work",
    ),
}

LIES: dict[str, tuple[list[Op], str]] = {
    "dtype": (
        [("aten.neg.default", [X], {}, meta(2, 4, dtype="int64", batch_axis=0))],
        "torch.float32 .* says torch.int64",
    ),
    "rank": ([("aten.neg.default", [X], {}, meta(2, batch_axis=0))], r"shape \(2, 4\).* of shape \(2,\)"),
    "size": ([("aten.neg.default", [X], {}, meta(2, 5, batch_axis=0))], r"shape \(2, 4\).* of shape \(2, 5\)"),
    "parts": ([("aten.neg.default", [X], {}, [meta(2, 4)])], "the file says 1 parts"),
    "no tensor": ([("aten.neg.default", [X], {}, None)], "the file says a size"),
    "axis": ([("aten.sum.dim_IntList", [X, ["list", [7]]], {}, meta(2))], "Dimension out of range"),
    "division": ([SIZE, ("size.floordiv", [LAST, 0], {}, None)], "sizes cannot be computed"),
}
ATTACKS = {"crash": CRASHES, "endless": ENDLESS, "lie": LIES}


def written(original: bytes, ops: list[Op]) -> bytes:
    """The file with these ops in front, whose last result is its answer."""
    length = int.from_bytes(original[:8], "little")
    document = json.loads(json.loads(original[8 : 8 + length])["__metadata__"]["spikecast"])
    del document["sha256"]
    program, nodes = document["body"]["plans"][0]["program"], []
    for number, (op, args, kwargs, form) in enumerate(ops):
        text = json.dumps(args).replace('"last"', f'"{number - 1}"')
        node = {"name": str(number), "op": op, "args": json.loads(text), "kwargs": kwargs, "scope": "", "meta": form}
        nodes.append(node)
    program["nodes"] = nodes + program["nodes"]
    program["outputs"] = [["ref", str(len(ops) - 1)]]
    return signed(document, read_tensors(original))


def signed(document: Any, tensors: dict[str, torch.Tensor]) -> bytes:
    digests = {name: digest(tensor) for name, tensor in tensors.items()}
    return to_bytes(tensors, {"spikecast": sealed(json.dumps(document), digests)})


def outcome(path: Path) -> tuple[str, str, float]:
    """What became of a run of a file: the type of the error, its text, and the time it took."""
    start = time.process_time()
    try:
        spikecast.load(path).run(torch.ones(2, 4))
    except Exception as error:
        return type(error).__name__, str(error), time.process_time() - start
    return "", "", time.process_time() - start


def main(path: str) -> None:
    """In the child: run every attack."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    original = Path(path).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "net"
        for kind, attacks in ATTACKS.items():
            for name, (ops, _) in attacks.items():
                target.write_bytes(written(original, ops))
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                found = outcome(target)
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
                print(json.dumps([kind, name, *found, memory // 1024]), flush=True)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    path: Path = tmp_path_factory.mktemp("hostile") / "net.spikecast"
    spikecast.convert(model, [torch.rand(2, 4)], spikecast.Config(num_steps=2, thresholds="quantile")).save(path)
    return path


def test_a_call_of_another_form(original: Path, tmp_path: Path) -> None:
    length = int.from_bytes((content := original.read_bytes())[:8], "little")
    document = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["spikecast"])
    del document["sha256"]
    document["body"]["plans"][0]["program"]["call"] = {"kind": "leaf"}
    (tmp_path / "net").write_bytes(signed(document, read_tensors(content)))
    with pytest.raises(ArtifactError, match="its call is no list of arguments and dict of named ones"):
        spikecast.load(tmp_path / "net")


@pytest.fixture(scope="module")
def outcomes(original: Path) -> dict[tuple[str, str], list[Any]]:
    done = subprocess.run(
        [sys.executable, __file__, str(original)], capture_output=True, text=True, timeout=300, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"after {lines[-1:]}: {done.returncode} {done.stderr[-500:]}"
    return {(kind, name): rest for kind, name, *rest in lines}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, attacks in ATTACKS.items() for name in attacks])
def test_attacks_are_refused(outcomes: dict[tuple[str, str], list[Any]], kind: str, name: str) -> None:
    error, text, seconds, mebibytes = outcomes[kind, name]
    assert error in ("ArtifactError", "ModelError"), text
    assert re.search(ATTACKS[kind][name][1], text), text
    assert "\n" not in text
    assert len(text) < 600
    assert seconds < 5
    assert mebibytes < 300


if __name__ == "__main__":
    main(sys.argv[1])
