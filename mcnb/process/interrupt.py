"""Signals: SIGINT reaches the learner's code and nothing else, SIGHUP ends the process.

SIGTERM is not ours: `jax.distributed` takes it as the notice of a preemption.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

RETRY_S = 0.01

_armed = False
_leaving = False


def install() -> None:
    """Take over the signals in this process."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGHUP, _hang_up)
    sys.unraisablehook = _unraisable


def _interrupt(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    if _armed:
        raise KeyboardInterrupt


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # It came while a finalizer or JAX's callback of the garbage collector ran, and is lost.
        threading.Timer(RETRY_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)


def _hang_up(signum: int, frame: FrameType | None) -> None:
    global _leaving
    del signum, frame
    _leaving = True
    raise SystemExit(0)


@contextmanager
def armed() -> Iterator[None]:
    """Let signals end the code inside; before and after, SIGINT is ignored."""
    global _armed
    _armed = True
    try:
        yield
    finally:
        _armed = False
        if _leaving:
            # The shell took the exit for the cell's own; this one is the event loop's.
            asyncio.get_running_loop().call_soon(sys.exit, 0)
