"""The n processes of one start: how they come up, are called, and go."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mcnb.errors import ClusterError
from mcnb.launch.environment import process_environment
from mcnb.launch.names import CONTROLLER, KEEPER, output_path, process_index, process_name
from mcnb.launch.ports import reserved_port
from mcnb.launch.warm import give_back, take
from mcnb.lockstep.rescue import Healed
from mcnb.lockstep.server import Server
from mcnb.messages import ProcessError
from mcnb.options import Options, name_processes
from mcnb.pending import Pending
from mcnb.process.blackbox import LastWords, read_black_box
from mcnb.process.bootstrap import can_bind, heal, join
from mcnb.process.calls import Call
from mcnb.process.tracebacks import crash_report
from mcnb.uninterrupted import Task, to_the_end

START_TRIES = 3  # ipyparallel's controller chooses ports before it binds them
START_TIMEOUT_S = 300.0
FAILURES_S = 0.5
HEAL_TIMEOUT_S = 30.0
REGISTRATION_POLL_S = 0.01
PATIENCE_S = 0.5  # with a client that does not hear of engines, at first
LAST_LINES = 8

# XLA's messages begin with a letter for how grave they are, the time, and the thread.
_LOG_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ ")


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
        self._keeping = take(process_environment(options, os.environ))
        self.folder = Path(tempfile.mkdtemp(prefix="mcnb-"))
        self.referee = Server(options.processes, self.folder, cells=True)
        self.unchecked = ""
        self._communicator_ports: set[int] = set()

    def start(self) -> None:
        """Start them; return when all have joined.

        Raises:
            ClusterError: They could not be started, or were closed meanwhile.
        """
        self._keeping.begin(self.folder, self._notice_exit)
        self._start_controller()
        self._connect()
        self._join()

    @property
    def cold(self) -> str:
        """Why they were started one by one and not forked; empty if they were forked."""
        return self._keeping.cold or ""

    @property
    def kept(self) -> bool:
        """Whether the process that started them, and ends them, runs."""
        return self._keeping.alive

    def call(
        self, function: Callable[..., Any], *args: Any, processes: Sequence[int] | None = None
    ) -> Pending:
        """Call a function in processes, with their shell before the arguments; don't wait."""
        targets = range(self.options.processes) if processes is None else processes
        call = Call(f"{function.__module__}.{function.__name__}")
        return Pending({k: self._views[k].apply_async(call, *args) for k in targets}, self._inbox)

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

    def signal(self, k: int, number: int) -> None:
        """Send a process a signal."""
        self._keeping.signal(self.folder, process_name(k), number)

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
        with self._coordinator_port() as port:
            address = f"127.0.0.1:{port}"
            pending = self.call(heal, address, self.options.processes)
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
        return read_black_box(output_path(self.folder, process_name(k)))

    def close(self) -> None:
        """End everything and remove the folder; return when all is gone."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._views = []
        give_back(self._keeping)
        self.referee.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # where the keeper was killed

    def _notice_exit(self, name: str, how: str) -> None:
        self.exits.setdefault(name, how)
        self._exit_seen.set()
        self._inbox.put(None)

    def _start_controller(self) -> None:
        # Not before the keeper imports, at the same time, what is the longer part.
        from mcnb.launch.local import KeptCluster

        for try_number in range(1, START_TRIES + 1):
            self._cluster = KeptCluster(self._keeping, self.folder, self.options, self.exits)
            try:
                self._cluster.start_cluster_sync(n=self.options.processes)
            except (RuntimeError, TimeoutError) as error:
                if try_number == START_TRIES:
                    lines = self._last_lines(CONTROLLER)
                    raise ClusterError(
                        f"ipyparallel's controller could not be started: {error}.{lines}"
                    ) from None
                self._keeping.end(remove=False)
                self.exits.clear()
            else:
                return

    def _connect(self) -> None:
        wanted = set(range(self.options.processes))
        deadline = time.monotonic() + START_TIMEOUT_S
        patience = PATIENCE_S
        self._client = self._cluster.connect_client_sync()
        connected = time.monotonic()
        while not wanted <= set(self._client.ids):
            self._check_start(deadline, sorted(wanted - set(self._client.ids)), "come up")
            self._exit_seen.wait(REGISTRATION_POLL_S)
            if time.monotonic() - connected > patience:
                # What is published before a client has subscribed is lost to it. A new client is
                # told of all engines that there are.
                self._client.close()
                self._client = self._cluster.connect_client_sync()
                connected, patience = time.monotonic(), 2 * patience
        self._views = [self._client[k] for k in sorted(wanted)]

    def _join(self) -> None:
        with self._coordinator_port() as port:
            address = f"127.0.0.1:{port}"
            pending = self.call(join, address, self.options.processes, self.referee.address)
            deadline = time.monotonic() + START_TIMEOUT_S
            while pending.waiting:
                pending.wait(1.0)
                if any(isinstance(answer, ProcessError) for answer in pending.answers.values()):
                    # The others, most likely, are about to say the same.
                    while pending.waiting and pending.wait(FAILURES_S):
                        pass
                    break
                self._check_start(deadline, sorted(pending.waiting), "join the others")
        failures: dict[str, list[int]] = {}
        for k, answer in sorted(pending.answers.items()):
            if isinstance(answer, ProcessError):
                failures.setdefault(answer.summary(), []).append(k)
        for summary, ks in failures.items():
            who = name_processes(ks, self.options.processes)
            raise ClusterError(f"{who} could not join the others. {summary}")
        joined = list(pending.answers.values())
        self.unchecked = next((one.unchecked for one in joined if one.unchecked), "")
        self._communicator_ports = {one.communicator_port for one in joined} - {0}

    @contextlib.contextmanager
    def _coordinator_port(self) -> Iterator[int]:
        """Hold a port that process 0 can bind: JAX crashes where it can't."""
        for _ in range(START_TRIES):
            with reserved_port() as port:
                pending = self.call(can_bind, f"127.0.0.1:{port}", processes=[0])
                while pending.waiting:
                    pending.wait(1.0)
                    self._check_start(time.monotonic() + 1, [0], "answer")
                if pending.answers[0] is True:
                    yield port
                    return
        raise ClusterError(
            f"{START_TRIES} ports of loopback, one after the other, were taken by another program "
            "before JAX's coordinator could have them. Try again: %mcjax start"
        )

    def _check_start(self, deadline: float, missing: list[int], aim: str) -> None:
        for name, how in self.exits.items():
            raise ClusterError(f"{name} {how} while starting.{self._last_lines(name)}")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{name_processes(missing, self.options.processes)} did not {aim} within "
                f"{START_TIMEOUT_S:.0f} seconds.{self._last_lines(process_name(missing[0]))}"
            )

    def _last_lines(self, name: str) -> str:
        err = crash_report(read_black_box(output_path(self.folder, name)).err)
        lines = [_LOG_PREFIX.sub("", line) for line in err.strip().splitlines()[-LAST_LINES:]]
        return " Its last lines:\n" + "\n".join(lines) if lines else ""
