"""Abort a hang: shut down the connections on which its collectives wait.

On CPU, processes communicate through Gloo, over TCP connections between all pairs. When these are
shut down, every collective that waits on one fails at once, and Python continues. The communicators
do not work afterwards, so `mcnb.recovery.heal` creates new ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

from mcnb.lockstep import _jax
from mcnb.lockstep.threads import current_frames

# The folder in which the system lists this process's file descriptors.
_DESCRIPTORS = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")


def abort(ports: Iterable[int], runs_learner: Callable[[FrameType], bool]) -> None:
    """Abort every collective that this process waits in.

    The ports are those at which the processes' communicators listen.
    """
    # Must be first, because a connection made at this moment would wait for its partner again.
    _jax.refuse_latecomers()
    cut_connections(ports)
    interrupt_callbacks(runs_learner)


def listening_ports() -> set[int]:
    """Return the TCP ports at which this process listens."""
    with _sockets() as found:
        return {
            one.getsockname()[1]
            for one in found
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        }


def cut_connections(ports: Iterable[int]) -> None:
    """Shut down this process's connections from or to any of these ports."""
    ports = set(ports)
    with _sockets() as found:
        for one in found:
            with contextlib.suppress(OSError):  # not connected, or closed meanwhile
                if not ports.isdisjoint((one.getsockname()[1], one.getpeername()[1])):
                    one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _sockets() -> Iterator[list[socket.socket]]:
    """Provide duplicates of this process's TCP sockets."""
    with contextlib.ExitStack() as stack:
        found = []
        for descriptor in [int(path.name) for path in _DESCRIPTORS.iterdir()]:
            with contextlib.suppress(OSError):  # closed meanwhile
                if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    continue
                one = stack.enter_context(socket.socket(fileno=os.dup(descriptor)))
                tcp = one.family in (socket.AF_INET, socket.AF_INET6)
                if tcp and one.type == socket.SOCK_STREAM:
                    found.append(one)
        yield found


def callbacks(runs_learner: Callable[[FrameType], bool]) -> list[int]:
    """Return the threads in which JAX calls back into the learner's code."""
    own = {threading.get_ident(), threading.main_thread().ident}
    found = []
    with current_frames() as frames:
        for thread, frame in frames.items():
            stack = [outer for outer, _ in traceback.walk_stack(frame)]
            started_by_python = stack[-1].f_globals.get("__name__") == "threading"
            if thread not in own and not started_by_python and any(map(runs_learner, stack)):
                found.append(thread)
    return found


def interrupt_callbacks(runs_learner: Callable[[FrameType], bool]) -> None:
    """Raise KeyboardInterrupt in callbacks, as one that never returns keeps a computation alive."""
    for thread in callbacks(runs_learner):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt)
        )
