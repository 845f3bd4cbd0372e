"""Start, call, interrupt, heal and end the worker processes of a cluster."""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcnb._system import LOOPBACK, RunningClock
from mcnb._text import grouped, name_processes
from mcnb.cluster.shielding import delayed_ctrl_c, in_thread
from mcnb.errors import ClusterError
from mcnb.launchers.base import Launcher
from mcnb.launchers.exits import (
    CONTROLLER,
    FORKSERVER,
    ExitReporter,
    last_lines,
    process_index,
    process_name,
)
from mcnb.lockstep.messages import exit_text
from mcnb.lockstep.model import ProcessExit, Verdict
from mcnb.lockstep.server import Server, Waits
from mcnb.messages import Healed, Pause, ProcessError, Progress, Stack, unreadable
from mcnb.options import Options
from mcnb.worker.capture import LastOutput, read_crash_log
from mcnb.worker.gpus import share
from mcnb.worker.join import Location, heal, hold_port, in_order, join, locate
from mcnb.worker.rpc import Call

START_TIMEOUT_S = 300.0
# A start that takes longer says what it waits for.
SILENT_S = 10.0
# How often, and for how long each time, to wait for the failures of further processes. A wait that
# is late on a busy machine counts as one.
FAILURES_WAITS, FAILURES_WAIT_S = 40, 0.05
REGISTRATION_POLL_S = 0.01
CONNECT_TRIES = 3  # each attempt takes 10 s if the controller does not reply
ASK_AGAIN_S = 5.0  # the initial wait before a call that may be repeated is made again
PATIENCE_S = 0.5  # the initial wait before a client that sees no engines is replaced
# How long a heal may take, and how much longer per gigabyte of arrays, which are copied twice. It
# takes a second, but many seconds of a busy machine.
HEAL_S, HEAL_S_PER_GB = 120.0, 4.0
# A heal in which all processes are inactive for so long will never end.
HEAL_STANDS_STILL_S = 1.5
HEAL_TICK_S = 0.1
_SUBJECTS = {CONTROLLER: "ipyparallel's controller", FORKSERVER: "the fork server"}


# Called before each wait for replies: returns the most seconds to wait until the next call, or
# None to give up.
Policy = Callable[[], float | None]


