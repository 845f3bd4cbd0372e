"""Watch a running cell from a thread, and report its progress to the notebook kernel."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mcnb._system import RunningClock
from mcnb.lockstep._jax import COMPILER
from mcnb.lockstep.threads import current_frames
from mcnb.lockstep.trace import Sample
from mcnb.messages import Doing, Progress, Recent
from mcnb.worker.cellcode import frame_line

_LOG = logging.getLogger(__name__)  # of mcnb, which has a file of the process
# Modules of Python that wait for other threads in the same system call as XLA.
_WAITING_THEMSELVES = {"threading", "queue", "concurrent", "multiprocessing", "asyncio"}
# The number of the system call futex(2), on x86-64 and on ARM.
_FUTEX = {"202"} if platform.machine() in ("x86_64", "AMD64") else {"98"}
# Has a folder for each thread of this process, on Linux.
_TASKS = "/proc/self/task"
PERIOD_S = 0.25
# A process that waits in a collective uses almost no processor time; one that compiles does.
IDLE_SHARE = 0.05
# The time of the first sample: most cells are over by then, and cost nothing more.
FIRST_LOOK_S = 0.005
# The pause between samples: its minimum, and its share of the time since the cell began.
SOONEST_S = 0.003
SAMPLE_SHARE = 0.01


def _read(task: int, file: str) -> str:
    """Return a file of proc(5) about a thread; empty if the thread or the file does not exist."""
    # A process has dozens of threads, and is sampled while others need the processor.
    try:
        descriptor = os.open(f"{_TASKS}/{task}/{file}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 1024).decode(errors="replace")
    except OSError:  # the thread has just ended
        return ""
    finally:
        os.close(descriptor)


def _tasks() -> list[int]:
    """Return the threads of this process, by their ids; none if the system does not tell them."""
    try:
        with os.scandir(_TASKS) as folders:
            return [int(folder.name) for folder in folders]
    except OSError:
        return []


def _task_busy_s(task: int, *, queued: bool = True) -> float | None:
    """Return how long a thread has run or, if `queued`, was ready to run; None if unknown."""
    # Time on a core, and time in the queue for one, in nanoseconds.
    times = _read(task, "schedstat").split()[: 1 + queued]
    return sum(map(int, times)) / 1e9 if times else None


def _state(task: int) -> str:
    """Return the letter for the state of a thread."""
    return _read(task, "stat").rpartition(")")[2].strip()[:1]


def all_threads_sleep() -> bool:
    """Return whether no thread of this process, except the caller's, runs or is ready to run."""
    # A process that gets no core, on a busy machine, does not wait.
    own = threading.get_native_id()
    return not any(_state(task) in ("R", "D") for task in _tasks() if task != own)


def native_busy_s(named: str = "", *, queued: bool = True) -> dict[int, float]:
    """Return how long each native thread, unknown to Python, has run or was ready to run.

    Args:
        named: Only threads whose names in the system begin with this text.
        queued: Whether the time counts in which a thread was ready to run, and had no core.

    Returns:
        The seconds by the thread's id in the system; empty if the system does not report them.
    """
    found = {}
    for task in _native_tasks():
        busy = _task_busy_s(task, queued=queued)
        if busy is not None and (not named or _read(task, "comm").startswith(named)):
            found[task] = busy
    return found


def _others_cpu_s() -> float:
    """Return the processor time of this process without the calling thread.

    On a slow machine, samples take more than the share of an idle process.
    """
    return time.process_time() - time.thread_time()


def native_ready() -> bool:
    """Return whether a native thread, unknown to Python, runs or waits for a core."""
    return any(_state(task) == "R" for task in _native_tasks())


def _native_tasks() -> list[int]:
    # For the main thread, Python has the id from before the fork.
    known = {os.getpid(), *(thread.native_id for thread in threading.enumerate())}
    return [task for task in _tasks() if task not in known]


class Position(NamedTuple):
    """Where the main thread of a process is.

    Attributes:
        line: The line of the cell, or None.
        in_jax: Whether the thread is inside JAX.
        inside_jax: Whether it runs Python code of JAX.
        compiling: Whether JAX has XLA compile, which may have its threads do so.
    """

    line: int | None
    in_jax: bool
    inside_jax: bool
    compiling: bool = False


