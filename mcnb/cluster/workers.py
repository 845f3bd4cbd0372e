"""The n processes of one start, from their joining to their end."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcnb._system import LOOPBACK
from mcnb._text import name_processes
from mcnb.cluster.shielding import Task, to_the_end
from mcnb.errors import ClusterError
from mcnb.launchers.base import Launcher, process_environment
from mcnb.launchers.exits import FORKSERVER, ExitReporter, last_lines, process_index, process_name
from mcnb.launchers.forkserver_client import preload
from mcnb.lockstep.messages import exit_text
from mcnb.lockstep.model import ProcessExit
from mcnb.lockstep.server import Server, Waits
from mcnb.messages import Healed, ProcessError, Progress
from mcnb.options import LOCAL, Options
from mcnb.worker.capture import LastOutput, read_crash_log
from mcnb.worker.gpus import share
from mcnb.worker.join import Location, heal, hold_port, in_order, join, locate
from mcnb.worker.rpc import Call


class Pending:
    """A call to several processes that have not all answered yet.

    Attributes:
        waiting: The processes that have not answered.
        answers: What the others returned.
        started: When the call was made, on the monotonic clock, in seconds.
        waits: Which processes wait for others before a launch.
        stage: What is being done to end the call, in words; empty if nothing is.
        replaceable: Whether the user, who has pressed stop, can have the processes replaced at once
            by pressing it again.

    Args:
        results: ipyparallel's results, by process.
        inbox: Gets something when all have answered, or something else has happened.
        lost: Called with a process whose engine ipyparallel finds gone; it goes on waiting then,
            until how that process ended is known. By default, that is an error.
    """

    def __init__(
        self,
        results: dict[int, Any],
        inbox: queue.SimpleQueue[None],
        lost: Callable[[int], None] | None = None,
    ) -> None:
        self._results = results
        self._lost = lost
        self._gone: set[int] = set()
        self._inbox = inbox
        self.waiting = set(results)
        self.answers: dict[int, Any] = {}
        self.started = time.monotonic()
        self.waits: dict[int, Waits] = {}
        self.stage = ""
        self.replaceable = False
        # Woken once, by the last answer: to be woken by each would have this thread and
        # ipyparallel's, which reads the others, wait for each other.
        left = itertools.count(1)
        for result in results.values():
            result.add_done_callback(
                lambda _: inbox.put(None) if next(left) == len(results) else None
            )

    def wait(self, timeout: float) -> bool:
        """Wait until all have answered, or something else happens.

        Args:
            timeout: For how many seconds at most.

        Returns:
            Whether it did happen in that time.

        Raises:
            ClusterError: An answer is no answer: the engine is gone, or not ours.
        """
        try:
            self._inbox.get(timeout=max(timeout, 0))
            happened = True
        except queue.Empty:
            happened = False
        for k in [k for k in self.waiting - self._gone if self._results[k].done()]:
            try:
                self.answers[k] = self._results[k].get()
                self.waiting.remove(k)
            except Exception as error:
                if self._lost is not None and _says_it_is_gone(error):
                    self._gone.add(k)
                    self._lost(k)
                    continue
                self.waiting.remove(k)
                raise ClusterError(f"process {k} could not be reached: {error}") from None
        return happened

    def progress(self, k: int) -> Progress:
        """Return where a process stood when it last reported."""
        data = self._results[k].data or {}
        progress: Progress = data.get("progress", Progress())
        return progress


def _says_it_is_gone(error: Exception) -> bool:
    from ipyparallel.error import EngineError  # it takes its time, and is there by now

    return isinstance(error, EngineError)


START_TIMEOUT_S = 300.0
FAILURES_S = 0.5
REGISTRATION_POLL_S = 0.01
CONNECT_TRIES = 3  # each takes 10 s where the controller does not answer
PATIENCE_S = 0.5  # with a client that does not hear of engines, at first


class WorkerClient:
    """A client of ipyparallel's, with a view of each process.

    Args:
        options: How many processes there are to be, and on which platform.
        start: How they are started.
        exits: How what is gone ended, by name.
        lost: Called with a process that a call finds gone, where nobody else tells.

    Attributes:
        where: Where the processes are, in their order, if that was asked.
    """

    def __init__(
        self,
        options: Options,
        start: Launcher,
        exits: Mapping[str, ProcessExit],
        lost: Callable[[int], None] | None,
    ) -> None:
        self.options = options
        self.exits = exits
        self.where: list[Location] = []
        self._start = start
        self._lost = lost
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._exit_seen = threading.Event()
        self._turn = threading.Lock()  # guards the client and whether there is to be one
        self._client: Any = None
        self._closed = False
        self._views: list[Any] = []

    @property
    def indices(self) -> dict[int, int]:
        """The processes' indices by the ids of their engines."""
        return {view.targets: k for k, view in enumerate(self._views)}

    def notice(self) -> None:
        """Take note that something has ended."""
        self._exit_seen.set()
        self.wake()

    def wake(self) -> None:
        """Have a `Pending.wait` that is under way return."""
        self._inbox.put(None)

    def call(
        self, function: Callable[..., Any], *args: Any, processes: Sequence[int] | None = None
    ) -> Pending:
        """Call a function in processes, with their shell before the arguments; don't wait."""
        targets = range(self.options.processes) if processes is None else processes
        call = Call(f"{function.__module__}.{function.__name__}")
        asked = {k: self._views[k].apply_async(call, *args) for k in targets}
        return Pending(asked, self._inbox, self._lost)

    def close(self) -> None:
        """Close the client; a `connect` that is under way in another thread fails."""
        with self._turn:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()
        self._views = []
        self.notice()

    def connect(self) -> None:
        """Wait until all have come up, and put them in their order.

        Raises:
            ClusterError: They do not, or `close` was called.
        """
        count = self.options.processes
        deadline = time.monotonic() + START_TIMEOUT_S
        patience = PATIENCE_S
        client = self._new_client(deadline)
        connected = time.monotonic()
        while len(client.ids) < count:
            self._check(deadline, "come up")
            self._exit_seen.wait(REGISTRATION_POLL_S)
            if time.monotonic() - connected > patience:
                # What is published before a client has subscribed is lost to it. A new client is
                # told of all engines that there are.
                client.close()
                client = self._new_client(deadline)
                connected, patience = time.monotonic(), 2 * patience
        self._views = [client[engine] for engine in sorted(client.ids)]
        if not self._start.numbered or self.options.platform != "cpu":
            self._find_out()

    def _new_client(self, deadline: float) -> Any:
        for tries_left in reversed(range(CONNECT_TRIES)):
            # All the while, so that the controller is not ended under it: that would cost 10 s.
            with self._turn:
                self._check_open()
                try:
                    self._client = self._start.connect()
                except TimeoutError:  # a hub that does not answer one client may answer the next
                    if not tries_left:
                        raise
                else:
                    break
            self._check(deadline, "come up")
        return self._client

    def _check_open(self) -> None:
        if self._closed:
            raise ClusterError("The cluster was closed while it started")

    def _find_out(self) -> None:
        """Find out where the processes are, and put them in their order."""
        answers = self.ask(locate, self._start.host or LOOPBACK)
        found = [answers[i] for i in range(len(self._views))]
        order = list(range(len(found))) if self._start.numbered else in_order(found)
        self._views = [self._views[i] for i in order]
        self.where = [found[i] for i in order]

    def ask(self, function: Callable[..., Any], *args: Any, **which: Any) -> dict[int, Any]:
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
            self._check(deadline, "join the others", sorted(pending.waiting))
        failures: dict[str, list[int]] = {}
        for k, answer in sorted(pending.answers.items()):
            if isinstance(answer, ProcessError):
                failures.setdefault(answer.summary(), []).append(k)
        for summary, ks in failures.items():
            who = name_processes(ks, self.options.processes)
            raise ClusterError(f"{who} could not join the others. {summary}")
        return pending.answers

    def _check(self, deadline: float, aim: str, missing: Sequence[int] = ()) -> None:
        self._check_open()
        for name, how in self.exits.items():
            lines = last_lines(self.output(name))
            raise ClusterError(f"{name} {exit_text(how)} while starting.{lines}")
        if failure := self._start.failure():
            raise ClusterError(failure)
        if time.monotonic() > deadline and not (self._start.patient and not self._views):
            missing = missing or self._not_there()
            name = process_name(missing[0])
            raise ClusterError(
                f"{name_processes(missing, self.options.processes)} did not {aim} within "
                f"{START_TIMEOUT_S:.0f} seconds."
                f"{last_lines(self.output(name)) or self._start.said()}"
            )

    def _not_there(self) -> list[int]:
        """Return the processes that have not come up; where it is not known which, the last."""
        count = self.options.processes
        there = sorted(self._client.ids)
        if self._start.numbered:
            return sorted(set(range(count)) - set(there))
        return list(range(len(there), count))

    def output(self, name: str) -> str:
        """Return the common path of a process's output files; empty if they can't be read here."""
        k = process_index(name)
        if k is None or self._start.watched:
            return self._start.output(name)
        return self.where[k].output if k < len(self.where) else ""


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
    with contextlib.suppress(_ForkServerGoneError):
        return _start_once(options)
    return _start_once(options)  # with a fork server of its own: the other was killed


