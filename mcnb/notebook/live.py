"""Show the progress of a running cell: processes, times, and last lines of output."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from IPython.display import clear_output, display

from mcnb._text import label, name_processes
from mcnb.cluster.workers import Pending
from mcnb.lockstep.server import Waits
from mcnb.output.text import gutter

FIRST_S = 1.0
PERIOD_S = 0.5
WIDEST_LINE = 100
AGAIN = "Press stop again to restart the processes now; their variables are lost"


class LiveView:
    """A view of a running cell's progress in a notebook, removed at the cell's end.

    Cells that take less than a second show nothing. Notebooks that no person watches show nothing
    either: their outputs are kept for later, and must be the same on every run.
    """

    def __init__(self, count: int, looked_at: bool) -> None:
        self._count = count
        self._looked_at = looked_at
        self._next = time.monotonic() + FIRST_S
        self._shown = False
        self._stage = ""

    def __call__(self, pending: Pending) -> None:
        """Show the progress of a cell at intervals, and each step that ends it at once."""
        now = time.monotonic()
        news = pending.stage != self._stage
        self._stage = pending.stage
        due = news or now >= self._next
        if self._looked_at and due and (pending.waiting or pending.stage):
            self._next = now + PERIOD_S
            self.show(progress_text(pending, now, self._count))

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""
        if self._looked_at:
            clear_output(wait=True)
            display({"text/plain": text}, raw=True)
            self._shown = True

    def remove(self) -> None:
        """Remove the shown text."""
        if self._shown:
            clear_output()


def progress_text(pending: Pending, now: float, count: int) -> str:
    """Return the position of each running process, what it waits for, and since when."""
    running = sorted(pending.waiting)
    ending = [pending.stage, AGAIN] if pending.replaceable else [pending.stage]
    if not running:
        return "\n".join(ending)
    verb = "has" if len(running) == 1 else "have"
    name = name_processes(running, count)
    heading = f"{name} {verb} been running for {now - pending.started:.0f} s"
    lines = [heading[0].upper() + heading[1:]]
    width = max(len(label([k], count)) for k in running)
    for k in running:
        progress = pending.progress(k)
        where = "" if progress.line is None else f"line {progress.line}"
        if k in pending.waits:
            where = waiting_text(pending.waits[k], pending.waits, now)
        elif progress.waits_s:
            where = f"{where} waits inside JAX, for {progress.waits_s:.0f} s".lstrip()
        text = " · ".join(filter(None, (where, progress.newest_line[:WIDEST_LINE])))
        lines.append(gutter(text, label([k], count), width).removesuffix("\n"))
    if pending.stage:
        lines += ending
    return "\n".join(lines)


def waiting_text(waiting: Waits, waits: Mapping[int, Waits], now: float) -> str:
    """Return the launch at which a process waits, for which processes, and since when."""
    state = waiting.state
    assert state.launch is not None
    place = state.place or ("" if state.line is None else f"line {state.line}")
    absent = [
        p
        for p in state.launch.participants
        if p not in waits or getattr(waits[p].state.launch, "program", "") != state.launch.program
    ]
    whom = f", until {name_processes(absent)} reach{'es' * (len(absent) == 1)} it" if absent else ""
    where = f", {place}" if place else ""
    return f"waiting for {now - waiting.since:.0f} s in {state.launch.name}{where}{whom}"


def somebody_looks(shell: Any) -> bool:
    """Return whether a person watches the output of this shell while it runs.

    A program that executes notebooks, such as nbclient or nbval, declares with each cell that it
    can't answer `input()`; a notebook that a person has open declares that it can.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return bool(sys.stdout.isatty())
    try:
        parent = kernel.get_parent("shell")
    except TypeError:
        parent = kernel.get_parent()
    return bool(parent.get("content", {}).get("allow_stdin", False))
