"""Serve a referee on a socket: receive announcements from clients, and send them rulings."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from mcnb._text import error_line
from mcnb.lockstep.comparison import Comparison
from mcnb.lockstep.inputs import Inputs
from mcnb.lockstep.listener import Listener
from mcnb.lockstep.messages import Wording, explain
from mcnb.lockstep.model import (
    Caught,
    Detail,
    Doing,
    LastLaunch,
    Launch,
    Meeting,
    ProcessExit,
    ProcessState,
    Race,
    UnequalInput,
    Verdict,
)
from mcnb.lockstep.referee import Compare, Go, Referee, Ruling, Stop
from mcnb.lockstep.wire import Address, Message, encode

# The longest wait for the details of processes. The processes are waiting and answer within
# milliseconds, or within seconds on a very busy machine; without details, the same divergence would
# be reported in different words. Only a process whose native code keeps Python's lock never does.
DETAILS_S = 10.0
# The share of the time that processes spend on digests after the first launch of a computation, and
# the shortest time between two launches with digests, in seconds.
SAMPLED_SHARE, SAMPLED_S = 0.005, 1.0
# More launches than a process makes between the end of a wait and the news of it.
MOST_TICKETS = 1000


@dataclass(slots=True)
class _Hearing:
    """A verdict that waits for details.

    Attributes:
        until: The deadline for details, on the monotonic clock.
        waiters: Process and ticket of each wait that the verdict ends.
        asked: Process and ticket of each request without an answer.
        details: The details received, by process.
    """

    until: float
    waiters: set[tuple[int, int]] = field(default_factory=set)
    asked: set[tuple[int, int]] = field(default_factory=set)
    details: dict[int, Detail] = field(default_factory=dict)


@dataclass(slots=True)
class _Comparing:
    """A launch that waits until values are compared.

    Attributes:
        since: The start of the comparison, on the monotonic clock.
        comparison: The comparison.
        tickets: The tickets of the waiting threads, by process.
    """

    since: float
    comparison: Comparison
    tickets: dict[int, int]


@dataclass(frozen=True, slots=True)
class Waits:
    """A process's wait for a launch.

    Attributes:
        state: The state of the process.
        since: The start of the wait, on the monotonic clock, in seconds.
    """

    state: ProcessState
    since: float


class Noted(NamedTuple):
    """What is suspicious and no divergence.

    Attributes:
        meetings: See `Referee.meetings`.
        races: See `Referee.races`.
        inputs: See `Inputs.unequal`.
    """

    meetings: tuple[Meeting, ...]
    races: tuple[Race, ...]
    inputs: tuple[UnequalInput, ...]


class Server:
    """Runs a referee for n processes in a thread.

    Args:
        count: The number of processes.
        folder: The folder for the socket, which only this user can enter; by default the socket
            has a name without a file on Linux, and a temporary folder elsewhere.
        host: This host's address, to listen on it instead for processes of other machines.
        cells: Whether processes run the cells that `begin` starts, as in a notebook; otherwise they
            run from the start.
        how: Returns the exit reason of a process that disconnected without notice. It is called in
            the server's thread, and may block for a moment.
        lost: Called with a process that disconnected, if `cells`; in the server's thread.

    Attributes:
        address: The address to which clients connect.

    Example:
        >>> from mcnb.lockstep.source import Place
        >>> from mcnb.lockstep.client import Client
        >>> with Server(2) as server:
        ...     client = Client(server.address, 0, lambda frame: False)
        ...     server.finish(1)
        ...     client.make(Launch("jit(f)", "1", (0, 1)), Place(line=3), lambda: print("never"))
        Traceback (most recent call last):
        mcnb.errors.LockstepError: missing: process 0 is waiting in jit(f), line 3; process 1 \
