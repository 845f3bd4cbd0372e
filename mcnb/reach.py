"""Reaching processes: waiting until they come up, and calling functions in them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcnb.errors import ClusterError
from mcnb.launch.names import process_index, process_name
from mcnb.launch.route import LOOPBACK
from mcnb.launch.start import Start
from mcnb.launch.words import last_lines
from mcnb.messages import ProcessError
from mcnb.options import Options, name_processes
from mcnb.pending import Pending
from mcnb.process.bootstrap import Whereabouts, in_order, whereabouts
from mcnb.process.calls import Call

START_TIMEOUT_S = 300.0
FAILURES_S = 0.5
REGISTRATION_POLL_S = 0.01
CONNECT_TRIES = 3  # each takes 10 s where the controller does not answer
PATIENCE_S = 0.5  # with a client that does not hear of engines, at first


class Reach:
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
        start: Start,
        exits: Mapping[str, str],
        lost: Callable[[int], None] | None,
    ) -> None:
        self.options = options
        self.exits = exits
        self.where: list[Whereabouts] = []
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
        """Reach nobody any more; a `connect` that is under way in another thread fails."""
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
        answers = self.ask(whereabouts, self._start.host or LOOPBACK)
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
            raise ClusterError(f"{name} {how} while starting.{last_lines(self.output(name))}")
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
