"""The watching thread: tells the notebook where a process stands in a cell that takes long."""

from __future__ import annotations

import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from mcnb.messages import Progress
from mcnb.process.cellcode import frame_line

PERIOD_S = 0.25
# A process that waits in a collective uses next to no processor time; one that compiles does.
IDLE_SHARE = 0.05


# Python's own modules that wait for other threads, as XLA does.
_WAITING_THEMSELVES = {"threading", "queue", "concurrent", "multiprocessing", "asyncio"}
# The number of futex(2), on x86-64 and on ARM.
_FUTEX = {"202"} if platform.machine() in ("x86_64", "AMD64") else {"98"}


class Watch:
    """Reports a running cell's progress from a thread of its own, four times a second.

    The main thread may be blocked in native code meanwhile: XLA releases the interpreter lock.
    Make it in the main thread.

    Args:
        publish: Sends a report to the notebook.
        newest_line: Returns the cell's newest line of output.
    """

    def __init__(self, publish: Callable[[Progress], None], newest_line: Callable[[], str]) -> None:
        self._publish = publish
        self._newest_line = newest_line
        self._main_thread = threading.get_ident()
        self._main_task = Path(f"/proc/self/task/{threading.get_native_id()}/syscall")
        # The thread polls it. To wake it for every cell would cost more than many cells take.
        self._cell: tuple[str] | None = None
        # Held while a report is sent, so that none follows the end of its cell.
        self._reporting = threading.Lock()
        threading.Thread(target=self._run, name="mcnb watch", daemon=True).start()

    def begin(self, label: str) -> None:
        """Begin to watch the cell of that label."""
        self._cell = (label,)

    def end(self) -> None:
        """End it; no report follows."""
        with self._reporting:
            self._cell = None

    def _run(self) -> None:
        last_cell = None
        waits_since = None
        cpu, clock = time.process_time(), time.monotonic()
        while True:
            time.sleep(PERIOD_S)
            last_cpu, last_clock = cpu, clock
            cpu, clock = time.process_time(), time.monotonic()
            idle = cpu - last_cpu < IDLE_SHARE * (clock - last_clock)
            with self._reporting:
                cell = self._cell
                if cell is not None and cell is last_cell:
                    frame = sys._current_frames().get(self._main_thread)
                    if not (idle and self._stands_in_jax(frame) and _all_threads_sleep()):
                        waits_since = None
                    elif waits_since is None:
                        waits_since = last_clock
                    waits_s = 0.0 if waits_since is None else clock - waits_since
                    line = frame_line(frame, cell[0])
                    del frame  # it would keep the learner's variables alive
                    self._publish(Progress(self._newest_line(), line, waits_s))
                else:
                    last_cell, waits_since = cell, None

    def _stands_in_jax(self, frame: FrameType | None) -> bool:
        if frame is None:
            return False
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(("jax.", "jax_", "jaxlib")):
            return True
        # Native code that is called from the learner's line has no frame of its own. A thread that
        # sleeps, reads or waits for a process is in another system call than one that waits for
        # a thread of XLA's.
        if module.partition(".")[0] in _WAITING_THEMSELVES:
            return False
        try:
            return self._main_task.read_text().split()[0] in _FUTEX
        except (OSError, IndexError):
            return False


def _all_threads_sleep() -> bool:
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
