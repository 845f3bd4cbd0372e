"""How processes ended: read from what launchers, and the processes themselves, wrote."""

from __future__ import annotations

import queue
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mcnb._text import LIBRARY_PATH
from mcnb.lockstep.model import ExitSource, ProcessExit
from mcnb.worker.capture import read_crash_log

CONTROLLER = "controller"
FORKSERVER = "fork server"


def process_name(index: int) -> str:
    """Return the fork server's name for a JAX process."""
    return f"process {index}"


def process_index(name: str) -> int | None:
    """Return the index of the process of that name, None for the controller."""
    match = re.fullmatch(r"process (\d+)", name)
    return int(match[1]) if match else None


def output_path(folder: Path, name: str) -> str:
    """Return the common path of a process's output files."""
    return str(folder / name.replace(" ", "-"))


LAST_LINES = 8
MOST_LINES = 10
# XLA's messages begin with a letter for how grave they are, the time, and the thread.
_LOG_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ ")


def last_lines(output: str) -> str:
    """Return the last lines that a process wrote to its file descriptor 2; empty if none.

    Args:
        output: The common path of its output files; empty if there are none.
    """
    return lines_of(crash_report(read_crash_log(output).err)) if output else ""


def said_lines(text: str) -> str:
    r"""Return what a launcher said, for the end of a sentence: its beginning and its end.

    Example:
        >>> print(said_lines("no such host\n"))
         It said:
        no such host
    """
    lines = text.strip().splitlines()
    if len(lines) > 2 * MOST_LINES:
        lines = [*lines[:MOST_LINES], "…", *lines[-MOST_LINES:]]
    return " It said:\n" + "\n".join(lines) if lines else ""


def lines_of(text: str) -> str:
    """Return the last lines of a text, for the end of a sentence; empty if there are none.

    Example:
        >>> print(lines_of("E0923 04:05:06.789012  77 nobody.cc:1] No such host"))
         Its last lines:
        nobody.cc:1] No such host
    """
    lines = [_LOG_PREFIX.sub("", line) for line in text.strip().splitlines()[-LAST_LINES:]]
    return " Its last lines:\n" + "\n".join(lines) if lines else ""


LOOK_S = 0.05


class ExitReporter:
    """Tells of processes that are gone, in their order, and how they ended.

    The first that is gone is the cause, as a rule; mpirun, for one, ends the others then.

    Args:
        ending: Returns how a process ended; None if that is not known yet.
        tell: Called with a process and how it ended; from another thread.
        told_s: How long to wait, in seconds, until it is known how the first one ended.
    """

    def __init__(
        self,
        ending: Callable[[int], ProcessExit | None],
        tell: Callable[[int, ProcessExit], None],
        told_s: float,
    ) -> None:
        self._ending = ending
        self._tell = tell
        self._told_s = told_s
        self._lost: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcnb exits", daemon=True)
        self._thread.start()

    def add(self, k: int) -> None:
        """Take note that a process is gone."""
        self._lost.put(k)

    def close(self) -> None:
        """Tell of nothing more."""
        self._closed.set()
        self._lost.put(None)
        self._thread.join()

    def _run(self) -> None:
        first = self._lost.get()
        if first is None:
            return
        deadline = time.monotonic() + self._told_s
        while (how := self._ending(first)) is None and time.monotonic() < deadline:
            if self._closed.wait(LOOK_S):
                return
        self._tell(first, how or ProcessExit())
        while (k := self._lost.get()) is not None and not self._closed.is_set():
            self._tell(k, self._ending(k) or ProcessExit(ExitSource.FOLLOWED))


