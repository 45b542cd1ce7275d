"""What is saved comes back to the bit, without the model's class; what is wrong with a file is said in one line."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import spikecast
from spikecast.errors import ArtifactError, ConfigError, DataError
from spikecast.graph.program import Ref
from spikecast.network.plan import Plan
from spikecast.storage import codec, files, schema
from spikecast.storage.tensors import TensorStore, find

CPU = torch.device("cpu")
PLAIN = spikecast.Config(num_steps=3, thresholds="quantile")
CONFIG = dataclasses.replace(PLAIN, overrides={"*": {"num_levels": 6}, "stem*": {"quantile": 0.9}})


class Residual(nn.Module):
    """A small ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 1))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        x = self.stem(x)
        return self.head(torch.relu(x + self.block(x)).mean((2, 3))) * scale


class Attention(nn.Module):
    """A small Transformer over tokens that may be masked."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, 4)

    def forward(self, tokens: Tensor, *, keep: Tensor) -> Tensor:
        x = self.norm(self.embed(tokens))
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :]).transpose(1, 2).flatten(2)
        return self.head(F.gelu(x).mean(1))


@dataclasses.dataclass
class Answer:
    scores: Tensor
    best: Tensor


class Nested(nn.Module):
    """Takes integers and a list, answers a dict with a dataclass, constants and the input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(7, 6), nn.Linear(6, 3)
        self.gain: Tensor
        self.register_buffer("gain", torch.ones(6, dtype=torch.float16))

    def forward(self, ids: Tensor, more: list[Tensor]) -> dict[str | int, Any]:
        scores = self.head(torch.relu(self.table(ids).sum(1) + more[0] * self.gain.float()))
        return {"answer": Answer(scores, scores.argmax(-1)), "ids": ids, "name": "n", 3: (float("inf"), None, True)}


def residual_call(batch: int) -> tuple[Any, ...]:
    return (torch.randn(batch, 3, 8, 8),), {}


def attention_call(batch: int) -> tuple[Any, ...]:
    keep = torch.arange(6).expand(batch, 6) < torch.randint(1, 7, (batch, 1))
    return (), {"tokens": torch.randint(0, 11, (batch, 6)), "keep": keep}


def nested_call(batch: int) -> tuple[Any, ...]:
    return (torch.randint(0, 7, (batch, 4)), [torch.randn(batch, 6)]), {}


MODELS = {
    "residual": (Residual, residual_call),
    "attention": (Attention, attention_call),
    "nested": (Nested, nested_call),
}
_made: dict[str, spikecast.SpikingNetwork] = {}