finished the cell without reaching it...
    """

    def __init__(
        self,
        count: int,
        folder: Path | None = None,
        host: str = "",
        cells: bool = False,
        how: Callable[[int], ProcessExit] = lambda _: ProcessExit(),
        lost: Callable[[int], None] | None = None,
    ) -> None:
        self.count = count
        self._cells = cells
        self._how = how
        self._lost = lost
        self._told: set[int] = set()  # processes that announced their exit
        self._lock = threading.RLock()
        self._referee = Referee(count)
        if cells:
            self._referee.begin(())
        self._launches: dict[tuple[int, int], Launch] = {}
        self._arrivals: dict[tuple[int, int], float] = {}
        # The newest tickets of each process with which its threads went ahead.
        self._went: list[deque[int]] = [deque(maxlen=MOST_TICKETS) for _ in range(count)]
        # The line, the place and the stack of launches, by process and the process's own number.
        self._stacks: dict[tuple[int, int], tuple[int | None, str, tuple[str, ...]]] = {}
        # Ticket, launch, line, place and stack of launches that a process made without waiting. The
        # referee receives them in the process's order, each after its predecessor has gone ahead,
        # because the devices execute them in this order, too.
        self._unheld: list[deque[tuple[int, Launch, int | None, str, tuple[str, ...]]]]
        self._unheld = [deque() for _ in range(count)]
        self._cell = 0
        self._given = [0] * count  # the last cell of each process
        self._quiet_after = [-1] * count  # each process's last cell without running threads
        self._hearing: _Hearing | None = None
        self._number = 0  # of the verdict to which the details belong, and those stopped
        self._past: list[Verdict] = []  # the verdicts before it, with their details
        self._details: dict[int, Detail] = {}
        self._stopped: set[int] = set()  # the processes that have received a verdict in this cell
        # Whether processes compare values exactly, by process and ticket of their digests.
        self._exact: dict[tuple[int, int], bool] = {}
        self._comparing: list[_Comparing] = []
        self._sample_at = time.monotonic() + SAMPLED_S
        # Participants that have not come yet to a barrier that others have given up.
        self._late: dict[Launch, set[int]] = {}
        self._inputs = Inputs()
        self._listener = Listener(count, folder, host, self._hear, self._miss)
        self.address: Address = self._listener.address
        self._thread = threading.Thread(target=self._run, name="mcnb referee", daemon=True)
        self._thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def verdict(self) -> Verdict | None:
        """How the processes diverged last in this cell, or None."""
        return self.verdicts[-1] if self.verdicts else None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """How the processes diverged in this cell, each time that they did; see `Referee`."""
        with self._lock:
            return (*self._past, self._detailed()) if self._referee.verdicts else ()

    def _detailed(self) -> Verdict:
        """Return the verdict to which the details belong, with them."""
        last = self._referee.verdicts[max(self._number - 1, 0)]
        return last if self._hearing is not None else replace(last, details=dict(self._details))

    @property
    def noted(self) -> Noted:
        """What is suspicious and no divergence."""
        with self._lock:
            referee = self._referee
            return Noted(tuple(referee.meetings), tuple(referee.races), self._inputs.unequal)

    @property
    def present(self) -> set[int]:
        """The processes that are connected."""
        return self._listener.present

    def begin(self, processes: Iterable[int]) -> int:
        """Begin a cell on these processes; return its number, which their clients need."""
        with self._lock:
            if self._hearing is not None:
                self._give_verdict()
            self._cell += 1
            self._number, self._past, self._details = 0, [], {}
            self._stopped.clear()
            self._late.clear()
            self._inputs.clear()
            for k, queue in enumerate(self._unheld):
                for ticket, *_ in queue:
                    self._referee.withdraw(k, ticket)
                    self._arrivals.pop((k, ticket), None)
                queue.clear()
            invited = list(processes)
            for k in invited:
                self._given[k] = self._cell
            self._rule(self._referee.begin(invited))
            return self._cell

    def finish(self, process: int, *, busy: bool = False, caught: Sequence[Caught] = ()) -> None:
        """Record that a process has finished the cell; see `Referee.end`."""
        with self._lock:
            busy = busy and self._may_be_busy(process)
            self._rule(self._referee.end(process, "finished", busy=busy, caught=caught))

    def fail(self, process: int, error: str, *, busy: bool = False) -> None:
        """Record that the cell ended with an error on a process; see `Referee.end`."""
        with self._lock:
            busy = busy and self._may_be_busy(process)
            self._rule(self._referee.end(process, "raised", busy=busy, error=error))

    def die(self, process: int, how: ProcessExit) -> None:
        """Record that a process died; see `Referee.end`."""
        with self._lock:
            self._rule(self._referee.end(process, "died", how=how))

    def last_launch(self, process: int) -> LastLaunch | None:
        """Return the last launch of a process; see `Referee.last_launch`."""
        with self._lock:
            return self._referee.last_launch(process)

    def states(self) -> dict[int, ProcessState]:
        """Return the position of each process."""
        with self._lock:
            return self._referee.states()

    def waits(self) -> dict[int, Waits]:
        """Return the processes that wait for a launch, with the start of each wait."""
        with self._lock:
            since: dict[int, float] = {}
            for (k, _), at in self._arrivals.items():
                since.setdefault(k, at)  # in order of time
            return {
                k: Waits(state, since[k])
                for k, state in self._referee.states().items()
                if state.doing == "waits" and k in since
            }

    def abort(self, ports: Iterable[int]) -> None:
        """Make all processes abort their hanging collectives; see `mcnb.lockstep.abort`."""
        with self._lock:
            for k in range(self.count):
                self._send(k, ["abort", list(ports)], "control")

    def interrupt(self, process: int, attempt: int = 1) -> None:
        """Make a process interrupt the latest cell, even if the process has not begun it yet.

        The attempt is the number of requests to interrupt the cell so far, including this one.
        """
        with self._lock:
            self._send(process, ["interrupt", self._cell, attempt], "control")

    def command(self, process: int, number: int, line: str) -> None:
        """Hand a command to the debugger of a process that has halted for the given time."""
        with self._lock:
            self._send(process, ["command", number, line], "control")

    def ask(self, process: int, number: int) -> None:
        """Ask where a process is; it answers the notebook kernel, with the number."""
        with self._lock:
            self._send(process, ["ask", number], "control")

    def close(self) -> None:
        """Stop the server and close all connections, so that waiting launches go ahead."""
        self._listener.end()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._listener.poll(self._time_left()):
                if self._time_left() == 0:
                    with self._lock:
                        self._give_up_waiting()
        finally:
            self._listener.close()

    def _time_left(self) -> float | None:
        """Return the time left to receive details, in seconds; None if nothing waits for them."""
        until = [one.since + DETAILS_S for one in list(self._comparing)]
        if (hearing := self._hearing) is not None:
            until.append(hearing.until)
        return max(min(until) - time.monotonic(), 0) if until else None

    def _give_up_waiting(self) -> None:
        now = time.monotonic()
        if self._hearing is not None and self._hearing.until <= now:
            self._give_verdict()
        for comparing in [one for one in self._comparing if one.since + DETAILS_S <= now]:
            comparing.comparison.give_up()
            self._go_on_comparing(comparing)

    def _miss(self, k: int, role: str) -> None:
        # For a notebook, `lost` or the launcher reports the exit reason of the process.
        if self._cells and role == "control" and self._lost is not None:
            self._lost(k)
        if not self._cells and role == "launches" and k not in self._told:
            self.die(k, self._how(k))

    def _hear(self, k: int, message: Message) -> None:
        with self._lock:
            kind, *rest = message
            if kind == "at":
                self._announced(k, *rest)
            elif kind == "launch":
                self._launches[k, rest[0]] = Launch.from_data(rest[1])
            elif kind == "stack":
                number, line, place, lines = rest
                self._stacks[k, number] = line, place, tuple(lines)
            elif kind == "inputs":
                self._passed(k, *rest)
            elif kind == "quiet":
                self._quiet(k, *rest)
            elif kind == "back":
                self._call_back(k, rest[0])
            elif kind == "late":
                self._give_up_barrier(k, rest[0])
            elif kind == "sync":
                self._send(k, ["synced", rest[0]])
            elif kind == "detail":
                self._explained(k, *rest)
            elif kind == "values":
                self._answered(k, *rest)
            elif kind in ("left", "failed") and not self._cells and k not in self._told:
                self._told.add(k)
                doing: Doing = "raised" if kind == "failed" else "left"
                error = rest[0] if doing == "raised" else ""
                caught = () if doing == "raised" else Caught.all_from_data(rest[0])
                self._rule(self._referee.end(k, doing, error=error, caught=caught))

    def _announced(
        self,
        k: int,
        ticket: int,
        number: int,
        stack: int,
        alone: bool,
        tickets: list[int],
        held: bool,
        values: tuple[dict[str, str], bool, float] | None = None,
    ) -> None:
        launch = self._launches[k, number]
        line, place, lines = self._stacks[k, stack]
        if launch.is_barrier:
            del self._launches[k, number]
        digests: dict[str, str] = {}
        if values is not None:
            digests, self._exact[k, ticket], took = values
            self._put_off_samples(took)
        if k in self._late.get(launch, ()):
            self._late[launch].discard(k)
            self._send(k, ["backed", ticket], "control")
            return
        alone = alone and self._still_wait(k, tickets)
        self._arrivals[k, ticket] = time.monotonic()
        if held:
            self._rule(
                self._referee.announce(
                    k, ticket, launch, line, place, lines, alone=alone, digests=digests
                )
            )
        else:
            self._unheld[k].append((ticket, launch, line, place, lines))
            if len(self._unheld[k]) == 1:
                self._announce_next(k)

    def _passed(
        self,
        k: int,
        number: int,
        stack: int,
        before: int,
        names: list[str],
        values: dict[str, Message],
        exact: bool,
    ) -> None:
        line, place, lines = self._stacks[k, stack]
        where = place or ("" if line is None else f"line {line}")
        launch = self._launches[k, number]
        self._inputs.passed(k, launch, where, lines, before, names, values, exact=exact)

    def _still_wait(self, k: int, tickets: list[int]) -> bool:
        """Return whether the threads that a process saw waiting still wait.

        If a thread was released or refused meanwhile, the process checks again when it knows.
        """
        refused = self._hearing.waiters if self._hearing is not None else ()
        return all(
            (k, ticket) in self._arrivals and (k, ticket) not in refused for ticket in tickets
        )

    def _quiet(self, k: int, cell: int, over: bool, tickets: list[int]) -> None:
        if cell != self._given[k] or not self._still_wait(k, tickets):
            return
        if over:
            self._quiet_after[k] = cell
        # After the process finishes its cell, the notebook kernel may not have reported it yet.
        if not over or self._referee.ended(k):
            self._rule(self._referee.quiet(k))
        if not over and not tickets and self._referee.diverged(k):
            # The verdict ended a thread for which the cell, or the script, waits.
            self.interrupt(k)

    def _may_be_busy(self, k: int) -> bool:
        return self._quiet_after[k] != self._given[k]

    def _explained(self, k: int, ticket: int, data: dict[str, object]) -> None:
        hearing = self._hearing
        if hearing is not None and (k, ticket) in hearing.asked:
            hearing.asked.discard((k, ticket))
            hearing.details[k] = Detail.from_data(data)
            if not hearing.asked:
                self._give_verdict()

    def _announce_next(self, k: int) -> None:
        """Announce the next launch that a process made without waiting, in its order."""
        if self._unheld[k]:
            self._rule(self._referee.announce(k, *self._unheld[k][0]))

    def _call_back(self, k: int, ticket: int) -> None:
        if self._hearing is not None and (k, ticket) in self._hearing.waiters:
            return  # the verdict is the answer
        if ticket in self._went[k]:
            self._send(k, ["went", ticket], "control")
            return
        if self._arrivals.pop((k, ticket), None) is not None:
            self._referee.withdraw(k, ticket)
            self._exact.pop((k, ticket), None)
            self._comparing = [one for one in self._comparing if one.tickets.get(k) != ticket]
        self._send(k, ["backed", ticket], "control")

    def _give_up_barrier(self, k: int, ticket: int) -> None:
        """Let all participants of a barrier pass: the time limit of one of them is over.

        The coordination service raises an error in each of them, also in those that come later.
        """
        found = self._referee.waiting_at(k, ticket)
        if found is None:
            self._call_back(k, ticket)
            return
        launch, together = found
        self._late.setdefault(launch, set()).update({*launch.participants} - together.keys())
        for p, other in {**together, k: ticket}.items():
            self._call_back(p, other)

    def _put_off_samples(self, took: float) -> None:
        self._sample_at = time.monotonic() + max(took / SAMPLED_SHARE, SAMPLED_S)

    def _compare(self, ruling: Compare) -> None:
        """Ask the processes for the values of a launch whose digests differ."""
        tickets = dict(ruling.waiters)
        if any(one.tickets == tickets for one in self._comparing):
            return
        exact = any(self._exact.get(waiter) for waiter in ruling.waiters)
        comparison = Comparison(ruling.digests, exact=exact)
        comparing = _Comparing(time.monotonic(), comparison, tickets)
        self._comparing.append(comparing)
        self._go_on_comparing(comparing)
        if threading.current_thread() is not self._thread:
            self._listener.wake()  # it must observe the deadline

    def _answered(self, k: int, ticket: int, answer: Message) -> None:
        for comparing in self._comparing:
            if comparing.tickets.get(k) == ticket:
                before = comparing.comparison.question
                comparing.comparison.hear(k, answer)
                if comparing.comparison.question is not before:
                    self._go_on_comparing(comparing)
                return

    def _go_on_comparing(self, comparing: _Comparing) -> None:
        question, tickets = comparing.comparison.question, comparing.tickets
        if question is not None:
            for k in question.processes:
                self._send(k, ["compare", tickets[k], question.name, question.blocks], "control")
            return
        self._comparing.remove(comparing)
        self._put_off_samples(time.monotonic() - comparing.since)
        self._rule(self._referee.compared(tickets.items(), comparing.comparison.found))

    def _rule(self, rulings: list[Ruling]) -> None:
        for ruling in rulings:
            if isinstance(ruling, Compare):
                self._compare(ruling)
            elif isinstance(ruling, Go):
                met = []
                sampled = self._sample_at <= time.monotonic()
                if sampled:
                    self._put_off_samples(SAMPLED_S * SAMPLED_SHARE)
                for k, ticket in ruling.waiters:
                    self._quiet_after[k] = -1  # the thread goes on
                    self._arrivals.pop((k, ticket), None)
                    self._exact.pop((k, ticket), None)
                    if self._is_unheld(k, ticket):
                        self._unheld[k].popleft()
                        met.append(k)
                    else:
                        self._went[k].append(ticket)
                        go = b'["go",%d,true]\n' if sampled else b'["go",%d]\n'
                        self._listener.send(k, go % ticket)
                for k in met:
                    self._announce_next(k)
            else:
                unheld = [k for k, ticket in ruling.waiters if self._is_unheld(k, ticket)]
                self._hold_hearing(ruling)
                for k in unheld:  # what it launches after that is not announced
                    self._rule(self._referee.quiet(k))

    def _is_unheld(self, k: int, ticket: int) -> bool:
        return bool(self._unheld[k]) and self._unheld[k][0][0] == ticket

    def _hold_hearing(self, stop: Stop) -> None:
        """Request details from the processes that will receive the verdict."""
        if self._number != len(self._referee.verdicts):
            if self._hearing is not None:  # of another thread, about the divergence before
                self._give_verdict()
            if self._number:
                self._past.append(self._detailed())
            self._number, self._details = len(self._referee.verdicts), {}
            self._stopped.clear()
        fresh = {w for w in stop.waiters if w[0] not in self._details}
        hearing = self._hearing = self._hearing or _Hearing(time.monotonic() + DETAILS_S)
        hearing.waiters.update(stop.waiters)
        hearing.asked |= fresh
        for k, ticket in sorted(fresh):
            self._send(k, ["explain", ticket, self._stack_of(k, stop.verdict.parted)], "control")
        if not hearing.asked:
            self._give_verdict()
        elif threading.current_thread() is not self._thread:
            self._listener.wake()  # it must observe the deadline

    def _stack_of(self, k: int, parted: Meeting | None) -> int | None:
        """Return the number of the stack from which a process made a launch; None if not known."""
        stack = parted and parted.stacks.get(k)
        found = (n for (p, n), (*_, lines) in self._stacks.items() if p == k and lines == stack)
        return next(found, None)

    def _give_verdict(self) -> None:
        hearing, self._hearing = self._hearing, None
        assert hearing is not None
        self._details.update(hearing.details)
        verdict = self._detailed()
        wording = _in_words(verdict, self.count)
        for k, ticket in sorted(hearing.waiters):
            self._arrivals.pop((k, ticket), None)
            self._exact.pop((k, ticket), None)
            if not self._is_unheld(k, ticket):
                again = "diverged earlier: " if k in self._stopped else ""
                said = f"{again}{wording.sentence}"
                answer = (said, wording.lines, verdict.kind, verdict.only_names)
                self._send(k, ["stop", ticket, *answer])
        self._stopped |= {k for k, _ in hearing.waiters}

    def _send(self, k: int, message: Message, role: str = "launches") -> None:
        self._listener.send(k, encode(message), role)


def _in_words(verdict: Verdict, count: int) -> Wording:
    try:
        return explain(verdict, count)
    except Exception as error:  # a fault of mcnb's own, which must not let the processes go on
        said = f"{verdict.kind}: the processes diverged. mcnb failed to describe how: "
        return Wording(f"{said}{error_line(error)}", (f"{said}{error_line(error)}",))
