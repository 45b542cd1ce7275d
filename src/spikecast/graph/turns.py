"""Whose turn it is: many threads run networks at once, or one of them captures a model.

torch.export switches things over for the whole process while it traces: oneDNN and cuDNN, nn.Module's own methods,
flags of the compiler. We ourselves add warnings, stderr and the fused attention. A run beside that would have other
bits or fail, and of two captures neither would put back what was there. So a capture waits until the runs have paused,
and they wait until it is done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spikecast.errors import enough_memory
from spikecast.theory.modes import no_autocast

_turn = threading.Condition()  # whoever captures holds it
_running: dict[int, int] = {}  # thread -> how many runs it is inside of
_waiting: set[int] = set()  # threads that are to capture next: nobody starts a run before them


@contextmanager
def computing() -> Iterator[None]:
    """While this lasts, no other thread captures, the caller's autocast is off, and want of memory is said as such."""
    me = threading.get_ident()
    with _turn:
        _turn.wait_for(lambda: me in _running or not _waiting)
        _running[me] = _running.get(me, 0) + 1
    try:
        with no_autocast(), enough_memory():
            yield
    finally:
        _leave(me)


@contextmanager
def capturing() -> Iterator[None]:
    """While this lasts, no other thread captures or computes; a run that this thread is inside of pauses meanwhile."""
    me = threading.get_ident()
    with _turn:
        depth = _running.pop(me, 0)
        _waiting.add(me)
        _turn.notify_all()
        try:
            try:
                _turn.wait_for(lambda: not _running)
            finally:
                _waiting.discard(me)
                _running[me] = depth + 1
            yield
        finally:
            _leave(me)


def _leave(me: int) -> None:
    with _turn:
        _running[me] -= 1
        if not _running[me]:
            del _running[me]
        _turn.notify_all()


def _forked() -> None:
    """In a child there is no thread but this one."""
    for thread in _running.keys() - {threading.get_ident()}:
        del _running[thread]
    _waiting.clear()
    _turn.release()


if hasattr(os, "register_at_fork"):  # not on Windows; a fork waits too, and its child finds every switch in its place
    os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_forked)
