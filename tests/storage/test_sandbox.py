"""A network in a sandbox answers as it would here; whatever its process does, the caller gets an answer or one line."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import spikecast
from spikecast import measure
from spikecast.errors import ArtifactError, ConfigError, DataError, ModelError, ResourceError
from spikecast.storage import sandbox
from spikecast.storage.messages import Each, Nested, Numbers, Shared
from spikecast.storage.sandbox import Process, Sandbox
from spikecast.storage.sandboxed import SandboxedNetwork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")
LEAF: Any = {"kind": "leaf"}


class Net(nn.Module):
    """Answers a tuple in a dict, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor, *, scale: float = 2.0) -> dict[str, Any]:
        x = torch.relu(self.stem(x))
        return {"logits": self.head(x.mean((2, 3))) * scale, "rest": (x.amax(1), scale)}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    network = spikecast.convert(Net().eval(), [torch.randn(4, 1, 6, 6)], spikecast.Config(num_steps=3))
    network.about["of"] = "a test"
    network.save(tmp_path_factory.mktemp("sandbox") / "net.spikecast")
    return next((tmp_path_factory.getbasetemp()).glob("sandbox*/net.spikecast"))


@pytest.fixture(scope="module")
def plain(path: Path) -> spikecast.SpikingNetwork:
    return spikecast.load(path)


@pytest.fixture(scope="module")
def snn(path: Path) -> SandboxedNetwork:
    """One for all tests: to start one takes seconds."""
    network = spikecast.load(path, sandbox=Sandbox(memory="512MiB", seconds=120))
    assert isinstance(network, SandboxedNetwork)
    return network


def images(count: int = 5) -> Tensor:
    return torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(count))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


CALLS: dict[str, Callable[[Any], Any]] = {
    "call": lambda net: net(images()),
    "run": lambda net: net.run(images(), num_steps=2),
    "run in little memory": lambda net: net.run(images(), max_memory="1MiB"),
    "analog": lambda net: net.analog(images()),
    "frames": lambda net: net.run(images(6).reshape(2, 3, 1, 6, 6), time_axis=1),
    "record": lambda net: net.record(images(), sites=["relu"]),
    "anytime": lambda net: net.anytime(images(), confidence=0.5),
    "evaluate": lambda net: measure.evaluate(net, [(images(), torch.arange(5) % 3)]).to_json(),
    "energy": lambda net: measure.energy(net, [images()]).to_json(),
    "report": lambda net: net.report.to_json(),
    "what it is": lambda net: (net.config, net.about, net.slots(), net.batch_axis, net.neurons, dict(net.sites)),
    "thresholds": lambda net: net.thresholds,
}


@pytest.mark.parametrize("name", CALLS)
def test_answers_as_it_would_here(name: str, plain: Any, snn: Any) -> None:
    assert same(CALLS[name](snn), CALLS[name](plain))


def test_steps_are_those_of_a_run(plain: Any, snn: Any) -> None:
    """They are computed together, as in a run; one by one, the last bits are others on some processors."""
    whole, (times, answers) = plain.run(images()), zip(*snn.steps(images()), strict=True)
    assert times == (1, 2, 3)
    for t, answer in zip(times, answers, strict=True):
        assert torch.equal(answer["logits"], whole["logits"][t - 1])
        assert torch.equal(answer["rest"][0], whole["rest"][0][t - 1])


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (lambda net: net.save("x"), "cannot be saved: copy its file"),
        (lambda net: net.twin(), "shows no graph, which a twin needs"),
        (lambda net: net.networks, "shows no graph and no weights"),
        (lambda net: net.to(torch.float64), "stays on the CPU"),
        (lambda net: copy.deepcopy(net), "cannot be copied"),
        (lambda net: net.reconfigure(spikecast.Config(), [images()]), "cannot be calibrated anew"),
        (lambda net: measure.agreement(Net().eval(), net, [images()]), "in a sandbox"),
    ],
)
def test_what_needs_its_graph_is_refused(use: Any, complaint: str, snn: Any) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        use(snn)
    assert "load it without the sandbox if you trust the file" in str(caught.value)