class Pending:
    """A pending call to several processes, of which some have not replied yet.

    Attributes:
        waiting: The processes that have not replied.
        answers: The values that the other processes returned.
        started: The time of the call on the monotonic clock, in seconds.
        waits: The processes that wait for others before a launch.
        stage: The current step of ending the call, in words; empty if there is none.
        replaceable: Whether another press of stop, after a first one, replaces the processes.

    Args:
        results: The answers of the engines, by process.
        inbox: A queue that receives an item when all processes have replied, or another event
            occurs.
        lost: Called with a process whose engine ipyparallel reports as dead, if the launcher does
            not report exits. The call remains pending until the exit reason is known.
    """

    def __init__(
        self,
        results: Mapping[int, Any],
        inbox: queue.SimpleQueue[None],
        lost: Callable[[int], None] | None = None,
    ) -> None:
        self._results = dict(results)
        self._lost = lost
        self._gone: set[int] = set()
        self._inbox = inbox
        self._inactive: dict[int, float] = {}  # as first reported when all processes were inactive
        self.waiting = set(results)
        self.answers: dict[int, Any] = {}
        self.started, self.clock = time.monotonic(), RunningClock()
        self.waits: dict[int, Waits] = {}
        self.stage = ""
        self.replaceable = False
        # Only the last reply wakes this thread: if each did, this thread and ipyparallel's thread,
        # which reads the other replies, would wait for each other.
        left = itertools.count(1)
        for result in results.values():
            result.add_done_callback(
                lambda _: inbox.put(None) if next(left) == len(results) else None
            )

    def wait(self, timeout: float) -> bool:
        """Wait until all processes have replied, or another event occurs.

        Returns:
            Whether such an event occurred in that time.
        """
        try:
            self._inbox.get(timeout=max(timeout, 0))
            happened = True
        except queue.Empty:
            happened = False
        for k in [k for k in self.waiting - self._gone if self._results[k].done()]:
            try:
                self.answers[k] = self._results[k].result()
                self.waiting.remove(k)
            except Exception as error:
                # ipyparallel may report the death of an engine before the launcher does.
                if getattr(error, "ename", type(error).__name__) == "EngineError":
                    self._gone.add(k)
                    if self._lost is not None:
                        self._lost(k)
                    continue
                self.waiting.remove(k)
                raise ClusterError(f"process {k} could not be reached: {error}") from None
        return happened

    def replace(self, later: Pending) -> None:
        """Wait for a later call of the same function instead, in the processes of that call."""
        self._results.update(later._results)

    def follow(self, policy: Policy) -> bool:
        """Wait for the replies of all processes, for as long as a policy says.

        Returns:
            Whether all processes have replied.

        Raises:
            ClusterError: A reply is an error of ipyparallel's, because the engine is not mcnb's.
        """
        while self.waiting and (timeout := policy()) is not None:
            self.wait(timeout)
        return not self.waiting

    def answered(self, within_s: float) -> bool:
        """Wait for at most so long; return whether all processes have replied."""
        clock = RunningClock()
        with contextlib.suppress(ClusterError):
            while self.waiting:
                left = within_s - clock()
                self.wait(min(left, 1.0))
                if left <= 0:
                    break
        return not self.waiting

    def progress(self, k: int) -> Progress:
        """Return a process's last reported progress."""
        data = self._results[k].data
        progress: Progress = data.get("progress", Progress())
        return progress

    def pause(self, k: int) -> Pause:
        """Return the newest halt of a process at a breakpoint, which may be over."""
        data = self._results[k].data
        pause: Pause = data.get("pause", Pause())
        return pause

    def stack(self, k: int) -> Stack:
        """Return where a process was when it was asked last."""
        stack: Stack = self._results[k].data.get("stack", Stack())
        return stack

    def all_inactive(self, for_s: float) -> bool:
        """Return whether all processes without a reply have been inactive in JAX for so long.

        A last report proves nothing: the process may have continued since, and its next report or
        its reply may be late on a busy machine. Therefore, each process must report once more that
        it is inactive, after the last reports of all of them have said so.
        """
        reports = {k: self.progress(k).waits_s for k in self.waiting}
        if any(waits_s < for_s for waits_s in reports.values()):
            self._inactive.clear()
            return False
        for k, waits_s in reports.items():
            self._inactive.setdefault(k, waits_s)
        return all(waits_s != self._inactive[k] for k, waits_s in reports.items())