class _ForkServerGoneError(ClusterError):
    """The fork server did not live to see the start."""


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
            raise _ForkServerGoneError(str(error)) from None
        raise
    return processes


class Processes:
    """The processes of a cluster, from their start to their end.

    Args:
        options: What to start.

    Attributes:
        exits: How processes that are gone ended, in the order in which they did.
        referee: Who checks that they stay in lockstep.
        unchecked: Why they are not checked; empty if they are.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.exits: dict[str, ProcessExit] = {}
        self._start = _start_of(options)
        self._losses = (
            None
            if self._start.watched
            else ExitReporter(self._start.ending, self._lose, self._start.told_s)
        )
        self._workers = WorkerClient(options, self._start, self.exits, self._lost)
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
        self._workers.connect()
        self._join()

    @property
    def folder(self) -> Path:
        """The folder that they share, for this user alone."""
        return self._start.folder

    @property
    def unforked(self) -> str:
        """Why they were started one by one and not forked; empty if they were forked."""
        return self._start.unforked

    @property
    def kept(self) -> bool:
        """Whether the process that started them, and ends them, runs."""
        return self._start.alive

    def call(
        self, function: Callable[..., Any], *args: Any, processes: Sequence[int] | None = None
    ) -> Pending:
        """Call a function in processes, with their shell before the arguments; don't wait."""
        return self._workers.call(function, *args, processes=processes)

    def died(self) -> dict[int, ProcessExit]:
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
                does = "looks after" if name == FORKSERVER else "connects"
                raise ClusterError(f"The {name}, which {does} the processes, {exit_text(how)}")
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
        self._workers.wake()

    def last_words(self, k: int) -> LastOutput:
        """Return what a process said that it did not report any more."""
        return read_crash_log(self._workers.output(process_name(k)))

    def close(self, grace_s: float | None = None) -> None:
        """End everything and remove the folder; return when all is gone.

        Args:
            grace_s: How long processes have to leave before they are killed, in seconds, where that
                can be chosen.
        """
        if self._losses is not None:
            self._losses.close()  # what ends from now on is ended
        self._workers.close()
        if not self._start.watched:
            self.referee.close()  # the processes leave when it is gone
        self._start.close(grace_s)
        self.referee.close()

    @property
    def _lost(self) -> Callable[[int], None] | None:
        """What is told of a process that is gone, where nobody watches them."""
        return None if self._losses is None else self._losses.add

    def _lose(self, k: int, how: ProcessExit) -> None:
        self._notice_exit(process_name(k), how)

    def _notice_exit(self, name: str, how: ProcessExit) -> None:
        self.exits.setdefault(name, how)
        self._workers.notice()

    def _coordinator(self) -> str:
        """Have process 0 hold a port for JAX's coordinator; return where it will listen."""
        host = self._workers.where[0].address if self._workers.where else LOOPBACK
        port = self._workers.ask(hold_port, host, processes=[0])[0]
        return f"{host}:{port}"

    def _join(self) -> None:
        alone = "" if self._start.watched else "leaves" if self.options.ours else "forgets"
        gpus: list[tuple[str, ...]] = []
        if self.options.platform == "cuda":
            seen = [(one.host, one.gpus) for one in self._workers.where]
            gpus = share(seen, self.options.devices_per_process)
        joined = self._workers.ask(
            join,
            self._coordinator(),
            self.options.processes,
            self.referee.address,
            self._workers.indices,
            alone,
            gpus,
        )
        self.unchecked = next((one.unchecked for one in joined.values() if one.unchecked), "")
        self._communicator_ports = {one.communicator_port for one in joined.values()} - {0}


def _start_of(options: Options) -> Launcher:
    if not options.ours:
        from mcnb.launchers.existing import ExistingLauncher

        return ExistingLauncher(options)
    # It imports what the processes need while this process imports ipyparallel.
    preload(process_environment(options, os.environ), gently=False)
    if options.launcher == LOCAL:
        from mcnb.launchers.local import LocalLauncher

        return LocalLauncher(options)
    from mcnb.launchers.batch import IpyparallelLauncher

    return IpyparallelLauncher(options)
