"""Determine and report exit reasons from the output of launchers and processes."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mcnb._text import LIBRARY_PATH
from mcnb.lockstep.model import ExitSource, ProcessExit

CONTROLLER = "controller"
FORKSERVER = "fork server"
LAST_LINES = 8
MOST_LINES = 10
LOOK_S = 0.05
# The prefix of XLA's log messages: a severity letter, the time and the thread.
_LOG_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ ")
# JAX logs this if a launcher ends processes because one has died, which mcnb reports elsewhere.
_SIGTERM_NOTE = re.compile(r"^.* preemption_notifier\.cc:\d+\] SIGTERM .*\n", re.MULTILINE)


def process_name(index: int) -> str:
    """Return the fork server's name of a JAX process."""
    return f"process {index}"


def process_index(name: str) -> int | None:
    """Return the process index in a process's name; None for the controller and fork server."""
    match = re.fullmatch(r"process (\d+)", name)
    return int(match[1]) if match else None


def output_path(folder: Path, name: str) -> str:
    """Return the base path of a process's output files."""
    return str(folder / name.replace(" ", "-"))


def last_lines(output: str) -> str:
    """Return the last lines that a process wrote to its file descriptor 2; empty if none.

    Args:
        output: The base path of the process's output files; empty if there are none.
    """
    # Rarely needed, and a notebook kernel waits for this module before it starts a fork server.
    from mcnb.worker.capture import read_crash_log

    return lines_of(crash_report(read_crash_log(output).err)) if output else ""


def output_lines(text: str) -> str:
    r"""Return the first and last lines of a launcher's output, to be appended to a sentence.

    Example:
        >>> print(output_lines("no such host\n"))
         Its output:
        no such host
    """
    lines = text.strip().splitlines()
    if len(lines) > 2 * MOST_LINES:
        lines = [*lines[:MOST_LINES], "…", *lines[-MOST_LINES:]]
    return " Its output:\n" + "\n".join(lines) if lines else ""


def lines_of(text: str) -> str:
    """Return the last lines of a text, to be appended to a sentence; empty if there are none.

    Example:
        >>> print(lines_of("E0923 04:05:06.789012  77 nobody.cc:1] No such host"))
         Its last lines:
        nobody.cc:1] No such host
    """
    lines = [_LOG_PREFIX.sub("", line) for line in text.strip().splitlines()[-LAST_LINES:]]
    return " Its last lines:\n" + "\n".join(lines) if lines else ""


class ExitReporter:
    """Thread that reports lost processes, in the order of their loss, with exit reasons.

    The first process with a known reason is the cause, and is reported first: mpirun, for example,
    then ends the others, and the losses may be detected in another order.

    Args:
        exit_of: Returns a process's exit reason; None if the reason is not known yet.
        report: Called from another thread with a process and its exit reason.
        delay_s: How many seconds to wait for the exit reason of a lost process.
    """

    def __init__(
        self,
        exit_of: Callable[[int], ProcessExit | None],
        report: Callable[[int, ProcessExit], None],
        delay_s: float,
    ) -> None:
        self._exit_of = exit_of
        self._report = report
        self._delay_s = delay_s
        self._lost: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcnb exits", daemon=True)
        self._thread.start()

    def add(self, k: int) -> None:
        """Add a lost process to the queue."""
        self._lost.put(k)

    def close(self) -> None:
        """Stop reporting, and join the thread."""
        self._closed.set()
        self._lost.put(None)
        self._thread.join()

    def _run(self) -> None:
        k = self._lost.get()
        if k is None:
            return
        lost = [k]
        deadline = time.monotonic() + self._delay_s
        while (known := self._first_known(lost)) is None and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                if (k := self._lost.get(timeout=LOOK_S)) is None:
                    return
                lost.append(k)
        cause, how = known or (lost[0], ProcessExit())
        lost.remove(cause)
        self._report(cause, how)
        while not self._closed.is_set():
            k = lost.pop(0) if lost else self._lost.get()
            if k is None:
                return
            self._report(k, self._exit_of(k) or ProcessExit(ExitSource.FOLLOWED))

    def _first_known(self, lost: list[int]) -> tuple[int, ProcessExit] | None:
        found = ((k, self._exit_of(k)) for k in lost)
        return next(((k, how) for k, how in found if how is not None), None)


def crash_report(err: str) -> str:
    r"""Return the stderr of a crashed process, with the interpreter's crash report shortened.

    `faulthandler` lists the whole stack and the thread's address. The learner needs the error, and
    the frames from the crash to the cell's line.

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
    """Return the line of a cell at which the interpreter reports its crash."""
    match = re.search(rf'File "<In\[{re.escape(label)}\]>", line (\d+)', err)
    return int(match[1]) if match else None