class WorkerClient:
    """An ipyparallel client of the workers.

    Args:
        exits: The exit reasons of ended processes, by name.
        lost: Called with a process that a call finds dead, if the launcher does not report exits.

    Attributes:
        where: The locations of the processes, by index, if they were determined.
    """

    def __init__(
        self,
        options: Options,
        launcher: Launcher,
        exits: Mapping[str, ProcessExit],
        lost: Callable[[int], None] | None,
    ) -> None:
        self.options = options
        self.exits = exits
        self.where: list[Location] = []
        self._launcher = launcher
        self._lost = lost
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._exit_seen = threading.Event()
        self._turn = threading.Lock()  # guards _client and _closed
        self._client: Any = None
        self._closed = False
        self._engines: list[int] = []  # the engines' ids, by process
        # What the start waits for: which processes are to do what. Only replaced as a whole, by the
        # thread that starts them, so that another thread can read it.
        self._awaited: tuple[str, list[int]] = "", []

    @property
    def indices(self) -> dict[int, int]:
        """The process indices by engine id."""
        return {engine: k for k, engine in enumerate(self._engines)}

    def notice(self) -> None:
        """Signal that a process has ended."""
        self._exit_seen.set()
        self.wake()

    def wake(self) -> None:
        """Wake up a `Pending.wait` that is in progress."""
        self._inbox.put(None)

    def call(
        self, function: Callable[..., Any], *args: Any, processes: Sequence[int] | None = None
    ) -> Pending:
        """Call a function in processes, with the shell as its first argument, without waiting."""
        from mcnb._ipyparallel.calls import apply_on_engines

        targets = range(self.options.processes) if processes is None else processes
        call = Call(f"{function.__module__}.{function.__name__}")
        answers = apply_on_engines(self._client, [self._engines[k] for k in targets], call, args)
        return Pending(dict(zip(targets, answers, strict=True)), self._inbox, self._lost)

    def close(self) -> None:
        """Close the client; a `connect` that is in progress in another thread fails."""
        with self._turn:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()
        self._engines = []
        self.notice()

    def connect(self) -> None:
        """Connect to all processes, wait until they are ready, and sort them by index.

        Raises:
            ClusterError: A process did not start, or `close` was called.
        """
        count = self.options.processes
        clock = RunningClock()
        patience = PATIENCE_S
        client = self._new_client(clock)
        connected = time.monotonic()
        while len(client.ids) < count:
            self._awaited = "start", self._missing()
            self._check(clock, "start")
            self._exit_seen.wait(REGISTRATION_POLL_S)
            if time.monotonic() - connected > patience:
                # A client misses the engines that are published before it has subscribed. A new
                # client receives all engines that are registered.
                client.close()
                client = self._new_client(clock)
                connected, patience = time.monotonic(), 2 * patience
        self._engines = sorted(client.ids)
        if not self._launcher.numbered or self.options.platform != "cpu":
            answers = self.ask(
                locate,
                self._launcher.host or LOOPBACK,
                self._launcher.rank_variables,
                again_s=ASK_AGAIN_S,
            )
            found = [answers[i] for i in range(count)]
            order = range(count) if self._launcher.numbered else in_order(found)
            self._engines = [self._engines[i] for i in order]
            self.where = [found[i] for i in order]

    def _new_client(self, clock: RunningClock) -> Any:
        from mcnb._ipyparallel.calls import describe_unreadable

        for tries_left in reversed(range(CONNECT_TRIES)):
            # Hold the lock, so that the controller is not ended meanwhile: that would cost 10 s.
            with self._turn:
                self._check_open()
                try:
                    self._client = self._launcher.connect()
                except TimeoutError:  # a hub that ignores one client may reply to the next
                    if not tries_left:
                        raise
                else:
                    break
            self._check(clock, "start")
        describe_unreadable(
            self._client,
            lambda error: unreadable(
                error, "in the notebook kernel", "in a cell of the notebook kernel"
            ),
        )
        return self._client

    def _check_open(self) -> None:
        if self._closed:
            raise ClusterError("The cluster was closed while it started")

    def ask(
        self,
        function: Callable[..., Any],
        *args: Any,
        processes: Sequence[int] | None = None,
        again_s: float = math.inf,
    ) -> dict[int, Any]:
        """Call a function in processes during the start, and return their replies.

        Args:
            function: Called with the process's shell, and the arguments.
            args: The arguments.
            processes: The processes; None for all.
            again_s: After so many seconds, and then after twice as many, processes that have not
                replied are called again. ipyparallel's queue drops a message to an engine that is
                registered, and has not connected to the queue yet.

        Raises:
            ClusterError: A process could not reply.
        """
        pending = self.call(function, *args, processes=processes)
        clock = RunningClock()
        again = time.monotonic() + again_s

        def patience() -> float | None:
            nonlocal again, again_s
            if any(isinstance(answer, ProcessError) for answer in pending.answers.values()):
                return None
            self._awaited = "connect to the others", sorted(pending.waiting)
            self._check(clock, *self._awaited)
            if time.monotonic() >= again:
                pending.replace(self.call(function, *args, processes=sorted(pending.waiting)))
                again_s *= 2
                again = time.monotonic() + again_s
            return min(1.0, again_s)

        if not pending.follow(patience):
            # The other processes are likely to report the same error soon.
            for _ in range(FAILURES_WAITS):
                if pending.waiting:
                    pending.wait(FAILURES_WAIT_S)
        answers = sorted(pending.answers.items())
        failures = {k: a.summary() for k, a in answers if isinstance(a, ProcessError)}
        for summary, ks in grouped(failures):
            who = name_processes(ks, self.options.processes)
            raise ClusterError(f"{who} could not connect to the other processes. {summary}")
        return pending.answers

    def _check(self, clock: RunningClock, aim: str, missing: Sequence[int] = ()) -> None:
        self._check_open()
        for name, how in self.exits.items():
            lines = last_lines(self.output(name))
            raise ClusterError(
                f"{_SUBJECTS.get(name, name)} {exit_text(how)} during the start.{lines}"
            )
        if failure := self._launcher.failure():
            raise ClusterError(failure)
        if clock() > START_TIMEOUT_S and not (self._launcher.patient and not self._engines):
            missing = missing or self._missing()
            name = process_name(missing[0])
            raise ClusterError(
                f"{name_processes(missing, self.options.processes)} did not {aim} within "
                f"{START_TIMEOUT_S:.0f} seconds."
                f"{last_lines(self.output(name)) or self._launcher.output_lines()}"
            )

    def _missing(self) -> list[int]:
        """Return the processes that have not registered.

        While engines have no process indices, the last indices count as missing.
        """
        client = self._client
        ids = [] if client is None else client.ids  # none, once it was closed
        known = ids if self._launcher.numbered else range(len(ids))
        return sorted({*range(self.options.processes)}.difference(known))

    def waits_for(self) -> str:
        """Return what the start waits for, after "until"."""
        aim, absent = self._awaited
        if not absent:
            return "ipyparallel's controller answers"
        queued = self._launcher.queued() if len(absent) == self.options.processes else ""
        if aim == "start" and queued:
            return queued
        verb, _, rest = aim.partition(" ")
        does = f"{verb}s {rest}".rstrip() if len(absent) == 1 else aim
        return f"{name_processes(absent, self.options.processes)} {does}"

    def output(self, name: str) -> str:
        """Return the base path of a process's output files; empty if unreadable from here."""
        k = process_index(name)
        if k is None or self._launcher.watched:
            return self._launcher.output(name)
        return self.where[k].output if k < len(self.where) else ""