class Monitor:
    """A thread that samples a running cell, and reports its progress four times a second.

    The main thread may be blocked in native code meanwhile: XLA releases the interpreter lock.
    Create the monitor in the main thread.

    Args:
        publish: Sends a report to the notebook kernel.
        recent: Returns the newest lines of the cell's output.
        note: Records a sample of the main thread.
    """

    def __init__(
        self,
        publish: Callable[[Progress], None],
        recent: Callable[[], Recent],
        note: Callable[[Sample], None],
    ) -> None:
        self._publish = publish
        self._recent = recent
        self._note = note
        self._thread = threading.get_ident()
        self._task = threading.get_native_id()
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        self._cpu_clock = clock_of and clock_of(self._thread)
        self._cell: tuple[str] | None = None
        self._begun = threading.Event()
        # Held while a report is sent, so that no report follows the end of its cell.
        self._reporting = threading.Lock()
        threading.Thread(target=self._run, name="mcnb watch", daemon=True).start()

    @contextmanager
    def watching(self, label: str = "") -> Iterator[None]:
        """Watch the code inside; no report follows it.

        Args:
            label: The label of the cell to which the code belongs; empty for code that is no cell.
        """
        self._cell = (label,)
        self._begun.set()
        try:
            yield
        finally:
            with self._reporting:
                self._cell = None

    def _run(self) -> None:
        while True:
            self._begun.wait()
            self._begun.clear()
            cell = self._cell
            while cell is not None and self._cell is cell:
                try:
                    self._follow(cell)
                except Exception:
                    # Without further reports, an unchecked cell that hangs would never be freed.
                    _LOG.exception("a report on a cell failed")
                    time.sleep(PERIOD_S)

    def _busy_s(self) -> float:
        """Return how many seconds the main thread has run, or was ready to run without a core."""
        busy = _task_busy_s(self._task)
        if busy is not None:
            return busy
        return 0.0 if self._cpu_clock is None else time.clock_gettime(self._cpu_clock)

    def _position(self, label: str) -> Position:
        """Return the position of the main thread, in the cell with that label."""
        module, line = self._frame_at(label)
        runs_jax = module.startswith(("jax.", "jax_", "jaxlib"))
        # Native code that is called from the learner's line has no frame of its own. A thread that
        # sleeps, reads or waits for a process is in another system call than one that waits for an
        # XLA thread.
        waits_in_jax = module.partition(".")[0] not in _WAITING_THEMSELVES and (
            _read(self._task, "syscall").partition(" ")[0] in _FUTEX
        )
        return Position(line, runs_jax or waits_in_jax, runs_jax, module == COMPILER)

    def _frame_at(self, label: str) -> tuple[str, int | None]:
        """Return the module that the main thread runs, and its line of the cell with that label.

        Whoever holds the frame of a function that returns meanwhile keeps its variables alive, and
        their finalizers run late, in another thread. So nothing that may release the interpreter
        lock, such as reading a file, happens here.
        """
        with current_frames() as frames:
            frame = frames.get(self._thread)
            module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
            return module, frame_line(frame, label)

    def _follow(self, cell: tuple[str]) -> None:
        """Sample a cell repeatedly until it ends."""
        waits_since = None
        # A pause of the machine is no waiting for others.
        clock = RunningClock(2 * PERIOD_S)
        reported_at = clock()
        began = looked = reported = time.monotonic()
        busy, cpu = self._busy_s(), _others_cpu_s()
        while True:
            first = looked == began
            pause = FIRST_LOOK_S if first else max(SOONEST_S, SAMPLE_SHARE * (looked - began))
            time.sleep(max(min(pause, reported + PERIOD_S - looked), 0.0))
            with self._reporting:
                if self._cell is not cell:
                    return
                last, last_busy = looked, busy
                looked, busy = time.monotonic(), self._busy_s()
                reports = looked >= reported + PERIOD_S
                line, in_jax, inside_jax, compiling = self._position(cell[0])
                blocked = busy - last_busy < (looked - last) / 2
                self._note(Sample(looked, blocked and in_jax, line))
                if not reports:
                    continue
                last_cpu, cpu = cpu, _others_cpu_s()
                idle = cpu - last_cpu < IDLE_SHARE * (looked - reported)
                if not (idle and in_jax and all_threads_sleep()):
                    waits_since = None
                elif waits_since is None:
                    waits_since = reported_at
                reported, reported_at = looked, clock()
                waits_s = 0.0 if waits_since is None else reported_at - waits_since
                doing = _doing(blocked and in_jax, inside_jax, compiling)
                self._publish(Progress(self._recent(), line, waits_s, inside_jax, doing))


def _doing(waits: bool, inside_jax: bool, compiling: bool) -> Doing:
    """Return what a thread does that waits inside JAX, or runs JAX's Python code."""
    if compiling or (inside_jax and not waits):
        return "compiles"
    return "computes" if waits else "python"
