"""The n processes of one start: how they come up, are called, and go."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from mcnb.errors import ClusterError
from mcnb.launch.gpus import share
from mcnb.launch.kept import KeptStart
from mcnb.launch.losses import Losses
from mcnb.launch.names import KEEPER, process_index, process_name
from mcnb.launch.route import LOOPBACK
from mcnb.launch.start import Start
from mcnb.launch.words import last_lines
from mcnb.lockstep.rescue import Healed
from mcnb.lockstep.server import Server
from mcnb.messages import ProcessError
from mcnb.options import LOCAL, Options, name_processes
from mcnb.pending import Pending
from mcnb.process.blackbox import LastWords, read_black_box
from mcnb.process.bootstrap import (
    Whereabouts,
    heal,
    hold_port,
    in_order,
    join,
    whereabouts,
)
from mcnb.process.calls import Call
from mcnb.uninterrupted import Task, to_the_end

START_TIMEOUT_S = 300.0
FAILURES_S = 0.5
HEAL_TIMEOUT_S = 30.0
REGISTRATION_POLL_S = 0.01
PATIENCE_S = 0.5  # with a client that does not hear of engines, at first


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
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._exit_seen = threading.Event()
        self._client: Any = None
        self._views: list[Any] = []
        self._start = _start_of(options)
        self._losses = (
            None
            if self._start.watched
            else Losses(self._start.ending, self._lose, self._start.told_s)
        )
        self.referee = Server(
            options.processes,
            self._start.folder,
            self._start.host,
            cells=True,
            lost=self._lost,
        )
        self.unchecked = ""
        self._where: list[Whereabouts] = []
        self._host = LOOPBACK  # of JAX's coordinator
        self._communicator_ports: set[int] = set()

    def start(self) -> None:
        """Start them; return when all have joined.

        Raises:
            ClusterError: They could not be started, or were closed meanwhile.
        """
        self._start.begin(self.exits, self._notice_exit)
        self._connect()
        self._join()

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
        targets = range(self.options.processes) if processes is None else processes
        call = Call(f"{function.__module__}.{function.__name__}")
        asked = {k: self._views[k].apply_async(call, *args) for k in targets}
        return Pending(asked, self._inbox, self._lost)

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

    def interrupt(self, k: int) -> None:
        """Send a process SIGINT."""
        if self._start.watched:
            self._start.signal(k, signal.SIGINT)
        else:
            self.referee.interrupt(k)

    def abort(self) -> bool:
        """End what hangs in the processes; return whether that can be done."""
        if not self._communicator_ports or self.unchecked:
            return False
        self.referee.abort(sorted(self._communicator_ports))
        return True

    def heal(self) -> dict[int, Healed]:
        """Have all processes leave each other, join anew, and restore the learner's arrays.

        None of them may be inside a computation.

        Returns:
            What was restored, by process.

        Raises:
            ClusterError: A process could not, or died.
        """
        pending = self.call(heal, self._coordinator(), self.options.processes)
        deadline = time.monotonic() + HEAL_TIMEOUT_S
        while pending.waiting:
            pending.wait(1.0)
            failed = [a for a in pending.answers.values() if isinstance(a, ProcessError)]
            if failed or self.exits or time.monotonic() > deadline:
                why = failed[0].summary() if failed else "a process ended, or took too long"
                raise ClusterError(f"the processes could not be healed: {why}")
        self._communicator_ports = {port for _, port in pending.answers.values()} - {0}
        return {k: healed for k, (healed, _) in sorted(pending.answers.items())}

    def wake(self) -> None:
        """Have a `Pending.wait` that is under way return."""
        self._inbox.put(None)

    def last_words(self, k: int) -> LastWords:
        """Return what a process said that it did not report any more."""
        return read_black_box(self._output(process_name(k)))

    def close(self) -> None:
        """End everything and remove the folder; return when all is gone."""
        if self._losses is not None:
            self._losses.close()  # what ends from now on is ended
        if self._client is not None:
            self._client.close()
            self._client = None
        self._views = []
        if not self._start.watched:
            self.referee.close()  # the processes leave when it is gone
        self._start.close()
        self.referee.close()

    @property
    def _lost(self) -> Callable[[int], None] | None:
        """What is told of a process that is gone, where nobody watches them."""
        return None if self._losses is None else self._losses.add

    def _lose(self, k: int, how: str) -> None:
        self._notice_exit(process_name(k), how)

    def _notice_exit(self, name: str, how: str) -> None:
        self.exits.setdefault(name, how)
        self._exit_seen.set()
        self._inbox.put(None)

    def _connect(self) -> None:
        count = self.options.processes
        deadline = time.monotonic() + START_TIMEOUT_S
        patience = PATIENCE_S
        self._client = self._start.connect()
        connected = time.monotonic()
        while len(self._client.ids) < count:
            self._check_start(deadline, "come up")
            self._exit_seen.wait(REGISTRATION_POLL_S)
            if time.monotonic() - connected > patience:
                # What is published before a client has subscribed is lost to it. A new client is
                # told of all engines that there are.
                self._client.close()
                self._client = self._start.connect()
                connected, patience = time.monotonic(), 2 * patience
        self._views = [self._client[engine] for engine in sorted(self._client.ids)]
        if not self._start.numbered or self.options.platform != "cpu":
            self._find_out()

    def _find_out(self) -> None:
        """Find out where the processes are, and put them in their order."""
        answers = self._ask(whereabouts, self._start.host or LOOPBACK)
        found = [answers[i] for i in range(len(self._views))]
        order = list(range(len(found))) if self._start.numbered else in_order(found)
        self._views = [self._views[i] for i in order]
        self._where = [found[i] for i in order]
        self._host = self._where[0].address

    def _ask(self, function: Callable[..., Any], *args: Any, **which: Any) -> dict[int, Any]:
        """Call a function in processes that come up, and return their answers.

        Raises:
            ClusterError: One could not answer.
        """
        pending = self.call(function, *args, **which)
        deadline = time.monotonic() + START_TIMEOUT_S
        while pending.waiting:
            pending.wait(1.0)
            if any(isinstance(answer, ProcessError) for answer in pending.answers.values()):
                # The others, most likely, are about to say the same.
                while pending.waiting and pending.wait(FAILURES_S):
                    pass
                break
            self._check_start(deadline, "join the others", sorted(pending.waiting))
        failures: dict[str, list[int]] = {}
        for k, answer in sorted(pending.answers.items()):
            if isinstance(answer, ProcessError):
                failures.setdefault(answer.summary(), []).append(k)
        for summary, ks in failures.items():
            who = name_processes(ks, self.options.processes)
            raise ClusterError(f"{who} could not join the others. {summary}")
        return pending.answers

    def _coordinator(self) -> str:
        """Have process 0 hold a port for JAX's coordinator; return where it will listen."""
        port = self._ask(hold_port, self._host, processes=[0])[0]
        return f"{self._host}:{port}"

    def _join(self) -> None:
        count = self.options.processes
        indices = {view.targets: k for k, view in enumerate(self._views)}
        leaves = not self._start.watched and self.options.ours
        gpus: list[tuple[str, ...]] = []
        if self.options.platform == "cuda":
            seen = [(one.host, one.gpus) for one in self._where]
            gpus = share(seen, self.options.devices_per_process)
        joined = self._ask(
            join, self._coordinator(), count, self.referee.address, indices, leaves, gpus
        )
        self.unchecked = next((one.unchecked for one in joined.values() if one.unchecked), "")
        self._communicator_ports = {one.communicator_port for one in joined.values()} - {0}

    def _check_start(self, deadline: float, aim: str, missing: Sequence[int] = ()) -> None:
        for name, how in self.exits.items():
            raise ClusterError(f"{name} {how} while starting.{last_lines(self._output(name))}")
        if failure := self._start.failure():
            raise ClusterError(failure)
        if time.monotonic() > deadline and not (self._start.patient and not self._views):
            missing = missing or self._not_there()
            name = process_name(missing[0])
            raise ClusterError(
                f"{name_processes(missing, self.options.processes)} did not {aim} within "
                f"{START_TIMEOUT_S:.0f} seconds.{last_lines(self._output(name))}"
            )

    def _not_there(self) -> list[int]:
        """Return the processes that have not come up; where it is not known which, the last."""
        count = self.options.processes
        there = sorted(self._client.ids)
        if self._start.numbered:
            return sorted(set(range(count)) - set(there))
        return list(range(len(there), count))

    def _output(self, name: str) -> str:
        k = process_index(name)
        if k is None or self._start.watched:
            return self._start.output(name)
        return self._where[k].output if k < len(self._where) else ""


def _start_of(options: Options) -> Start:
    if options.engines == LOCAL:
        return KeptStart(options)
    if not options.ours:
        from mcnb.launch.connected import ConnectedStart

        return ConnectedStart(options)
    from mcnb.launch.launched import LaunchedStart

    return LaunchedStart(options)