def start_processes(
    options: Options,
    accept: Callable[[Processes], object],
    tell: Callable[[str], object] = lambda _: None,
) -> None:
    """Start processes, and hand them over when all of them have joined.

    Args:
        options: What to start.
        accept: Called with the processes. Ctrl-C does not come between: the processes have either
            been accepted, or have ended.
        tell: Called each second after the first ten with what the start waits for.

    Raises:
        ClusterError: The processes could not be started.
        KeyboardInterrupt: Ctrl-C.
    """
    with delayed_ctrl_c() as ctrl_c:
        for retried in (False, True):
            # In threads, because a notebook kernel's main thread has a running event loop.
            processes = in_thread(lambda: Processes(options)).result()
            start = in_thread(processes.start)
            began = time.monotonic()

            def meanwhile(processes: Processes = processes, began: float = began) -> None:
                waited_s = time.monotonic() - began
                if waited_s >= SILENT_S:
                    tell(f"Waiting for {waited_s:.0f} s, until {processes.client.waits_for()}")

            if ctrl_c.wait_for(start, meanwhile) and start.exception() is None:
                accept(processes)
                return
            gone = not processes.launcher.alive
            in_thread(processes.close).result()
            error = start.exception()
            if ctrl_c.pressed:
                return
            if error is not None and (retried or not (gone and isinstance(error, ClusterError))):
                raise error
            # The fork server was killed: try again, once, with a new one.