def network_of(name: str) -> spikecast.SpikingNetwork:
    """Converted once; no test changes it."""
    if name not in _made:
        torch.manual_seed(1)
        model, call = MODELS[name][0](), MODELS[name][1](4)
        batch = call[0] or call[1]
        _made[name] = spikecast.convert(model.eval(), [batch], CONFIG if name == "residual" else PLAIN)
    return _made[name]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net.spikecast"
    network_of("residual").save(path)
    return path


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, type for type; a loaded dataclass is a namespace."""
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, Answer):
        return isinstance(a, SimpleNamespace) and same(vars(a), vars(b))
    return type(a) is type(b) and a == b


def without_tensors(plan: Plan) -> Plan:
    return dataclasses.replace(plan, program=dataclasses.replace(plan.program, tensors={}))


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_exact(name: str, tmp_path: Path) -> None:
    network = network_of(name)
    network.save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    assert isinstance(loaded, spikecast.SpikingNetwork)
    assert (loaded.config, loaded.report) == (network.config, network.report)
    assert without_tensors(loaded.plan) == without_tensors(network.plan)
    assert list(loaded.state_dict()) == list(network.state_dict())
    assert same(dict(loaded.state_dict()), dict(network.state_dict()))
    for batch in (1, 4, 7):
        args, kwargs = MODELS[name][1](batch)
        assert same(loaded.run(*args, **kwargs), network.run(*args, **kwargs))
        assert same(list(loaded.steps(*args, num_steps=2, **kwargs)), list(network.steps(*args, num_steps=2, **kwargs)))
        assert same(loaded(*args, **kwargs), network(*args, **kwargs))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "net").read_bytes()


def test_loads_without_the_class(tmp_path: Path) -> None:
    """In a process that has never seen the model: the dataclass is a namespace of the same fields."""
    network, (args, _) = network_of("nested"), nested_call(5)
    network.save(tmp_path / "net")
    safetensors.torch.save_file({"ids": args[0], "more": args[1][0]}, tmp_path / "call")
    code = """if True:
        import sys, spikecast
        assert "safetensors" not in sys.modules
        network = spikecast.load("net")
        from safetensors.torch import load_file, save_file
        call = load_file("call")
        answer = network(call["ids"], [call["more"]])["answer"]
        assert type(answer).__name__ == "Fields"
        save_file(vars(answer), "answer")
    """
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)
    answer = SimpleNamespace(**safetensors.torch.load_file(tmp_path / "answer"))
    assert same(vars(answer), vars(network(*args)["answer"]))


def test_a_call_that_does_not_fit_is_refused(saved: Path) -> None:
    loaded = spikecast.load(saved)
    assert loaded._recapture == ()
    with pytest.raises(DataError, match=r"cannot take the call.*convert the model again"):
        loaded(torch.randn(2, 4, 8, 8))


def test_all_captures_are_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    network = spikecast.convert(Residual().eval(), [x], CONFIG)
    half = network.run(x, scale=0.5)
    network.save(tmp_path / "net")
    loaded = spikecast.load(tmp_path / "net")
    assert isinstance(loaded, spikecast.SpikingNetwork)
    assert len(loaded.plans) == len(network.plans) == 2
    assert same(loaded.run(x, scale=0.5), half)
    weights = [name for name in safetensors.torch.load_file(tmp_path / "net") if name.startswith("weights/")]
    assert len(weights) == len(loaded.plan.program.tensors)  # shared by both


def test_what_was_changed_is_saved(tmp_path: Path) -> None:
    """The buffers count, not what was captured; and equal weights stay apart."""
    network = network_of("residual")
    network.save(tmp_path / "net")
    first = spikecast.load(tmp_path / "net")
    changed = {name: torch.rand_like(value) + 0.5 for name, value in first.state_dict().items()}
    first.load_state_dict({name: torch.zeros_like(v) + 0.5 for name, v in changed.items()})
    first.save(tmp_path / "zero")
    second = spikecast.load(tmp_path / "zero")
    second.load_state_dict(changed)
    assert same(dict(second.state_dict()), changed)


def _tensors() -> dict[str, Tensor]:
    base = torch.randn(4, 6)
    return {
        "plain": base,
        "shared": base,
        "turned": base.t(),
        "row": base[1],
        "gaps": base[:, ::2],
        "expanded": base[:1].expand(5, 6),
        "expanded twice": torch.tensor(3.0).expand(2, 3),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "channels last 1x1": torch.randn(2, 3, 1, 1).to(memory_format=torch.channels_last),
        "window": torch.arange(6.0).as_strided((4, 3), (1, 1)),
        "number": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "bool": torch.tensor([True, False]),
        "byte": torch.tensor([1, 255], dtype=torch.uint8),
        "long": torch.tensor([[2**62]]),
        "half": torch.randn(3).half(),
        "bfloat16": torch.randn(3).bfloat16(),
        "double": torch.randn(3).double(),
        "complex": torch.randn(3, dtype=torch.complex64),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "special": torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0]),
        "parameter": nn.Parameter(torch.randn(2)),
    }


def test_tensors_of_every_kind(tmp_path: Path) -> None:
    store, tensors = TensorStore(), _tensors()
    entries = {name: store.add(name, tensor) for name, tensor in tensors.items()}
    safetensors.torch.save_file(store.tensors, tmp_path / "t")
    read = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(tmp_path / "t").items()}
    assert entries["shared"] == "plain"
    assert "shared" not in read
    for name, tensor in tensors.items():
        found = find(entries[name], read)
        assert found.dtype == tensor.dtype
        assert torch.equal(found.nan_to_num(7.0), tensor.detach().nan_to_num(7.0)), name
        if name not in ("gaps", "window", "conjugate"):
            assert found.stride() == tensor.stride(), name
        assert found.data_ptr() % 64 == 0 or not found.numel(), name
    assert read["expanded"].numel() == 6


def test_equal_names_and_passing_tensors_stay_apart() -> None:
    store, tensor = TensorStore(), torch.zeros(2, 3).t()
    keys = [store.add("same", tensor), *(store.add("same", torch.full((3, 2), float(i))) for i in (1, 2, 3))]
    assert [float(find(key, store.tensors)[0, 0]) for key in keys] == [0, 1, 2, 3]
    alive = weakref.ref(tensor)
    del tensor
    assert alive() is not None  # else another could come to lie where it was, and be taken for it


@pytest.mark.parametrize("tensor", [torch.eye(2).to_sparse(), torch.empty(2, device="meta")])
def test_tensors_without_numbers_are_refused(tensor: Tensor) -> None:
    with pytest.raises(ArtifactError, match="'w' is sparse, quantized or without data"):
        TensorStore().add("w", tensor)


def test_arguments_of_every_kind() -> None:
    values = (
        None,
        True,
        1,
        -(2**62),
        1.5,
        1.0,
        -0.0,
        "text",
        Ref("x"),
        (1, (Ref("y"), None)),
        [1, [2.0]],
        float("inf"),
    )
    more = (
        -float("inf"),
        torch.float16,
        torch.bool,
        CPU,
        torch.channels_last,
        torch.preserve_format,
        torch.strided,
        (),
    )
    text = schema.encoded(codec.encode((*values, *more)))
    assert same(codec.decode(schema.decoded(text, schema.Tuple), CPU), (*values, *more))
    assert str(codec.decode(codec.encode(float("nan")), CPU)) == "nan"
    assert codec.decode(codec.encode(torch.device("cuda:1")), CPU) == CPU
    for value in (object(), {1: 2}, 1j, {"a": 1}, stat.S_IFREG.__class__, range(3), slice(1)):
        with pytest.raises(ArtifactError, match="cannot be saved"):
            codec.encode(value)


def test_device(saved: Path) -> None:
    assert {b.device for b in spikecast.load(saved, device="cpu").buffers()} == {CPU}
    for device in ("nonsense", "meta", "cuda:99"):
        with pytest.raises(ConfigError, match=f"device='{device}' cannot be used here"):
            spikecast.load(saved, device=device)


def test_model_is_for_regions(saved: Path) -> None:
    with pytest.raises(ArtifactError, match="needs no model; leave model= out"):
        spikecast.load(saved, model=Residual().eval())


def test_other_safetensors_files(tmp_path: Path) -> None:
    safetensors.torch.save_file({"w": torch.ones(2)}, tmp_path / "w")
    with pytest.raises(ArtifactError, match=r"without a spikecast network; give one that snn\.save wrote"):
        spikecast.load(tmp_path / "w")


def broken_paths(folder: Path) -> dict[str, Path]:
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "noise").write_bytes(bytes(range(256)) * 10)
    (folder / "tiny").write_bytes(b"abc")
    os.mkfifo(folder / "pipe")
    (folder / "cut").write_bytes((folder / "net.spikecast").read_bytes()[:-1])
    changed = bytearray((folder / "net.spikecast").read_bytes())
    changed[-1] ^= 1
    (folder / "changed").write_bytes(changed)
    return {
        name: folder / name
        for name in ("folder", "empty", "noise", "tiny", "pipe", "cut", "changed", "missing", "x\0y")
    }


def test_broken_files_are_named(saved: Path, tmp_path: Path) -> None:
    complaints = {
        "folder": "is a folder or a device; give the file that snn.save wrote",
        "pipe": "is a folder or a device; give the file that snn.save wrote",
        "empty": "is empty; copy or save it again",
        "noise": "is cut short, or no spikecast file; give a file",
        "tiny": "is cut short, or no spikecast file; give a file",
        "cut": "is cut short or damaged .*; copy or save it again",
        "changed": "is damaged: its checksum does not match; copy or save it again",
        "missing": "there is no file .*; check the name",
        "x\0y": "cannot be opened .*; check the name",
    }
    for name, path in broken_paths(tmp_path).items():
        with pytest.raises(ArtifactError, match=complaints[name]) as caught:
            spikecast.load(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_file_that_may_not_be_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:  # root may read everything, so that chmod would show nothing
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "open", refuse, raising=False)
    with pytest.raises(ArtifactError, match="may not be read; change its permissions"):
        spikecast.load(saved)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("disk")])
@pytest.mark.parametrize("call", ["os.replace", "os.fsync", "spikecast.storage.container._parts"])
def test_a_failure_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: Any) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(call, fail)
        with pytest.raises((ArtifactError, KeyboardInterrupt)) as caught:
            network_of("nested").save(saved)
    assert isinstance(error, KeyboardInterrupt) or f"{saved} is not written: " in str(caught.value)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_where_it_is_written(saved: Path, tmp_path: Path) -> None:
    network = network_of("nested")
    old = os.umask(0o027)
    try:
        network.save(str(tmp_path / "second"))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "second").stat().st_mode) == 0o640
    (tmp_path / "link").symlink_to(saved)
    network.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert saved.read_bytes() == (tmp_path / "second").read_bytes()
    for path, complaint in ((tmp_path, "it is a folder"), (tmp_path / "no" / "x", "No such file"), ("a\0b", "null")):
        with pytest.raises(ArtifactError, match=f"is not written: .*{complaint}.*; nothing was changed"):
            network.save(path)