def test_mistakes_are_said_as_they_would_be_here(plain: Any, snn: Any) -> None:
    for wrong in (images()[:, :, :2, :1], images() * torch.nan, "x"):
        said = []
        for net in (plain, snn):
            with pytest.raises(DataError) as caught:
                net.run(wrong)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_a_crash_is_one_line_and_the_next_call_works(plain: Any, snn: Any) -> None:
    os.kill(snn._process.process.pid, signal.SIGSEGV)
    with pytest.raises(ArtifactError, match=r"^/.*net\.spikecast ended its sandbox with signal 11 \(SIGSEGV\)"):
        snn(images())
    assert same(snn(images()), plain(images()))


def test_threads_take_turns(plain: Any, snn: Any) -> None:
    found: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: snn(images(n))})) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[n], plain(images(n))) for n in (1, 2, 3, 4))


def test_memory_is_bounded(snn: Any) -> None:
    with pytest.raises((ArtifactError, ResourceError), match="memory") as caught:
        snn.run(torch.zeros(20_000, 1, 60, 60), max_batch=10**9)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"sandbox": "yes"}, "sandbox='yes' must be True"),
        ({"sandbox": True, "model": Net()}, "runs the model's own Python"),
        ({"sandbox": True, "device": "meta"}, "a sandbox computes on the CPU"),
    ],
)
def test_what_goes_with_a_sandbox(given: dict[str, Any], complaint: str, path: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        spikecast.load(path, **given)


@pytest.mark.parametrize(("name", "value"), [("memory", "much"), ("seconds", 0), ("seconds", True), ("memory", -1)])
def test_limits_that_are_none(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=repr(value)):
        Sandbox(**{name: value})


# -- processes that do not keep to the rules; without torch they start at once

START = """if True:
    import json, os, sys, time
    from multiprocessing.connection import Connection
    given = json.loads(sys.argv[1])
    pipe, file = Connection(given["pipe"]), given["file"]
    pipe.send_bytes(b"ready")
    asked = pipe.recv_bytes()
    say = lambda **said: pipe.send_bytes(json.dumps(said).encode())
"""


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("os.abort()", r"ended its sandbox with signal 6 \(SIGABRT\)"),
        ("sys.exit(3)", "ended its sandbox with code 3"),
        ("time.sleep(60)", "took more than 2 s in its sandbox"),
        ("while True: pass", "took more than 2 s in its sandbox"),
        ("os.write(given['pipe'], b'\\0\\0\\1\\0half'); time.sleep(60)", "took more than 2 s in its sandbox"),
        ("pipe.send_bytes(bytes(2**27))", "ended its sandbox"),
        ("pipe.send_bytes(b'{')", "gave an answer that cannot be read"),
        ("pipe.send_bytes(b'[' * 1000)", "nested deeper than 100"),
        ('pipe.send_bytes(b\'{"type": "hello"}\')', "gave an answer that cannot be read"),
        ("say(type='answer', value={'form': {'kind': 'leaf'}, 'leaves': [1]})", "speaks of something else"),
        ("say(type='failure', kind='SystemExit', line='a\\n\\x1b[31m' * 99)", r"cannot be run \(a  \[31ma"),
    ],
)
def test_a_process_that_lies(code: str, complaint: str, path: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "guest.py").write_text(START + "    " + code)
    monkeypatch.setattr(sandbox, "_GUEST", str(tmp_path / "guest.py"))
    began = time.monotonic()
    with pytest.raises(ArtifactError, match=complaint) as caught:
        spikecast.load(path, sandbox=Sandbox(memory="64MiB", seconds=2))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert time.monotonic() - began < 30


