"""The sandbox's side: a process that holds a stranger's network and answers for it, under limits. Run as a script.

It is given a pipe, shared memory and the name of a file, and no environment. Once torch is there it gives up what it
can: memory, time, files of its own, processes. Only then it looks at the file.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spikecast.network.spiking import SpikingNetwork
    from spikecast.storage.messages import Hello, Request, Shared

_NO_NEW_PRIVILEGES = 38  # of prctl
_SPARE = 64  # descriptors


def main(path: str, pipe: int, file: int, memory: int, seconds: float, threads: int) -> None:
    """Load a network, and answer until nobody asks any more."""
    from multiprocessing.connection import Connection

    from spikecast.storage.artifact import load
    from spikecast.storage.messages import Request, Shared
    from spikecast.storage.schema import decoded, encoded

    ask, shared = Connection(pipe), Shared(file, memory)
    _warm_up(threads)
    _give_up(memory)
    ask.send_bytes(b"ready")
    network: Any = None

    def answer(request: bytes) -> Any:
        nonlocal network
        if network is None:
            network = load(path, max_memory=memory)
            return _hello(network, shared)
        return _run(network, decoded(request, Request), shared)

    while True:
        try:
            request = ask.recv_bytes()
        except EOFError:
            return
        _allow(seconds * threads)
        ask.send_bytes(encoded(_safe(answer, request)).encode())


def _warm_up(threads: int) -> None:
    """Start all threads, and compile or load what is needed now: later it may do neither."""
    import torch
    from numba.core import caching

    from spikecast.kernels import encode
    from spikecast.network import frames  # noqa: F401
    from spikecast.network.counting import meter  # noqa: F401
    from spikecast.theory.neuron import Neuron

    torch.set_num_threads(threads)
    # Compiled code is read from the cache, and none is put there.
    caching.Cache.save_overload = lambda *_: None  # type: ignore[method-assign]
    many = torch.zeros(2, threads, 1 << 17)
    encode(many.exp(), torch.ones(1, 1), Neuron())


def _give_up(memory: int) -> None:
    """Bound the process beyond what torch has taken already."""
    import resource

    from spikecast.storage.child import bound

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        with open("/proc/self/statm") as statm:
            pages = [int(word) * resource.getpagesize() for word in statm.read().split()]
        # Addresses that malloc keeps for later are taken already. The limit of data counts them once they are used.
        taken, most = pages[0], pages[5] + memory
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    else:
        taken = 2**33
    bound(taken + memory, None)
    for kind, most in ((resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NPROC, 0), (resource.RLIMIT_NOFILE, _SPARE)):
        resource.setrlimit(kind, (most, most))


def _allow(seconds: float) -> None:
    """So much processor time from now on; the caller has a clock too, unless it died."""
    import resource

    most = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def _safe(answer: Any, request: bytes) -> Any:
    """An answer, or what went wrong."""
    from spikecast.errors import SpikecastError, first_line, is_want_of_memory
    from spikecast.storage.messages import Failure

    try:
        return answer(request)
    except SpikecastError as error:
        return Failure(type(error).__name__, first_line(error))
    except Exception as error:  # of an op that does not take what the file gives it
        kind = "ResourceError" if is_want_of_memory(error) else ""
        return Failure(kind, f"{type(error).__name__}: {first_line(error)}")


def _hello(network: SpikingNetwork, shared: Shared) -> Hello:
    from spikecast.storage.artifact import network_to_record
    from spikecast.storage.messages import Hello
    from spikecast.storage.tensors import Outline

    record = network_to_record(network, Outline())
    program = record.plans[0].program
    weight = next(network.buffers(), None)
    return Hello(
        about=record.about,
        config=record.config,
        report=record.report,
        sites=record.plans[0].sites,
        neurons=record.neurons,
        thresholds=shared.pack(network.thresholds),
        batch_axis=network.batch_axis,
        call=program.call,
        constants=program.constants,
        parameters=program.parameters,
        dtype=None if weight is None else str(weight.dtype).removeprefix("torch."),  # type: ignore[arg-type]
    )


def _run(network: SpikingNetwork, request: Request, shared: Shared) -> Any:
    from spikecast.network.counting.tally import Tally
    from spikecast.storage.messages import Answer

    (args, kwargs), given = shared.unpack(request.call), request.settings
    shared.end = 0
    match request.what:
        case "metered":
            tally = Tally(given["num_steps"])
            value = network.metered((args, kwargs), tally, given["time_axis"])
            return Answer(shared.pack(value), tally)
        case "analog" | "anytime":
            value = getattr(network, request.what)(*args, **given, **kwargs)
        case "record":
            value = {name: tuple(own) for name, own in network.record(*args, **given, **kwargs).items()}
        case "run_frames":
            value = network.run_frames((args, kwargs), **given)
        case _:
            value = network.run_with((args, kwargs), **given)
    return Answer(shared.pack(value))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sys.path[:] = given.pop("sys_path")
    main(**given)
