"""Show a running cell: its newest output, folded, and where its processes are."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from mcnb._cells import begins_with_mcjax
from mcnb._text import grouped, label, name_processes
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.workers import Pending
from mcnb.lockstep.server import Waits
from mcnb.messages import Recent, Reply
from mcnb.notebook.panel import InPanel, is_available
from mcnb.notebook.places import InNotebook, InTerminal, Place, View, can_move
from mcnb.notebook.strips import Strips, doing_in, late_in, native_in
from mcnb.output.recent import newest, recent_of

# When a cell is first shown: earlier, if it has output.
FIRST_S, FIRST_OUTPUT_S = 1.0, 0.3
# How often it is shown again: more often while there is new output.
PERIOD_S, OUTPUT_PERIOD_S = 0.5, 0.25
# From when on a cell's view says at what time it was drawn: one that stays on a page of which the
# notebook kernel has gone would otherwise look alive.
CLOCK_S = 10.0
AGAIN = "Press stop again to restart the processes now; their variables are lost"


class LiveView:
    """A view of a running cell's output and progress, removed at the cell's end.

    Short cells show nothing. Notebooks that no person watches show nothing either: their outputs
    are kept for later, and must be the same on every run.

    A place that fails, as a panel does that anywidget can't make, never ends the cell: what follows
    is shown as text, and if that fails, too, nowhere.

    Args:
        count: The number of processes in the cluster.
        place: Where it is shown; None if nowhere.
    """

    def __init__(self, count: int, place: Place | None) -> None:
        self._count = count
        self._place = place
        self._next = self._next_output = 0.0
        self.begin_again()
        # Shown above the rest.
        self.title = ""
        self._stage = ""
        self._strips = Strips()
        self._said: dict[int, Recent] = {}
        # The newest output of processes that have finished the call that began at this time.
        self._finished: tuple[float, dict[int, Recent]] = 0.0, {}

    def __call__(self, pending: Pending) -> None:
        """Show a cell at intervals, its new output soon, and each step that ends it at once."""
        if self._place is None or not (pending.waiting or pending.stage):
            return
        now = time.monotonic()
        doing = doing_in(pending)
        self._strips.add(now, doing, late_in(pending))
        said = self._newest(pending)
        news = pending.stage != self._stage
        if now >= self._next_output and any(
            one.count and one != self._said.get(k) for k, one in said.items()
        ):
            news = True
        if news or now >= self._next:
            self._stage, self._said = pending.stage, said
            self._next, self._next_output = now + PERIOD_S, now + OUTPUT_PERIOD_S
            clock = time.strftime("%H:%M:%S") if now - pending.started >= CLOCK_S else ""
            lines = newest(said, self._count)
            view = View(
                tuple([self.title, *lines] if self.title else lines),
                tuple(progress_lines(pending, now, self._count, clock)),
                self._strips.rows,
                self._strips.period_s,
                dict(self._strips.late_s),
                native_in(doing),
            )
            self._in_place(lambda place: place.draw(view))

    def _newest(self, pending: Pending) -> dict[int, Recent]:
        """Return the newest output of each process, also of those that have finished."""
        if self._finished[0] != pending.started:
            self._finished = pending.started, {}
        finished = self._finished[1]
        for k, reply in pending.answers.items():
            if isinstance(reply, Reply) and k not in finished:
                finished[k] = recent_of(reply.events)
        running = {k: pending.progress(k).recent for k in pending.waiting}
        return dict(sorted((running | finished).items()))

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""
        self._in_place(lambda place: place.show(text))

    def end_with(self, text: str) -> None:
        """Leave a text in place of the last one, and whatever follows, such as a prompt."""
        if not self._in_place(lambda place: place.leave(text)):
            print(text, end="", flush=True)

    def begin_again(self) -> None:
        """Show nothing for as long as at the beginning of a cell."""
        now = time.monotonic()
        self._next, self._next_output = now + FIRST_S, now + FIRST_OUTPUT_S

    def remove(self) -> None:
        """Remove the shown text."""
        self._in_place(lambda place: place.remove())

    def _in_place(self, show: Callable[[Place], None]) -> bool:
        """Show something in the place, or in a simpler one if that fails.

        Returns:
            Whether it was shown.
        """
        while self._place is not None:
            try:
                show(self._place)
            except Exception:
                self._place = self._place.simpler()
            else:
                return True
        return False


def progress_lines(pending: Pending, now: float, count: int, clock: str = "") -> list[str]:
    """Return since when processes run, and where each one is or what it waits for.

    Args:
        pending: The cell that runs.
        now: The time on the clock of `pending.started`, in seconds.
        count: The number of processes in the cluster.
        clock: The time of day; empty if it is not to be said.
    """
    running = sorted(pending.waiting)
    ending = [pending.stage, AGAIN] if pending.replaceable else [pending.stage]
    if not running:
        return ending
    verb = "has" if len(running) == 1 else "have"
    name = name_processes(running, count)
    heading = f"{name} {verb} been running for {now - pending.started:.0f} s"
    heading += f" (at {clock})" if clock else ""
    lines = [heading[0].upper() + heading[1:]]
    places = {k: _place(pending, k, now) for k in running}
    groups = [(label(ks, count), place) for place, ks in grouped(places) if place]
    width = max((len(name) for name, _ in groups), default=0)
    lines += [f"{name:<{width}} {place}" for name, place in groups]
    return lines + ending if pending.stage else lines


def _place(pending: Pending, k: int, now: float) -> str:
    """Return where a process is, or what it waits for."""
    if k in pending.waits:
        return waiting_text(pending.waits[k], pending.waits, now)
    progress = pending.progress(k)
    where = "" if progress.line is None else f"line {progress.line}"
    if progress.waits_s:
        # Of native code that a line calls, it is not known whether it is JAX's.
        inside = "inside JAX" if progress.inside_jax else "in native code"
        return f"waiting for {progress.waits_s:.0f} s {inside}{where and ', '}{where}"
    return where


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
    request = _request(shell)
    if request is None:
        return bool(sys.stdout.isatty())
    return bool(request.get("content", {}).get("allow_stdin", False))


def place_of(shell: Any, cluster: Cluster | None = None, *, below: bool = False) -> Place | None:
    """Return where a cell of this shell is shown while it runs; None if nobody watches.

    Args:
        shell: The notebook's shell.
        cluster: The cluster that runs the cell; None while there is none yet.
        below: Whether the cell may have other output already, which must stay.
    """
    if not somebody_looks(shell):
        return None
    if _request(shell) is None:
        return InTerminal() if can_move() else None
    if cluster is None or not is_available():
        return InNotebook(below=below)
    return InPanel(cluster.options.processes, cluster.interrupt, cluster.stacks, below=below)


def request_of(shell: Any) -> tuple[str, str]:
    """Return the id of the request to run the cell that runs, and the cell's code.

    Both are empty without a kernel.
    """
    request = _request(shell) or {}
    number = str(request.get("header", {}).get("msg_id", ""))
    return number, str(request.get("content", {}).get("code", ""))


class OutputAbove:
    """Tells whether a notebook's cell may have output above what a command of mcnb's shows.

    Attributes:
        exists: Whether it may, at the newest command.
    """

    def __init__(self) -> None:
        self.exists = True
        self._request = ""  # the one to run the cell of the newest command

    def begin(self, shell: Any, *, implied: bool, loaded: bool) -> None:
        """Note that a command begins.

        Args:
            shell: The notebook's shell.
            implied: Whether the whole cell is the command's.
            loaded: Whether mcnb's extension was loaded before the cell.
        """
        number, code = request_of(shell)
        silent = implied or begins_with_mcjax(code, loaded=loaded)
        self.exists = number == self._request or not silent
        self._request = number


def cell_id(shell: Any) -> str:
    """Return the id of the cell that runs; empty where the front end does not tell it.

    JupyterLab and VS Code do: "cellId" in the metadata of the request.
    """
    request = _request(shell) or {}
    return str(request.get("metadata", {}).get("cellId", ""))


def is_hidden(shell: Any) -> bool:
    """Return whether nobody wrote the cell that runs: a front end lists variables by such cells."""
    content = (_request(shell) or {}).get("content", {})
    return bool(content.get("silent", False)) or not content.get("store_history", True)


def _request(shell: Any) -> Mapping[str, Any] | None:
    """Return the message that asked the kernel to run the cell; None without a kernel."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return None
    try:
        request: Mapping[str, Any] = kernel.get_parent("shell")
    except TypeError:
        request = kernel.get_parent()
    return request
