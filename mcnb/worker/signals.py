"""Deliver interrupts to the cell that a process runs, and end processes left alone.

SIGINT raises KeyboardInterrupt in the learner's code and is ignored between cells. SIGHUP ends the
process. SIGTERM is left to `jax.distributed`, which takes it as the notice of a preemption.

An interrupt can miss its cell in four ways, each of which is handled here:

- It arrives before the cell begins: the cell's number is kept, and the cell ends when it begins.
- Native code, or the cell itself, ignores SIGINT (as C's `system` does while it waits): Python
  raises KeyboardInterrupt as soon as the main thread runs bytecode again.
- The code catches KeyboardInterrupt, as a bare `except:` does: a repeated interrupt is raised again
  while the first one is being handled.
- The main thread waits for a child process: child processes of the cell receive SIGINT, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from mcnb._system import GRACE_S, remove_folder
from mcnb.worker.settings import Settings, settings_path

RETRY_S = 0.01
# How long SIGINT has to reach the main thread before KeyboardInterrupt is raised without it.
SIGNAL_S = 0.05
# After this many jumps, an exception that another thread requested has been raised.
SOON = 100
# The resolution of the start times of processes; see proc(5).
CLOCK_S = 0.02
# The clock that the system notes the start of processes by; Linux counts from its boot.
_CLOCK = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_REALTIME
_armed = False
_leaving = False
# The current or last cell, and the newest cell that was interrupted before it began.
_cell = 0
_cancelled = 0
_begun_at = 0.0  # by `_CLOCK`
_raised = 0  # how often KeyboardInterrupt was raised in this cell
_inside = False  # whether it was raised in the learner's code
_asynchronous = False  # whether it was, or is to be, raised without a signal
# Guards _cell, _cancelled, _armed and _asynchronous against the thread that receives interrupts.
_lock = threading.RLock()
_is_learners: Callable[[FrameType], bool]
# Held by the thread that ends this process: a second SIGHUP would interrupt the exit.
_ending = threading.Lock()
# The settings of this process and the folder of its profile, if it was started with settings.
_profile: tuple[Settings, Path] | None = None


def leave() -> None:
    """End this process, from a thread other than the main one."""
    if not _ending.acquire(blocking=False):
        return
    try:
        if _profile is not None:
            _remove_folder(*_profile)
        os.kill(os.getpid(), signal.SIGHUP)  # ends this process at once until `install` is called
        time.sleep(GRACE_S)
    finally:
        os._exit(1)


def forget(output: str) -> None:
    """Remove this process's output files, and their parent folder if no others are left in it.

    A process calls it if it outlives its notebook kernel, which may have been killed.

    Args:
        output: The files' common path.
    """
    own = Path(output).parent
    shutil.rmtree(own, ignore_errors=True)
    with contextlib.suppress(OSError):  # other processes have files there
        own.parent.rmdir()


def leave_with_kernel(settings: Settings, folder: Path) -> None:
    """End this process when its notebook kernel ends, even before the process has joined others.

    Args:
        settings: The process's settings, which name its connection to the kernel.
        folder: The folder of its profile.
    """
    global _profile
    _profile = settings, folder
    if settings.sent or settings.kernel:
        threading.Thread(
            target=_watch, args=(settings,), name="mcnb connection", daemon=True
        ).start()


def _watch(settings: Settings) -> None:
    with contextlib.suppress(OSError):  # the kernel has ended
        if settings.sent:
            while os.read(0, 1 << 10):
                pass
        else:
            host, _, port = settings.kernel.rpartition(":")
            with socket.create_connection((host, int(port))) as connection:
                while connection.recv(1 << 10):
                    pass
    leave()


def _remove_folder(settings: Settings, folder: Path) -> None:
    # A shared folder is removed with its cluster, but this process may have made it again.
    if settings.sent or not settings_path(folder).exists():
        remove_folder(folder)


def install(is_learners: Callable[[FrameType], bool]) -> None:
    """Install the signal handlers of this process; call it in the main thread.

    Args:
        is_learners: Returns whether a frame runs the learner's code.
    """
    global _is_learners
    _is_learners = is_learners
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGHUP, _hang_up)
    sys.unraisablehook = _unraisable


def _interrupt(_: int, frame: FrameType | None) -> None:
    global _raised, _inside
    if not _armed:
        return
    _raised += 1
    _inside = _inside or _runs_learners(frame)
    if _raised > 1 and _cell:
        _raise_again(frame)
    raise KeyboardInterrupt


def _runs_learners(frame: FrameType | None) -> bool:
    """Return whether the learner's code is on a stack."""
    while frame is not None:
        if _is_learners(frame):
            return True
        frame = frame.f_back
    return False


