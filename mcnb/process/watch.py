"""The watching thread: sees what a process does in a cell, and tells the notebook meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from mcnb.lockstep.trace import Sample
from mcnb.messages import Progress
from mcnb.process.cellcode import frame_line
from mcnb.process.standing import MainThread, all_threads_sleep, runs_jax

PERIOD_S = 0.25
# A process that waits in a collective uses next to no processor time; one that compiles does.
IDLE_SHARE = 0.05
# When the main thread is looked at first: most cells are over by then, and cost nothing more.
FIRST_LOOK_S = 0.005
# How often it is looked at: at most, and as a part of the time that has gone by.
SOONEST_S = 0.003
SAMPLE_SHARE = 0.01


class Watch:
    """Looks at a running cell from a thread of its own, and reports four times a second.

    The main thread may be blocked in native code meanwhile: XLA releases the interpreter lock.
    Make it in the main thread.

    Args:
        publish: Sends a report to the notebook.
        newest_line: Returns the cell's newest line of output.
        note: Takes note of what the main thread was seen doing.
    """

    def __init__(
        self,
        publish: Callable[[Progress], None],
        newest_line: Callable[[], str],
        note: Callable[[Sample], None],
    ) -> None:
        self._publish = publish
        self._newest_line = newest_line
        self._note = note
        self._main = MainThread()
        self._cell: tuple[str] | None = None
        self._begun = threading.Lock()
        self._begun.acquire()
        # Held while a report is sent, so that none follows the end of its cell.
        self._reporting = threading.Lock()
        threading.Thread(target=self._run, name="mcnb watch", daemon=True).start()

    def begin(self, label: str) -> None:
        """Begin to watch the cell of that label."""
        self._cell = (label,)
        with contextlib.suppress(RuntimeError):  # it is awake
            self._begun.release()

    def end(self) -> None:
        """End it; no report follows."""
        with self._reporting:
            self._cell = None

    def _run(self) -> None:
        while True:
            self._begun.acquire()
            cell = self._cell
            if cell is not None:
                self._follow(cell)

    def _follow(self, cell: tuple[str]) -> None:
        """Look at a cell again and again until it ends."""
        waits_since = None
        began = looked = reported = time.monotonic()
        busy, cpu = self._main.busy_s(), time.process_time()
        while True:
            first = looked == began
            pause = FIRST_LOOK_S if first else max(SOONEST_S, SAMPLE_SHARE * (looked - began))
            time.sleep(max(min(pause, reported + PERIOD_S - looked), 0.0))
            with self._reporting:
                if self._cell is not cell:
                    return
                last, last_busy = looked, busy
                looked, busy = time.monotonic(), self._main.busy_s()
                reports = looked >= reported + PERIOD_S
                with self._main.frame() as frame:
                    line = frame_line(frame, cell[0])
                    in_jax, inside_jax = self._main.stands_in_jax(frame), runs_jax(frame)
                del frame  # it would keep the learner's variables alive
                blocked = busy - last_busy < (looked - last) / 2
                self._note(Sample(looked, blocked and in_jax, line))
                if not reports:
                    continue
                last_cpu, cpu = cpu, time.process_time()
                idle = cpu - last_cpu < IDLE_SHARE * (looked - reported)
                if not (idle and in_jax and all_threads_sleep()):
                    waits_since = None
                elif waits_since is None:
                    waits_since = reported
                reported = looked
                waits_s = 0.0 if waits_since is None else looked - waits_since
                self._publish(Progress(self._newest_line(), line, waits_s, inside_jax))
