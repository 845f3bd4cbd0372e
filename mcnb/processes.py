"""The n processes of one start, from their joining to their end."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mcnb.errors import ClusterError
from mcnb.launch.gpus import share
from mcnb.launch.kept import KeptStart
from mcnb.launch.losses import Losses
from mcnb.launch.names import KEEPER, process_index, process_name
from mcnb.launch.route import LOOPBACK
from mcnb.launch.start import Start
from mcnb.lockstep.rescue import Healed
from mcnb.lockstep.server import Server
from mcnb.messages import ProcessError
from mcnb.options import LOCAL, Options, name_processes
from mcnb.pending import Pending
from mcnb.process.blackbox import LastWords, read_black_box
from mcnb.process.bootstrap import heal, hold_port, join
from mcnb.reach import Reach
from mcnb.uninterrupted import Task, to_the_end

# How long a heal may take, and how much longer for each gigabyte of arrays, which it copies twice.
HEAL_S, HEAL_S_PER_GB = 8.0, 4.0
# A heal in which all processes do nothing for so long will never end.
HEAL_STANDS_STILL_S = 1.5
HEAL_TICK_S = 0.1


def start_processes(options: Options) -> Processes:
    """Start processes; return when all have joined.

    Args:
        options: What to start.

    Raises:
        ClusterError: They could not be started.
        KeyboardInterrupt: Ctrl-C; nothing of them is left.
    """
    with contextlib.suppress(_KeeperGoneError):
        return _start_once(options)
    return _start_once(options)  # with a keeper of its own; the one that waited had been killed


class _KeeperGoneError(ClusterError):
    """The keeper did not live to see the start."""


def _start_once(options: Options) -> Processes:
    made: list[Processes] = []
    start: Task | None = None
    try:
        to_the_end(lambda: made.append(Processes(options)))
        [processes] = made
        # In a thread of its own, which Ctrl-C can't tear out of ipyparallel's event loop.
        start = Task(processes.start)
        start.wait()
        start.raise_failure()
    except BaseException as error:
        gone = False
        for one in made:
            gone = not one.kept
            to_the_end(one.close)
        if start is not None:
            to_the_end(start.wait)
        if gone and isinstance(error, ClusterError):
            raise _KeeperGoneError(str(error)) from None
        raise
    return processes


class Processes:
    """The processes of a cluster, from their start to their end.

    Args:
        options: What to start.

    Attributes:
        exits: How processes that are gone ended, in words, in the order in which they did.
        referee: Who checks that they stay in lockstep.
        unchecked: Why they are not checked; empty if they are.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.exits: dict[str, str] = {}
        self._start = _start_of(options)
        self._losses = (
            None
            if self._start.watched
            else Losses(self._start.ending, self._lose, self._start.told_s)
        )
        self._reach = Reach(options, self._start, self.exits, self._lost)
        try:
            self.referee = Server(
                options.processes,
                self._start.folder,
                self._start.host,
                cells=True,
                lost=self._lost,
            )
        except OSError:
            self._start.close()
            raise
        self.unchecked = ""
        self._communicator_ports: set[int] = set()

    def start(self) -> None:
        """Start them; return when all have joined.

        Raises:
            ClusterError: They could not be started, or were closed meanwhile.
        """
        self._start.begin(self.exits, self._notice_exit)
        self._reach.connect()
        self._join()

    @property
    def folder(self) -> Path:
        """The folder that they share, for this user alone."""
        return self._start.folder

    @property
    def cold(self) -> str:
        """Why they were started one by one and not forked; empty if they were forked."""
        return self._start.cold

    @property
    def kept(self) -> bool:
        """Whether the process that started them, and ends them, runs."""
        return self._start.alive

    def call(
        self, function: Callable[..., Any], *args: Any, processes: Sequence[int] | None = None
    ) -> Pending:
        """Call a function in processes, with their shell before the arguments; don't wait."""
        return self._reach.call(function, *args, processes=processes)

    def died(self) -> dict[int, str]:
        """Return which processes are gone, and how, the first first.

        Raises:
            ClusterError: It is not a process that is gone, but what connects them.
        """
        died = {}
        for name, how in list(self.exits.items()):
            k = process_index(name)
            if k is not None:
                died[k] = how
            elif not died:
                does = "looks after" if name == KEEPER else "connects"
                raise ClusterError(f"The {name}, which {does} the processes, {how}")
        return died

    def interrupt(self, k: int, attempt: int = 1) -> None:
        """Have a process interrupt the cell that was begun last, also if it has not begun it yet.

        Args:
            k: The process's index.
            attempt: How often the cell was to be interrupted by now, this time included.
        """
        self.referee.interrupt(k, attempt)
        # A thread of the process receives that; where it can't, for the main thread keeps the GIL,
        # a signal may still do.
        if self._start.watched and (attempt > 1 or k not in self.referee.present):
            self._start.signal(k, signal.SIGINT)

    def abort(self) -> bool:
        """End what hangs in the processes; return whether that can be done."""
        if not self._communicator_ports or self.unchecked:
            return False
        self.referee.abort(sorted(self._communicator_ports))
        return True

    def heal(
        self, size: int = 0, wait: Callable[[Pending, float], object] | None = None
    ) -> dict[int, Healed]:
        """Have all processes leave each other, join anew, and restore the learner's arrays.

        None of them may be inside a computation.

        Args:
            size: How many bytes of arrays a process has to copy, at most.
            wait: Waits for an answer, for some seconds at most; it may raise, to give up.

        Returns:
            What was restored, by process.

        Raises:
            ClusterError: A process could not, took too long, or died.
        """
        budget = HEAL_S + HEAL_S_PER_GB * size / 1e9
        pending = self.call(heal, self._coordinator(), self.options.processes)
        while pending.waiting:
            if wait is None:
                pending.wait(HEAL_TICK_S)
            else:
                wait(pending, HEAL_TICK_S)
            failed = [a for a in pending.answers.values() if isinstance(a, ProcessError)]
            if why := failed[0].summary() if failed else self._heals_in_vain(pending, budget):
                raise ClusterError(f"the processes could not be healed: {why}")
        self._communicator_ports = {port for _, port in pending.answers.values()} - {0}
        return {k: healed for k, (healed, _) in sorted(pending.answers.items())}

    def _heals_in_vain(self, pending: Pending, budget_s: float) -> str:
        """Return why a heal will not come to its end; empty if it may."""
        if self.exits:
            return "a process ended"
        if not pending.waiting:
            return ""
        left = sorted(pending.waiting)
        name = name_processes(left, self.options.processes)
        if all(pending.progress(k).waits_s >= HEAL_STANDS_STILL_S for k in left):
            return f"{name} waited in vain"
        if time.monotonic() > pending.started + budget_s:
            return f"{name} did not finish within {budget_s:.0f} s"
        return ""

    def wake(self) -> None:
        """Have a `Pending.wait` that is under way return."""
        self._reach.wake()

    def last_words(self, k: int) -> LastWords:
        """Return what a process said that it did not report any more."""
        return read_black_box(self._reach.output(process_name(k)))

    def close(self, grace_s: float | None = None) -> None:
        """End everything and remove the folder; return when all is gone.

        Args:
            grace_s: How long processes have to leave before they are killed, in seconds, where that
                can be chosen.
        """
        if self._losses is not None:
            self._losses.close()  # what ends from now on is ended
        self._reach.close()
        if not self._start.watched:
            self.referee.close()  # the processes leave when it is gone
        self._start.close(grace_s)
        self.referee.close()

    @property
    def _lost(self) -> Callable[[int], None] | None:
        """What is told of a process that is gone, where nobody watches them."""
        return None if self._losses is None else self._losses.add

    def _lose(self, k: int, how: str) -> None:
        self._notice_exit(process_name(k), how)

    def _notice_exit(self, name: str, how: str) -> None:
        self.exits.setdefault(name, how)
        self._reach.notice()

    def _coordinator(self) -> str:
        """Have process 0 hold a port for JAX's coordinator; return where it will listen."""
        host = self._reach.where[0].address if self._reach.where else LOOPBACK
        port = self._reach.ask(hold_port, host, processes=[0])[0]
        return f"{host}:{port}"

    def _join(self) -> None:
        alone = "" if self._start.watched else "leaves" if self.options.ours else "forgets"
        gpus: list[tuple[str, ...]] = []
        if self.options.platform == "cuda":
            seen = [(one.host, one.gpus) for one in self._reach.where]
            gpus = share(seen, self.options.devices_per_process)
        joined = self._reach.ask(
            join,
            self._coordinator(),
            self.options.processes,
            self.referee.address,
            self._reach.indices,
            alone,
            gpus,
        )
        self.unchecked = next((one.unchecked for one in joined.values() if one.unchecked), "")
        self._communicator_ports = {one.communicator_port for one in joined.values()} - {0}


def _start_of(options: Options) -> Start:
    if options.engines == LOCAL:
        return KeptStart(options)
    if not options.ours:
        from mcnb.launch.connected import ConnectedStart

        return ConnectedStart(options)
    from mcnb.launch.launched import LaunchedStart

    return LaunchedStart(options)