# Slurm ends all of a job's processes at once, and says why:
# slurmstepd: error: *** STEP 7.0 ON node CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***
_CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?P<why>[A-Z ]*)\*\*\*")
_REASONS = {
    "DUE TO TIME LIMIT": "time limit",
    "DUE TO PREEMPTION": "preempted",
    "DUE TO NODE FAILURE": "node failure",
}
# srun: error: node: tasks 0,2-3: Killed
_SRUN = re.compile(r"^srun: error: \S+ tasks? (?P<who>[\d,-]+): (?P<how>.+)$", re.MULTILINE)
# mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed).
_MPIRUN = re.compile(
    r"that process rank (?P<who>\d+) with(?:.|\n){1,300}?exited\s+on\s+signal\s+(?P<signal>\d+)"
)
# Process name: [[1234,1],2]
#   Exit code:    3
_MPIRUN_CODE = re.compile(r"Process name: \[[^]]*\],(?P<who>\d+)\]\s+Exit code:\s+(?P<code>\d+)")
_EXIT_CODE = re.compile(r"Exited with exit code (\d+)")
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


def ending_of(process: int, text: str) -> ProcessExit | None:
    """Return how a process ended; None if the text does not tell.

    Args:
        process: Its rank, which is its index.
        text: What the launcher wrote.

    Example:
        >>> ending_of(2, "srun: error: node: tasks 0,2: Killed").status
        -9
    """
    cancelled = _CANCELLED.search(text)
    if cancelled:
        reason = _REASONS.get(cancelled["why"].strip(), "cancelled")
        return ProcessExit(ExitSource.SLURM, reason=reason)
    for found in _SRUN.finditer(text):
        if _includes(found["who"], process):
            code = _EXIT_CODE.search(found["how"])
            number = _SIGNALS.get(found["how"].removesuffix(" (core dumped)"))
            status = int(code[1]) if code else -number if number else None
            reason = found["how"] if status is None else ""
            return ProcessExit(ExitSource.LAUNCHER, status, reason)
    for found in _MPIRUN.finditer(text):
        if int(found["who"]) == process:
            return ProcessExit(ExitSource.LAUNCHER, -int(found["signal"]))
    for found in _MPIRUN_CODE.finditer(text):
        if int(found["who"]) == process:
            return ProcessExit(ExitSource.LAUNCHER, int(found["code"]))
    return None


def _includes(ranges: str, process: int) -> bool:
    """Return whether a list such as `0,2-3` includes a process."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if int(first) <= process <= int(last or first):
            return True
    return False


# What JAX says where a launcher ends processes because one has died; that is told elsewhere.
_SIGTERM_NOTE = re.compile(r"^.* preemption_notifier\.cc:\d+\] SIGTERM .*\n", re.MULTILINE)


def crash_report(err: str) -> str:
    r"""Return what a process that crashed wrote to stderr, with the interpreter's report cut short.

    `faulthandler` lists the whole stack and the address of its thread. What helps the learner is
    what it was, and the frames from there down to the line of the cell.

    Example:
        >>> print(crash_report(
        ...     "oh\nFatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent "
        ...     'call first):\n  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in f\n'
        ...     '  File "<In[3]>", line 4 in <module>\n  File "/x/shell.py", line 1 in run\n'
        ... ))
        oh
        Fatal Python error: Segmentation fault
          File "ctypes/__init__.py", line 519 in f
          File "<In[3]>", line 4 in <module>
    """
    err = _SIGTERM_NOTE.sub("", err)
    before, fatal, report = err.partition("Fatal Python error: ")
    if not fatal:
        return err
    what, _, stacks = report.partition("\n")
    frames = [
        LIBRARY_PATH.sub("", line) for line in stacks.splitlines() if line.startswith("  File ")
    ]
    cells = [n for n, line in enumerate(frames) if line.startswith('  File "<In[')]
    return "\n".join([f"{before}{fatal}{what}", *frames[: cells[-1] + 1 if cells else 0]]) + "\n"


def crash_line(err: str, label: str) -> int | None:
    """Return the line of the cell of that label at which the interpreter says it crashed."""
    match = re.search(rf'File "<In\[{re.escape(label)}\]>", line (\d+)', err)
    return int(match[1]) if match else None
