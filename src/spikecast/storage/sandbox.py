"""A stranger's network in a process of its own: it may crash, hang or ask for any amount of memory there, not here.

docs/security.md says what this keeps off, and what it does not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any

import torch

from spikecast import errors
from spikecast.batches import Call
from spikecast.errors import ArtifactError, ConfigError, ResourceError, SpikecastError, enough_memory
from spikecast.network.chunks import bytes_of
from spikecast.storage.files import blaming
from spikecast.storage.messages import Answer, Failure, Hello, Reply, Request, Shared, one_line
from spikecast.storage.schema import decoded, encoded

_GUEST = os.path.join(os.path.dirname(__file__), "guest.py")
# All of the environment that the process is given: where libraries lie, and what is known of speed.
_KEPT = ("LD_LIBRARY_PATH", "NUMBA_CACHE_DIR", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_START = 300  # seconds until torch is there; nothing of the file is read before
_MAX_REPLY = 2**26
_OURS = {name: own for name, own in vars(errors).items() if isinstance(own, type) and issubclass(own, SpikecastError)}


@dataclass(frozen=True)
class Sandbox:
    """The limits of a sandbox, which a stranger's network is loaded and run in.

    Args:
        memory: What it may take beyond what torch takes: bytes, or text such as "4GiB".
        seconds: How long loading and each call may take.

    Raises:
        ConfigError: A value that is no such limit.

    Example:
        >>> snn.save("theirs.spikecast")
        >>> limits = spikecast.Sandbox(memory="1GiB", seconds=300)
        >>> torch.equal(spikecast.load("theirs.spikecast", sandbox=limits)(x), snn(x))
        True
    """

    memory: int | str = "4GiB"
    seconds: float = 600.0

    def __post_init__(self) -> None:
        bytes_of(self.memory)
        if type(self.seconds) not in (int, float) or not 0 < self.seconds < 1e9:
            raise ConfigError(f"seconds={self.seconds!r} must be a number above 0")


class Process:
    """The process that holds a network. Where it dies, the next call starts another."""

    def __init__(self, path: str, limits: Sandbox) -> None:
        self.path, self.limits = path, limits
        self.memory = bytes_of(limits.memory)
        self.lock = threading.RLock()
        self.end: Callable[[], Any] | None = None  # ends the process, where there is one
        self.home = 0  # who started it: a fork must not speak into its parent's pipe

    def start(self) -> Hello:
        """A new process, with the network in it."""
        self.stop()
        shared = _nameless_file(self.memory)
        ours, theirs = Pipe()
        folder = tempfile.TemporaryDirectory(prefix="spikecast-")
        given = {"path": self.path, "pipe": theirs.fileno(), "file": shared, "memory": self.memory}
        given |= {"seconds": self.limits.seconds, "threads": torch.get_num_threads(), "sys_path": sys.path}
        process = subprocess.Popen(
            [sys.executable, "-I", _GUEST, json.dumps(given)],
            cwd=folder.name,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            pass_fds=(theirs.fileno(), shared),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.process, self.pipe, self.shared, self.home = process, ours, Shared(shared, self.memory), os.getpid()
        self.end = weakref.finalize(self, _end, process, ours, shared, folder)
        self._exchange(None, _START)
        hello = self._reply(b"load")
        if not isinstance(hello, Hello):
            raise ArtifactError(f"{self.path} cannot be loaded: its sandbox speaks of something else")
        return hello

    def stop(self) -> None:
        if self.end is not None and self.home == os.getpid():
            self.end()
        self.end = None

    def ask(self, what: Any, call: Call, settings: dict[str, Any]) -> tuple[Any, Any]:
        """What the network answers to a call, and what was counted."""
        with self.lock:
            if self.end is None or self.home != os.getpid():
                self.start()
            self.shared.clear()
            request = Request(what, self.shared.pack(call), settings)
            reply = self._reply(encoded(request).encode())
            if not isinstance(reply, Answer):
                raise ArtifactError(f"{self.path}: its sandbox speaks of something else")
            wrong = blaming(f"{self.path} gave an answer that cannot be read", "do not trust it", Exception)
            with enough_memory(), wrong:
                return self.shared.unpack(reply.value), reply.tally

    def _reply(self, request: bytes) -> Reply:
        text = self._exchange(request, self.limits.seconds)
        with blaming(f"{self.path} gave an answer that cannot be read", "do not trust it"):
            reply: Reply = decoded(text, Reply)  # type: ignore[arg-type]
        if isinstance(reply, Failure) and reply.kind == "ResourceError":
            said = f"{self.path} takes more than {self.limits.memory} of memory in its sandbox"
            raise ResourceError(f"{said}; give more: sandbox=Sandbox(memory=...)")
        if isinstance(reply, Failure):
            raise _OURS.get(reply.kind, ArtifactError)(
                one_line(reply.line if reply.kind in _OURS else f"{self.path} cannot be run ({reply.line})")
            )
        return reply

    def _exchange(self, request: bytes | None, seconds: float) -> bytes:
        """Send a line and receive one; a process that dies or takes too long is ended, and said so."""
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(self.process)

        clock = threading.Timer(seconds, end)
        clock.start()
        try:
            if request is not None:
                self.pipe.send_bytes(request)
            return self.pipe.recv_bytes(_MAX_REPLY)
        except (EOFError, OSError):
            process = self.process
            with suppress(subprocess.TimeoutExpired):  # how it ended is known a little later
                process.wait(1)
            self.stop()
            raise ArtifactError(_obituary(self.path, process, late.is_set(), seconds, self.limits)) from None
        except BaseException:  # as by Ctrl-C: the answer that is still to come belongs to no later call
            self.stop()
            raise
        finally:
            clock.cancel()


def _nameless_file(size: int) -> int:
    """A file in memory that has no name, of a size that takes nothing until it is written to."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("spikecast")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file


def _kill(process: Any) -> None:
    """End a process, and all it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: Any, pipe: Any, shared: int, folder: Any) -> None:
    """End a process, and give back what was shared with it."""
    _kill(process)
    process.wait()
    pipe.close()
    os.close(shared)
    folder.cleanup()


def _obituary(path: str, process: Any, late: bool, seconds: float, limits: Sandbox) -> str:
    code = process.returncode
    if late or code == -signal.SIGXCPU:
        return f"{path} took more than {seconds:g} s in its sandbox; give more: sandbox=Sandbox(seconds=...)"
    how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"code {code}"
    return f"{path} ended its sandbox with {how}; do not trust it, or give more than {limits.memory} of memory"