def test_nothing_is_left_behind(path: Path, tmp_path: Path, monkeypatch) -> None:
    """Neither the process, nor its folder, nor descriptors."""
    (tmp_path / "guest.py").write_text(START + "    time.sleep(60)")
    monkeypatch.setattr(sandbox, "_GUEST", str(tmp_path / "guest.py"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = os.listdir("/proc/self/fd")
    process = Process(str(path), Sandbox(seconds=1))
    with pytest.raises(ArtifactError, match="more than 1 s"):
        process.start()
    assert process.process.returncode == -signal.SIGKILL
    assert os.listdir("/proc/self/fd") == before
    assert sorted(tmp_path.iterdir()) == [tmp_path / "guest.py"]


def test_the_process_gives_up_what_it_can(tmp_path: Path) -> None:
    """Memory, files, core dumps; and it has no environment."""
    code = """if True:
        import ctypes, mmap, os, resource
        from spikecast.storage import guest
        libc = ctypes.CDLL(None)
        libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 4]
        # as malloc keeps addresses for each thread
        kept = libc.mmap(None, 2**29, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        guest._give_up(2**28)
        usable = mmap.PROT_READ | mmap.PROT_WRITE
        print(sum(libc.mprotect(ctypes.c_void_p(kept + (n << 26)), 2**26, usable) == 0 for n in range(8)))
        try:
            bytearray(2**29)
        except MemoryError:
            print("no memory")
        try:
            os.write(os.open("x", os.O_WRONLY | os.O_CREAT), b"x")
        except OSError as error:
            print(error.strerror)
        print(open("/proc/self/status").read().partition("NoNewPrivs:")[2].split()[0])
        print([resource.getrlimit(k) for k in (resource.RLIMIT_CORE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE)])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["4", "no memory", "File too large", "1", "[(0, 0), (0, 0), (64, 64)]"]


def test_a_file_that_wants_twice_the_memory(tmp_path: Path) -> None:
    """It is refused in one line, and took no more than it may; the caller lives."""
    model, x = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 3)).eval(), torch.randn(2, 4096)
    snn = spikecast.convert(model, [x], spikecast.Config(num_steps=2, thresholds="quantile"))
    snn.save(tmp_path / "net")
    process = Process(str(tmp_path / "net"), Sandbox(memory="32MiB"))
    with pytest.raises(ResourceError, match=r"net takes more than 32MiB of memory in its sandbox; give more: "):
        process.start()
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    most, now = (int(status.partition(f"{name}:")[2].split()[0]) for name in ("VmHWM", "VmRSS"))
    assert most - now < 40 * 1024
    process.stop()
    assert torch.equal(spikecast.load(tmp_path / "net", sandbox=Sandbox(memory="512MiB"))(x), snn(x))


def test_its_surroundings(snn: Any) -> None:
    snn(images())
    pid = snn._process.process.pid
    environment = Path(f"/proc/{pid}/environ").read_text()
    assert {line.partition("=")[0] for line in environment.split("\0")} <= {"", *sandbox._KEPT}
    assert list(Path(f"/proc/{pid}/cwd").iterdir()) == []


# -- the memory that both sides see


def shared(size: int = 4096) -> Shared:
    return Shared(sandbox._nameless_file(size), size)


def test_values_come_back() -> None:
    memory = shared()
    value: dict[Any, Any] = {
        "a": (torch.arange(6).reshape(2, 3).t(), None, True),
        3: [torch.tensor(1.5), torch.zeros(0, 2), "x"],
    }
    value["b"] = torch.tensor([True, False])
    assert same(memory.unpack(memory.pack(value)), value)
    with pytest.raises(ArtifactError, match="more than 4096 bytes"):
        memory.pack(torch.zeros(1000))


@pytest.mark.parametrize(
    "leaf",
    [
        Numbers(0, "float32", (2**62,)),
        Numbers(0, "float32", (1025,)),
        Numbers(4090, "float32", (3,)),
        Numbers(10**9, "uint8", (1,)),
        Each((Numbers(0, "uint8", (4000,)), Numbers(0, "uint8", (4000,)))),
    ],
)
def test_tensors_that_lie_elsewhere(leaf: Any) -> None:
    with pytest.raises(ArtifactError, match="its tensors are"):
        shared().unpack(Nested(LEAF, (leaf,)))


def test_bools_are_bools() -> None:
    memory = shared()
    memory.pack(torch.tensor([0, 7], dtype=torch.uint8))
    found = memory.unpack(Nested(LEAF, (Numbers(0, "bool", (2,)),)))
    assert found.view(torch.uint8).tolist() == [0, 1]
