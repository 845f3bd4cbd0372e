"""Where a process's main thread stands, as another thread sees it: in Python, or inside JAX."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mcnb.lockstep.frames import current_frames

# Python's own modules that wait for other threads, as XLA does.
_WAITING_THEMSELVES = {"threading", "queue", "concurrent", "multiprocessing", "asyncio"}
# The number of futex(2), on x86-64 and on ARM.
_FUTEX = {"202"} if platform.machine() in ("x86_64", "AMD64") else {"98"}


class MainThread:
    """The main thread, seen from another one. Make it in the main thread."""

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        self._task = Path(f"/proc/self/task/{threading.get_native_id()}")
        self._cpu_clock = _cpu_clock(self._ident)

    @contextmanager
    def frame(self) -> Iterator[FrameType | None]:
        """Look at the frame that it runs. Don't keep it: it holds the learner's variables."""
        with current_frames() as frames:
            yield frames.get(self._ident)

    def stands_in_jax(self, frame: FrameType | None) -> bool:
        """Return whether it is inside JAX, given its frame; without one, as far as it shows."""
        module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
        if module.startswith(("jax.", "jax_", "jaxlib")):
            return True
        # Native code that is called from the learner's line has no frame of its own. A thread that
        # sleeps, reads or waits for a process is in another system call than one that waits for
        # a thread of XLA's.
        if module.partition(".")[0] in _WAITING_THEMSELVES:
            return False
        try:
            return (self._task / "syscall").read_text().split()[0] in _FUTEX
        except (OSError, IndexError):
            return False

    def busy_s(self) -> float:
        """Return for how long it has run, or was ready to run and got no core, in seconds."""
        try:
            # Time on a core, and time in the queue for one, in nanoseconds: see proc(5).
            ran, queued = (self._task / "schedstat").read_text().split()[:2]
            return (int(ran) + int(queued)) / 1e9
        except (OSError, ValueError):
            return 0.0 if self._cpu_clock is None else time.clock_gettime(self._cpu_clock)


def _cpu_clock(thread: int) -> int | None:
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    return None if clock_of is None else int(clock_of(thread))


def all_threads_sleep() -> bool:
    """Return whether no thread of this process runs, or is ready to, but for the one that asks."""
    # A process that gets no processor, on a machine with too much to do, is not one that waits.
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").glob("*"):
        try:
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state in "RD" and task.name != own:
            return False
    return True