class Processes:
    """The worker processes of a cluster, from their start to their end.

    Attributes:
        launcher: The launcher of the processes.
        client: The client that calls the processes.
        exits: The exit reasons of ended processes by name, in the order of the exits.
        referee: The server that checks that the processes stay in lockstep.
        unchecked: Why the processes are not checked; empty if they are.
        asked: The last call that was made while no cell ran, to help with writing one.
        told: The number of the referee's verdicts that the newest cell, or call, has told.
        late: Verdicts on threads that went on after their cell, for the next cell to tell.
    """

    told: int
    late: tuple[Verdict, ...]

    def __init__(self, options: Options) -> None:
        self.options = options
        self.asked: Pending | None = None
        self.exits: dict[str, ProcessExit] = {}
        self.told, self.late = 0, ()
        from mcnb.launchers.registry import create_launcher

        self.launcher = launcher = create_launcher(options)
        self._losses: ExitReporter | None = None
        if not launcher.watched:
            self._losses = ExitReporter(
                launcher.exit_of,
                lambda k, how: self._notice_exit(process_name(k), how),
                launcher.exit_delay_s,
            )
        lost = None if self._losses is None else self._losses.add
        self.client = WorkerClient(options, launcher, self.exits, lost)
        try:
            self.referee = Server(
                options.processes, launcher.folder, launcher.host, cells=True, lost=lost
            )
        except OSError:
            launcher.close()
            raise
        self.unchecked = ""
        self._communicator_ports: set[int] = set()

    def start(self) -> None:
        """Start the processes; return when all of them have joined.

        Raises:
            ClusterError: The processes could not be started, or were closed meanwhile.
        """
        self.launcher.begin(self.exits, self._notice_exit)
        self.client.connect()
        alone = "" if self.launcher.watched else "leaves" if self.options.ours else "forgets"
        gpus: list[tuple[str, ...]] = []
        if self.options.platform == "cuda":
            seen = [(one.host, one.gpus) for one in self.client.where]
            gpus = share(seen, self.options.devices_per_process)
        joined = self.client.ask(
            join,
            self._coordinator(),
            self.options.processes,
            self.referee.address,
            self.client.indices,
            alone,
            gpus,
            self.options.arguments,
        )
        self.unchecked = next((why for _, why in joined.values() if why), "")
        self._communicator_ports = {port for port, _ in joined.values()} - {0}

    def died(self) -> dict[int, ProcessExit]:
        """Return the processes that ended and their exit reasons, in the order of the exits.

        Raises:
            ClusterError: The controller or the fork server ended first.
        """
        died = {}
        for name, how in list(self.exits.items()):
            k = process_index(name)
            if k is not None:
                died[k] = how
            elif not died:
                does = "monitors" if name == FORKSERVER else "connects"
                raise ClusterError(f"The {name}, which {does} the processes, {exit_text(how)}")
        return died

    def interrupt(self, k: int, attempt: int = 1) -> None:
        """Interrupt the latest cell in a process, even if the process has not started it yet.

        `attempt` is the number of interrupts of the cell so far, including this one.
        """
        self.referee.interrupt(k, attempt)
        # A thread of the process receives the request. If the thread can't run because the main
        # thread holds the GIL, a signal may still work.
        if self.launcher.watched and (attempt > 1 or k not in self.referee.present):
            self.launcher.signal(k, signal.SIGINT)

    def note_late_verdicts(self) -> None:
        """Keep what the referee has found since the newest cell or call ended."""
        self.late += self.referee.verdicts[self.told :]
        self.told = 0

    def abort(self) -> bool:
        """Abort the collectives that hang in the processes; return whether that is possible."""
        if not self._communicator_ports or self.unchecked:
            return False
        self.referee.abort(sorted(self._communicator_ports))
        return True

    def heal(
        self, size: int = 0, follow: Callable[[Pending, Policy], object] = Pending.follow
    ) -> dict[int, Healed]:
        """Reconnect all processes, and restore the learner's arrays; describe them by process.

        No process may be inside a computation.

        Args:
            size: The maximum number of bytes of arrays that a process has to copy.
            follow: Waits for the replies as `Pending.follow` does; may raise to give up.

        Raises:
            ClusterError: A process failed to heal, took too long, or died.
        """
        budget = HEAL_S + HEAL_S_PER_GB * size / 1e9
        pending = self.client.call(heal, self._coordinator(), self.options.processes)

        def patience() -> float | None:
            self._check_heal(pending, budget)
            return HEAL_TICK_S

        follow(pending, patience)
        self._check_heal(pending, budget)
        self._communicator_ports = {port for _, port in pending.answers.values()} - {0}
        return {k: healed for k, (healed, _) in sorted(pending.answers.items())}

    def _check_heal(self, pending: Pending, budget_s: float) -> None:
        """Raise ClusterError if a heal has failed, or can't finish."""
        failed = [a for a in pending.answers.values() if isinstance(a, ProcessError)]
        left = sorted(pending.waiting)
        name = name_processes(left, self.options.processes) if left else ""
        if failed:
            why = failed[0].summary()
        elif self.exits:
            why = "a process ended"
        elif left and pending.all_inactive(HEAL_STANDS_STILL_S):
            why = f"{name} waited for the others and made no progress"
        elif left and pending.clock() > budget_s:
            why = f"{name} did not finish within {budget_s:.0f} s"
        else:
            return
        raise ClusterError(f"the processes could not be healed: {why}")

    def last_words(self, k: int) -> LastOutput:
        """Return the last output of a process that the process could not report."""
        return read_crash_log(self.client.output(process_name(k)))

    def close(self, grace_s: float | None = None) -> None:
        """End all processes and remove the folder, as `Launcher.close`; return when it is done."""
        if self._losses is not None:
            self._losses.close()  # exits from now on are intended
        self.client.close()
        if not self.launcher.watched:
            self.referee.close()  # the processes exit when the referee closes
        self.launcher.close(grace_s)
        self.referee.close()

    def _notice_exit(self, name: str, how: ProcessExit) -> None:
        self.exits.setdefault(name, how)
        self.client.notice()

    def _coordinator(self) -> str:
        """Reserve a port on process 0 for JAX's coordinator; return the coordinator's address."""
        host = self.client.where[0].address if self.client.where else LOOPBACK
        port = self.client.ask(hold_port, host, processes=[0])[0]
        return f"{host}:{port}"