def _raise_again(frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt again, at the next line of the learner's code that begins.

    After a bare `except:`, that line is the handler's own, so the exception leaves the `try`
    statement that caught the first one.
    """

    def trace(inner: FrameType, event: str, _: Any) -> Any:
        if event == "line" and _armed and _is_learners(inner):
            # CPython ends the tracing of a thread when its trace function raises.
            raise KeyboardInterrupt
        return trace

    while frame is not None:
        if _is_learners(frame):
            frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(trace)


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # It was raised in a finalizer or in JAX's garbage collector callback, and is lost.
        threading.Timer(RETRY_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)


def _hang_up(*_: object) -> None:
    global _leaving
    _leaving = True
    raise SystemExit(0)


def begin(cell: int) -> None:
    """Begin a cell, whose interrupts are delivered to this thread from now on.

    Args:
        cell: The number that the referee's server gave the cell.
    """
    global _cell, _begun_at, _raised, _inside
    with _lock:
        _cell, _begun_at, _raised, _inside = cell, time.clock_gettime(_CLOCK), 0, False
    if signal.getsignal(signal.SIGINT) is not _interrupt:
        # An earlier cell has installed its own handler, which would disable interrupts.
        signal.signal(signal.SIGINT, _interrupt)


def was_raised() -> bool:
    """Return whether an interrupt raised KeyboardInterrupt in the code of the last cell.

    It may also have been raised just after that code had ended.
    """
    return _inside


@contextmanager
def armed() -> Iterator[None]:
    """Let signals end the code inside; before and after it, SIGINT is ignored.

    Raises:
        KeyboardInterrupt: The cell was interrupted before it began.
    """
    global _armed, _cancelled
    tracing = sys.gettrace()
    try:
        with _lock:
            _armed = True
            cancelled = 0 < _cell == _cancelled
            _cancelled = 0 if cancelled else _cancelled
        if cancelled:
            raise KeyboardInterrupt
        yield
    finally:
        # An interrupt that is already on its way may arrive in the middle of these steps.
        for step in (_disarm, _absorb, lambda: sys.settrace(tracing)):
            try:
                step()
            except KeyboardInterrupt:
                step()
        if _leaving:
            # The shell took the exit for the cell's own; this exit ends the event loop.
            asyncio.get_running_loop().call_soon(sys.exit, 0)


def _disarm() -> None:
    global _armed
    with _lock:
        _armed = False


def _absorb() -> None:
    """Raise a requested exception here, if it was not raised in the cell."""
    # It can't be cancelled: CPython 3.11 would go on looking for it before each jump.
    global _asynchronous
    if _asynchronous:
        _asynchronous = False
        for _ in range(SOON):
            pass


def raise_in(thread: int) -> None:
    """Raise KeyboardInterrupt in a thread, as soon as the thread runs bytecode.

    Args:
        thread: The thread's identifier.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt)
    )


def deliver(cell: int, attempt: int) -> None:
    """Interrupt a cell without waiting; call it from a thread other than the main one.

    Args:
        cell: The cell's number. If the process has not begun the cell, it ends when it begins.
        attempt: The number of interrupts for the cell so far, this one included.
    """
    global _cancelled
    with _lock:
        if cell > _cell:
            _cancelled = max(_cancelled, cell)
            return
        if cell < _cell or not _armed:
            return
    threading.Thread(
        target=_pursue, args=(cell, attempt), name="mcnb interrupt", daemon=True
    ).start()


def _pursue(cell: int, attempt: int) -> None:
    global _raised, _inside, _asynchronous
    main = threading.main_thread().ident
    assert main is not None
    # A later attempt also comes as a signal from outside, which reaches code that keeps the GIL.
    if attempt == 1 or not _reached(cell, attempt, RETRY_S):
        signal.pthread_kill(main, signal.SIGINT)
    for child in children():  # Ctrl-C in a terminal also sends SIGINT to them
        with contextlib.suppress(psutil.Error):
            child.send_signal(signal.SIGINT)
    if not _reached(cell, attempt, SIGNAL_S):
        with _lock:
            if _armed and _cell == cell and _raised < attempt:
                _raised, _inside, _asynchronous = attempt, True, True
                raise_in(main)


def _reached(cell: int, attempt: int, timeout_s: float) -> bool:
    """Return whether the interrupt arrives, or the cell ends, within some seconds."""
    deadline = time.monotonic() + timeout_s
    while _armed and _cell == cell and _raised < attempt:
        if time.monotonic() > deadline:
            return False
        time.sleep(RETRY_S / 5)
    return True


def children() -> list[psutil.Process]:
    """Return the running processes that the cell started, directly or indirectly."""
    found = []
    # As psutil does: to what Linux counts, it adds the boot's time, which is in whole seconds.
    begun_at = _begun_at + (psutil.boot_time() if sys.platform == "linux" else 0.0)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            running = child.status() != psutil.STATUS_ZOMBIE
            if running and child.create_time() >= begun_at - CLOCK_S:
                found.append(child)
    return found
